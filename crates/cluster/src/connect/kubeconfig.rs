//! From a kubeconfig's text to what it says.
//!
//! `kube` could read it too, but brings a reader of YAML of its own for each of its types, as large as all of them here.

use std::path::Path;

use kube::config::Kubeconfig;

/// Reads a kubeconfig; files that it names are meant beside it. Of several documents the first that says something counts.
///
/// # Errors
/// Why not, without a word of the file: there may be a token in it.
pub(super) fn read(path: &Path) -> Result<Kubeconfig, String> {
    let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    let mut all = Kubeconfig::default();
    for document in yaml::documents(text.trim_start_matches('\u{feff}')) {
        let value = yaml::json(document.text).map_err(|broken| no_yaml(broken.place, document.lines_before))?;
        let one = json::read(&value).map_err(|_| "it is not the YAML of a kubeconfig".to_owned())?;
        all = all.merge(one).map_err(|e| e.to_string())?;
    }
    beside(&mut all, path.parent().unwrap_or(Path::new("")));
    Ok(all)
}

fn no_yaml(place: Option<(usize, usize)>, before: usize) -> String {
    let place = place.map(|(line, column)| format!(": line {}, column {column}", line + before));
    format!("it is not the YAML of a kubeconfig{}", place.unwrap_or_default())
}

fn beside(file: &mut Kubeconfig, dir: &Path) {
    let absolute = |file: &mut Option<String>| {
        *file = file.take().filter(|file| !file.is_empty()).map(|file| dir.join(&file).to_str().map_or(file, str::to_owned));
    };
    for cluster in file.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority);
    }
    for user in file.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        absolute(&mut user.client_certificate);
        absolute(&mut user.client_key);
        absolute(&mut user.token_file);
        // A name alone is looked for in PATH.
        if let Some(exec) = user.exec.as_mut().filter(|exec| exec.command.as_ref().is_some_and(|command| command.contains('/'))) {
            absolute(&mut exec.command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("netloom-kubeconfig-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn files_are_meant_beside_it_and_documents_go_together() {
        let path = written(
            "parts",
            "\u{feff}apiVersion: v1\ncurrent-context: a\nclusters:\n- name: c\n  cluster: {server: https://c, certificate-authority: pki/ca.crt}\n\
             users:\n- name: u\n  user: {client-certificate: /etc/u.crt, client-key: '', exec: {command: ./token, args: [1, two], apiVersion: v1}}\n\
             - name: p\n  user: {exec: {command: aws, interactiveMode: Never}}\n---\n\
             contexts:\n- {name: a, context: {cluster: c, user: u}}\ncurrent-context: b\n",
        );
        // A number is no argument.
        assert!(read(&path).unwrap_err().starts_with("it is not the YAML of a kubeconfig"));
        let text = std::fs::read_to_string(&path).unwrap().replace("[1, two]", "['1', two]");
        std::fs::write(&path, text).unwrap();
        let file = read(&path).unwrap();
        let dir = std::env::temp_dir();
        assert_eq!(file.current_context.as_deref(), Some("a"));
        assert_eq!(file.contexts.len(), 1);
        let authority = file.clusters[0].cluster.as_ref().unwrap().certificate_authority.clone();
        assert_eq!(authority.as_deref(), dir.join("pki/ca.crt").to_str());
        let user = file.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!((user.client_certificate.as_deref(), user.client_key.as_deref()), (Some("/etc/u.crt"), None));
        assert_eq!(user.exec.as_ref().unwrap().command.as_deref(), dir.join("./token").to_str());
        assert_eq!(file.auth_infos[1].auth_info.as_ref().unwrap().exec.as_ref().unwrap().command.as_deref(), Some("aws"));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_wrong_has_its_place_and_no_secret() {
        let path = written("wrong", "users:\n- name: u\n  user: {token: s3cret}}\n");
        assert_eq!(read(&path).unwrap_err(), "it is not the YAML of a kubeconfig: line 3, column 24");
        std::fs::write(&path, "users: [{name: u, user: {token: [s3cret]}}]").unwrap();
        assert_eq!(read(&path).unwrap_err(), "it is not the YAML of a kubeconfig");
        std::fs::write(&path, "").unwrap();
        assert!(read(&path).unwrap().current_context.is_none());
        std::fs::remove_file(&path).unwrap();
        assert!(read(&path).unwrap_err().contains("No such file"));
    }
}
