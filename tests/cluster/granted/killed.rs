//! An agent that is killed while it takes in what it was granted, and while it gives back what it does not need.

use std::collections::BTreeSet;

use netloom_tests::Pod;

use crate::granted::{Cluster, ips, lab};

/// Both steps are made last before anybody hears of them: whoever dies there, the next one goes on, and nobody has what another one has.
#[test]
fn the_agent_dies_when_it_takes_in_and_when_it_gives_back() {
    let cluster = Cluster::new("killed");
    cluster.pool("lab", &lab());
    let node = cluster.node("killed-a");
    let lasting = node.pod("lasting", "");
    let kept: BTreeSet<String> = ips(&lasting.must("ADD")).into_iter().collect();
    for round in 0..2 {
        // What is granted while the agent is away is taken in by the next one, which dies.
        node.kill9();
        node.set("NETLOOM_CRASH_AT", "pool-granted:1");
        node.launch();
        node.until("it dies when it has taken in what was granted", || !node.lives());
        node.set("NETLOOM_CRASH_AT", "");
        node.restart();
        // More than one block has; then they are too many.
        let pods: Vec<Pod<'_>> = (0..12).map(|n| node.pod(&format!("r{round}p{n}"), "")).collect();
        let mut all = kept.clone();
        for pod in &pods {
            ips(&pod.must("ADD")).into_iter().for_each(|ip| assert!(all.insert(ip.clone()), "{ip} twice"));
        }
        assert!(cluster.blocks(&node.name).len() > 2);
        node.kill9();
        node.set("NETLOOM_CRASH_AT", "pool-frozen:1");
        node.launch();
        // Its agent is there when it frees them, or the next one frees them.
        for pod in &pods {
            node.until("its DEL", || pod.del().code == 0);
        }
        node.until("it dies when it has stopped a block", || !node.lives());
        node.set("NETLOOM_CRASH_AT", "");
        node.restart();
        node.until("one block of each family", || cluster.blocks(&node.name).len() == 2);
        lasting.must("CHECK");
    }
    lasting.must("DEL");
}
