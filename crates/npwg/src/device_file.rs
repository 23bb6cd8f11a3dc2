//! Where a device's information is kept (S66, S67): names below one directory of the node.
//!
//! The directory is `/var/run/k8s.cni.cncf.io/devinfo`, unless whoever calls has another one. What the names are made of
//! was written by others: none of it ever leads out of the directory.

use std::path::PathBuf;

use cni::{ContainerId, IfName};

use crate::problem::shortened;

/// The bytes of a file name at the most (`NAME_MAX`).
const NAME_MAX: usize = 255;

/// A resource or a device that no file can be named after.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFileError {
    /// Empty, or with a character that is none of printable ASCII.
    #[error("{what} {text:?}: expected printable characters without spaces")]
    Characters {
        /// The resource or the device.
        what: &'static str,
        /// What was given.
        text: String,
    },
    /// Together they are longer than a file name can be.
    #[error("resource and device are {0} bytes together, but a file name has room for {max}", max = NAME_MAX - SUFFIX.len() - 1)]
    TooLong(usize),
}

const SUFFIX: &str = "-device.json";

/// The file in which a device plugin tells what it knows of a device (S66): `dp/RESOURCE-DEVICE-device.json`, with `-` for
/// every `/`.
///
/// # Errors
/// [`DeviceFileError`]
pub fn device_plugin_file(resource: &str, device: &str) -> Result<PathBuf, DeviceFileError> {
    for (what, text) in [("resource", resource), ("device", device)] {
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(DeviceFileError::Characters { what, text: shortened(text) });
        }
    }
    let name = format!("{resource}-{device}{SUFFIX}").replace('/', "-");
    match name.len() > NAME_MAX {
        true => Err(DeviceFileError::TooLong(resource.len() + device.len())),
        false => Ok(PathBuf::from("dp").join(name)),
    }
}

/// The file that an attachment's plugins read and write (S67): `cni/CONTAINER@INTERFACE-device.json`. No container ID has
/// an `@`, so no two attachments of a node share one.
pub fn attachment_file(container: &ContainerId, ifname: &IfName) -> PathBuf {
    PathBuf::from("cni").join(format!("{container}@{ifname}{SUFFIX}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Component;

    #[test]
    fn s66_the_device_plugins_file() {
        let path = |resource, device| device_plugin_file(resource, device).map(|p| p.display().to_string());
        assert_eq!(path("intel.com/nic", "0000:18:02.5").unwrap(), "dp/intel.com-nic-0000:18:02.5-device.json");
        assert_eq!(path("a/b/c", "d/e").unwrap(), "dp/a-b-c-d-e-device.json");
        let long = "x".repeat(125);
        for (resource, device, words) in [
            ("", "d", "resource \"\""),
            ("r", "", "device \"\""),
            ("r\0", "d", "printable characters"),
            ("r", "a b", "device \"a b\""),
            ("ä", "d", "resource"),
            (&long, &long, "250 bytes together, but a file name has room for 242"),
        ] {
            let e = path(resource, device).unwrap_err().to_string();
            assert!(e.contains(words), "{resource:?} {device:?}: {e}");
        }
        assert!(path(&long, &long[..117]).is_ok() && path(&long, &long[..118]).is_err());
    }

    #[test]
    fn s66_no_name_leads_out_of_the_directory() {
        for hostile in ["..", ".", "../..", "/etc/passwd", "a/../../../b", "-", "./x"] {
            for path in [device_plugin_file(hostile, "d"), device_plugin_file("r", hostile), device_plugin_file(hostile, hostile)] {
                let path = path.unwrap();
                let parts: Vec<Component<'_>> = path.components().collect();
                assert!(matches!(parts[..], [Component::Normal(dir), Component::Normal(_)] if dir == "dp"), "{hostile}: {path:?}");
            }
        }
    }

    #[test]
    fn s67_every_attachment_has_a_file_of_its_own() {
        let path = |container: &str, ifname: &str| attachment_file(&container.parse().unwrap(), &ifname.parse().unwrap());
        assert_eq!(path("c1", "net1").to_str(), Some("cni/c1@net1-device.json"));
        // What an underscore or a hyphen in between could not tell apart.
        assert_ne!(path("c_a", "b"), path("c", "a_b"));
        assert_ne!(path("c-a", "b"), path("c", "a-b"));
        assert!(path(&"c".repeat(118), "fifteen.bytes_x").file_name().unwrap().len() <= NAME_MAX);
    }
}
