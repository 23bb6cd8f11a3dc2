//! The description of a lab: any file in its place is read or refused, and leads nowhere but to the lab's own.
#![no_main]

use std::cell::OnceCell;
use std::path::{Component, Path};

use lab::{LabName, Labs};
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::Scratch;

thread_local! {
    static SCRATCH: OnceCell<Scratch> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| SCRATCH.with(|scratch| {
    let dir = scratch.get_or_init(|| Scratch::new("lab")).path();
    std::fs::create_dir_all(dir.join("lab")).expect("a directory");
    std::fs::write(dir.join("lab/lab.json"), bytes).expect("room for a description");
    let (labs, name) = (Labs::in_dir(dir.to_owned()), LabName::parse("lab").expect("a good name"));
    match labs.open(&name) {
        Ok(lab) => {
            assert_eq!(lab.name, name);
            assert!(lab.all_netns().iter().all(|path| path.parent() == Some(Path::new("/run/netns"))));
            for node in &lab.nodes {
                let own = lab.dirs(&node.name).addresses;
                let below = own.strip_prefix(dir.join("lab/nodes")).expect("a node's directory is the lab's");
                assert!(below.components().all(|part| matches!(part, Component::Normal(_))), "{}", below.display());
            }
            for pod in &lab.pods {
                let _ = lab.sandbox(pod);
                assert!(lab.pod(&pod.full_name().parse().expect("any text is one")).is_ok() || lab.pods.len() > 1);
            }
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}));
