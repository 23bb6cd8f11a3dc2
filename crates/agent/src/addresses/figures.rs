//! `/metrics`: addresses and requests, as Prometheus reads them (text format 0.0.4).

use std::sync::atomic::Ordering;

use ipam::{CLASSES, Times};
use pool::{Family, State, Usage};

use crate::Agent;

/// What of a pool's addresses is told, by its state.
type Part = (&'static str, fn(&Usage) -> u128);

const PARTS: [Part; 6] = [
    ("free", |u| u.granted.saturating_sub(u.frozen).saturating_sub((u.held + u.cooling + u.quarantined).into())),
    ("used", |u| u.held.into()),
    ("cooling", |u| u.cooling.into()),
    ("quarantined", |u| u.quarantined.into()),
    ("frozen", |u| u.frozen),
    ("waiting", |u| u.waiting.into()),
];

impl Agent {
    /// All of it.
    pub(crate) fn figures(&self) -> String {
        let mut out = String::new();
        let name = "netloom_agent_api_requests_total";
        head(&mut out, name, "counter", "Requests to the API server by verb and resource.");
        for ((verb, resource), count) in self.cluster.requests() {
            out += &format!("{name}{{verb=\"{verb}\",resource=\"{resource}\"}} {count}\n");
        }
        let Some(addresses) = &self.addresses else { return out };
        let (store, meters) = (&addresses.store, addresses.store.meters());
        let name = "netloom_ipam_add_seconds";
        head(&mut out, name, "histogram", "How long an ADD took for its addresses, from the call to the disk.");
        for (result, times) in [("granted", &meters.granted), ("refused", &meters.refused)] {
            histogram(&mut out, name, &format!("result=\"{result}\""), times);
        }
        let others = [
            ("netloom_ipam_wait_seconds", "What of that was waiting in line, where it waited.", &meters.waited),
            ("netloom_ipam_store_fsync_seconds", "What of that was waiting for the disk.", &meters.flushed),
        ];
        for (name, help, times) in others {
            head(&mut out, name, "histogram", help);
            histogram(&mut out, name, "", times);
        }
        head(&mut out, "netloom_ipam_add_waiting", "gauge", "ADDs that wait for addresses.");
        out += &format!("netloom_ipam_add_waiting {}\n", store.waiting());
        head(&mut out, "netloom_ipam_restore_seconds", "gauge", "How long it took to read the journal at the start.");
        out += &format!("netloom_ipam_restore_seconds {:.6}\n", addresses.restored.as_secs_f64());
        head(&mut out, "netloom_ipam_conflicts_total", "counter", "Addresses that another machine had when they were to be set.");
        out += &format!("netloom_ipam_conflicts_total {}\n", meters.conflicts.load(Ordering::Relaxed));
        let name = "netloom_ipam_addresses";
        head(&mut out, name, "gauge", "Addresses of this node's blocks by pool, family and state.");
        store.settle();
        store.look(|all| {
            for pool in all.every_pool() {
                for family in Family::ALL.into_iter().filter(|family| all.blocks(pool, *family).next().is_some()) {
                    let mut usage = all.usage(pool, family);
                    // Those of a block that is nobody's any more are not free.
                    let gone = all.blocks(pool, family).filter(|(_, state)| *state == State::Withdrawn);
                    usage.granted = gone.fold(usage.granted, |left, (block, _)| left.saturating_sub(block.run.count()));
                    let family = family.to_string().to_lowercase();
                    for (state, of) in PARTS {
                        out += &format!("{name}{{pool=\"{}\",family=\"{family}\",state=\"{state}\"}} {}\n", label(pool), of(&usage));
                    }
                }
            }
        });
        out
    }
}

fn head(out: &mut String, name: &str, form: &str, help: &str) {
    *out += &format!("# HELP {name} {help}\n# TYPE {name} {form}\n");
}

fn histogram(out: &mut String, name: &str, labels: &str, times: &Times) {
    let (upto, micros) = times.read();
    let ends = CLASSES.iter().map(|end| (*end as f64 / 1e6).to_string()).chain(["+Inf".to_owned()]);
    let comma = if labels.is_empty() { "" } else { "," };
    for (end, count) in ends.zip(&upto) {
        *out += &format!("{name}_bucket{{{labels}{comma}le=\"{end}\"}} {count}\n");
    }
    let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    *out += &format!("{name}_sum{braced} {:.6}\n{name}_count{braced} {}\n", micros as f64 / 1e6, upto.last().copied().unwrap_or_default());
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
