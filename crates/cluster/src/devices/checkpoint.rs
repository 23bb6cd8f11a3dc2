//! The file in which the kubelet keeps what its device plugins gave away: read where it has no podresources socket.
//!
//! Its `DeviceIDs` are a list (kubelet before 1.20), or lists by NUMA node since.

use std::io::ErrorKind;
use std::path::Path;

use json::{Object, Value};

use super::DeviceError;

/// The longest checkpoint that is read, in bytes: it has each device plugin's answers in it.
const MAX_FILE: u64 = 16 << 20;

/// The devices of the pod with this UID, in the file's order. No file, no devices.
pub(super) fn devices(path: &Path, uid: &str) -> Result<Vec<(String, String)>, DeviceError> {
    let failed = |cause: String| DeviceError::Checkpoint { path: path.to_owned(), cause };
    match std::fs::metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e.to_string())),
        Ok(file) if !file.is_file() => return Err(failed("it is not a regular file".to_owned())),
        Ok(file) if file.len() > MAX_FILE => return Err(failed(format!("it has {} bytes, more than {MAX_FILE}", file.len()))),
        Ok(_) => {}
    }
    let bytes = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
    read(&bytes, uid).map_err(failed)
}

fn read(bytes: &[u8], uid: &str) -> Result<Vec<(String, String)>, String> {
    let whole = json::parse_at_most(bytes, MAX_FILE as usize).map_err(|e| e.to_string())?;
    let data = whole.as_object().and_then(|whole| whole.object("Data")).ok_or("it has no Data")?;
    let entries = match data.get("PodDeviceEntries") {
        None => return Ok(Vec::new()),
        Some(list) => list.as_array().ok_or("PodDeviceEntries is not a list")?,
    };
    let mut found = Vec::new();
    for entry in entries.iter().filter_map(Value::as_object).filter(|entry| entry.str("PodUID") == Some(uid)) {
        let resource = entry.str("ResourceName").ok_or("an entry has no ResourceName")?;
        ids(entry, |id| found.push((resource.to_owned(), id.to_owned())))?;
    }
    Ok(found)
}

/// Calls `take` with each ID of an entry.
fn ids(entry: &Object, mut take: impl FnMut(&str)) -> Result<(), String> {
    let mut each = |list: &Value| -> Result<(), String> {
        for id in list.as_array().ok_or("DeviceIDs has no list")? {
            take(id.as_str().ok_or("a device's ID is not a text")?);
        }
        Ok(())
    };
    match entry.get("DeviceIDs") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Object(by_node)) => {
            by_node.iter().filter(|(_, list)| !matches!(list, Value::Null)).try_for_each(|(_, list)| each(list))
        }
        Some(list) => each(list),
    }
}

#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    drop(read(bytes, "u"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by the kubelet's own code (v1.35.4, `pkg/kubelet/cm/devicemanager/checkpoint`) for two pods.
    const BY_NODE: &str = include_str!("../../tests/fixtures/kubelet_internal_checkpoint");

    /// As a kubelet before 1.20 wrote it.
    const LIST: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ContainerName":"c","ResourceName":"r.io/x","DeviceIDs":["b","a"],"AllocResp":""}],"RegisteredDevices":{}},"Checksum":1}"#;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(r, id)| ((*r).to_owned(), (*id).to_owned())).collect()
    }

    #[test]
    fn the_order_is_the_files_and_other_pods_are_left_out() {
        let uid = "11111111-2222-3333-4444-555555555555";
        let wanted = ["0000:03:02.7", "0000:18:02.5", "0000:18:02.1", "0000:03:02.0"].map(|id| ("intel.com/sriov", id));
        assert_eq!(read(BY_NODE.as_bytes(), uid), Ok(pairs(&wanted)));
        assert_eq!(read(LIST.as_bytes(), "u"), Ok(pairs(&[("r.io/x", "b"), ("r.io/x", "a")])));
        assert_eq!(read(BY_NODE.as_bytes(), "u"), Ok(Vec::new()));
        assert_eq!(read(br#"{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}"#, "u"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_checkpoint_is_refused() {
        for bad in ["", "{}", "[]", r#"{"Data":{"PodDeviceEntries":[{"PodUID":"u","ResourceName":"r","DeviceIDs":[7]}]}}"#] {
            assert!(read(bad.as_bytes(), "u").is_err(), "{bad}");
        }
        assert_eq!(devices(Path::new("/nonexistent/checkpoint"), "u"), Ok(Vec::new()));
        let e = devices(Path::new("/"), "u").unwrap_err().to_string();
        assert!(e.contains("not a regular file"), "{e}");
    }
}
