//! The file in which a node says what configurations leave out.

use std::path::Path;

use linux::file::{Links, ReadError, read};

use super::{WHEREABOUTS_FILES, WhereaboutsError, WhereaboutsKeys, wrong};
use crate::shown;

/// More than any such file has.
const MAX_FILE: usize = 1 << 20;

impl WhereaboutsKeys {
    /// These keys, and what the first file that is there says of those that are missing: `configuration_path`, then
    /// [`WHEREABOUTS_FILES`].
    ///
    /// # Errors
    /// A file that is there and cannot be read. Nothing that stands in it is told: whoever wrote the path may not read it.
    pub fn with_flat_file(self) -> Result<Self, WhereaboutsError> {
        let own = Some(self.configuration_path.as_str()).filter(|path| !path.is_empty());
        if let Some(path) = own.filter(|path| !path.starts_with('/')) {
            return Err(wrong("ipam.", "configuration_path", format!("{:?} is not an absolute path", shown(path))));
        }
        for path in own.into_iter().chain(WHEREABOUTS_FILES.iter().copied()) {
            let said = |reason: String| wrong("", path, reason);
            let bytes = match read(Path::new(path), MAX_FILE, Links::Followed) {
                Err(ReadError::NotFound { .. }) => continue,
                Err(e) => return Err(said(e.to_string())),
                Ok(bytes) => bytes,
            };
            let value = json::parse(&bytes).map_err(|_| said("is not JSON".to_owned()))?;
            let keys = json::read::<WhereaboutsKeys>(&value).map_err(|e| said(format!("{:?} has a wrong type", e.path())))?;
            return Ok(self.or(keys));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_is_there() {
        let dir = std::env::temp_dir().join(format!("nl-flat-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("whereabouts.conf").display().to_string();
        let keys = || WhereaboutsKeys { range: "10.0.0.0/24".to_owned(), configuration_path: path.clone(), ..WhereaboutsKeys::default() };
        assert_eq!(keys().with_flat_file().unwrap(), keys(), "there is none");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            keys().with_flat_file().map_err(|e| e.to_string().replace(&path, "FILE"))
        };
        let merged =
            read(r#"{"Range": "10.9.0.0/24", "gateway": "10.0.0.1", "datastore": "kubernetes", "kubernetes": {"kubeconfig": "/x"}}"#)
                .unwrap();
        assert_eq!((merged.range.as_str(), merged.gateway.as_str()), ("10.0.0.0/24", "10.0.0.1"));
        assert_eq!(read("secret").unwrap_err(), "FILE: is not JSON");
        assert_eq!(read(r#"{"exclude": "secret"}"#).unwrap_err(), "FILE: \"exclude\" has a wrong type");
        std::fs::remove_dir_all(&dir).unwrap();
        let relative = WhereaboutsKeys { configuration_path: "../x".to_owned(), ..WhereaboutsKeys::default() };
        assert_eq!(relative.with_flat_file().unwrap_err().to_string(), "ipam.configuration_path: \"../x\" is not an absolute path");
    }
}
