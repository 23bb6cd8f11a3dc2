//! Many callers at once, on one database.

use std::time::Instant;

use netloom_tests::{Host, Switch, at};
use serde_json::{Value, json};

use super::{network, nobody};

/// Each change counts `next_cfg` up: who waits for exactly its own number misses it.
#[test]
fn a_hundred_ports_from_sixteen_callers() {
    const PORTS: usize = 100;
    const CALLERS: usize = 16;
    let host = Host::new();
    let names: Vec<String> = (0..PORTS).map(|n| format!("c{n}")).collect();
    names.iter().for_each(|name| host.container(name));
    let switch = Switch::start(&host, &["br0"]);
    let config = network(json!({"ipam": null}));
    let all = |verb: &(dyn Fn(&str) + Sync)| {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for first in 0..CALLERS {
                let mine = names.iter().skip(first).step_by(CALLERS);
                scope.spawn(move || mine.for_each(|name| verb(name)));
            }
        });
        begun.elapsed()
    };
    let took = all(&|name| drop(at(&host, name).add(&config)));
    let numbers = switch.vsctl("--bare --columns=ofport list interface");
    let numbers: std::collections::BTreeSet<u32> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    // And the bridge's own.
    assert_eq!((switch.ports("br0").len(), numbers.len()), (PORTS, PORTS + 1));
    let gone = all(&|name| at(&host, name).del(&config, &Value::Null));
    assert_eq!(switch.ports("br0"), nobody());
    eprintln!("{PORTS} ADDs in {took:?}, DELs in {gone:?}");
}
