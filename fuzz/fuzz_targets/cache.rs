//! The result cache, whose files any libcni may have written.
#![no_main]

use std::cell::OnceCell;

use chain::{Cache, MadeBy, Runtime};
use cni::{AttachmentId, NetworkList};
use libfuzzer_sys::fuzz_target;
use netloom_fuzz::Scratch;

thread_local! {
    static SCRATCH: OnceCell<Scratch> = const { OnceCell::new() };
}

fuzz_target!(|bytes: &[u8]| SCRATCH.with(|scratch| {
    let dir = scratch.get_or_init(|| Scratch::new("cache")).path();
    let cache = Cache::new(dir);
    cache.prepare().expect("a directory for results");
    let id = AttachmentId {
        network: "net".parse().expect("a good name"),
        container: "pod".parse().expect("a good ID"),
        ifname: "eth0".parse().expect("a good name"),
    };
    std::fs::write(cache.path(&id), bytes).expect("room for a result");
    let (all, unread) = cache.of_network(&id.network);
    assert!(unread.is_empty(), "{unread:?}");
    assert!(all.iter().all(|cached| cached.id.network == id.network));
    let Some(cached) = cache.read(&id).expect("a file that can be read") else { return };
    assert_eq!(cached.id, id);
    let (Ok(list), Some(result)) = (NetworkList::parse(&cached.config, None), &cached.result) else { return };
    let runtime = Runtime {
        container: id.container.clone(),
        ifname: id.ifname.clone(),
        netns: Some(cached.netns.clone().into()),
        args: cached.args.clone(),
        capability_args: cached.capability_args.clone(),
    };
    if cache.write(&id, &list, &runtime, result, &MadeBy::default()).is_ok() {
        let again = cache.read(&id).expect("a file that can be read").expect("what was written is read");
        assert_eq!((&again.config, &again.args, &again.netns), (&list.source, &cached.args, &cached.netns));
        assert_eq!(again.capability_args, cached.capability_args);
        let text = |result: Option<&cni::AddResult>| result.map(|r| r.print(list.version));
        assert_eq!(text(again.result.as_ref()), text(Some(result)));
    }
}));
