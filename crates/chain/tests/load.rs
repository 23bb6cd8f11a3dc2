//! Configuration directories, by the reference library's rules.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use cni::Version;
use netloom_chain::{from_directory, from_file, load};

struct Dir(PathBuf);

impl Dir {
    fn with(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let dir = std::env::temp_dir().join(format!("nlld-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed)));
        for (name, text) in files {
            let path = dir.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Dir(dir)
    }

    /// The types of the plugins of a network.
    fn types(&self, name: &str) -> Result<Vec<String>, String> {
        let list = load(&self.0, name).map_err(|e| e.to_string())?;
        Ok(list.plugins.iter().map(|p| p.kind.to_string()).collect())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn s10_lists_go_before_single_configurations_and_names_are_inside() {
    let dir = Dir::with(&[
        ("00-a.conf", r#"{"name":"net","type":"single"}"#),
        ("50-b.conflist", r#"{"name":"net","plugins":[{"type":"second"}]}"#),
        ("40-b.conflist", r#"{"name":"net","plugins":[{"type":"first"}]}"#),
        ("99-loopback.conf", r#"{"type":"loopback"}"#),
        ("net.json", r#"{"name":"other","type":"json"}"#),
        ("ignored.txt", "{"),
    ]);
    assert_eq!(dir.types("net").unwrap(), ["first"]);
    assert_eq!(dir.types("other").unwrap(), ["json"]);
    assert!(dir.types("").unwrap_err().contains("no network configuration named"));
}

#[test]
fn plugin_files_beside_a_list_are_appended() {
    let inlined = |flag: &str| format!(r#"{{"name":"net","cniVersion":"1.0.0"{flag},"plugins":[{{"type":"a"}}]}}"#);
    let files = [("net/20.conf", r#"{"type":"c"}"#), ("net/10.conf", r#"{"type":"b"}"#), ("net/x.json", "{")];
    let with = |list: &str| Dir::with(&[&[("1.conflist", list)][..], &files].concat());
    assert_eq!(with(&inlined("")).types("net").unwrap(), ["a", "b", "c"]);
    assert_eq!(with(&inlined(r#","loadOnlyInlinedPlugins":"TRUE""#)).types("net").unwrap(), ["a"]);
    assert_eq!(with(r#"{"name":"net"}"#).types("net").unwrap(), ["b", "c"]);
    let none = Dir::with(&[("1.conflist", r#"{"name":"net"}"#)]);
    assert!(none.types("net").unwrap_err().contains("no plugin configs found"));
}

#[test]
fn a_broken_file_hides_no_other_one() {
    let dir = Dir::with(&[("00.conflist", "{"), ("10.conflist", r#"{"name":"net","plugins":[{"type":"a"}]}"#)]);
    assert_eq!(dir.types("net").unwrap(), ["a"]);
    let e = dir.types("gone").unwrap_err();
    assert!(e.contains("it has net; not readable: ") && e.contains("00.conflist"), "{e}");
}

#[test]
fn what_is_wrong_is_told_with_the_file() {
    let dir = Dir::with(&[("1.conflist", r#"{"name":"net","plugins":[{"type":"../x"}]}"#)]);
    let e = dir.types("net").unwrap_err();
    assert!(e.contains("1.conflist: plugins[0]: invalid plugin type"), "{e}");
    assert!(load(&dir.0.join("nowhere"), "net").unwrap_err().to_string().contains("no network configuration in"));
    assert!(from_file(&dir.0.join("nowhere"), None).unwrap_err().to_string().starts_with("read "));
}

/// A list of no file of its own, with name and version as given, after what gives it a first result; none where there is nothing.
#[test]
fn a_directory_alone_is_a_network() {
    let dir =
        Dir::with(&[("extra/20-b.conf", r#"{"type":"b"}"#), ("extra/10-a.conf", r#"{"type":"a","name":"other"}"#), ("none/x.txt", "")]);
    let list = from_directory(&dir.0, "extra", Version::V1_0_0).unwrap().unwrap();
    let types: Vec<&str> = list.plugins.iter().map(|p| p.kind.as_str()).collect();
    assert_eq!((list.name.as_str(), list.version, types), ("extra", Version::V1_0_0, vec!["passthru", "a", "b"]));
    for empty in ["none", "nowhere"] {
        assert_eq!(from_directory(&dir.0, empty, Version::V1_0_0).unwrap(), None);
    }
}
