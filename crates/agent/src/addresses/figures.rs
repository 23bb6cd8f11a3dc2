//! `/metrics`: addresses and requests, as Prometheus reads them (text format 0.0.4).

use std::sync::atomic::Ordering;

use ipam::{CLASSES, Collected, Figures, Times};
use pool::Family;

use crate::Agent;

/// What of a pool's addresses is told, by its state.
type Gauge = (&'static str, fn(&Figures) -> u128);

const PARTS: [Gauge; 6] = [
    ("free", |f| f.free),
    ("reserved", |f| f.reserved),
    ("used", |f| (f.held + f.outside).into()),
    ("cooling", |f| f.cooling.into()),
    ("quarantined", |f| f.quarantined.into()),
    ("frozen", |f| f.frozen),
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
        for (name, help, count) in [
            ("netloom_agent_calls", "Calls in progress.", self.load.busy()),
            ("netloom_agent_calls_waiting", "Calls waiting for a worker.", self.shares.in_line()),
        ] {
            head(&mut out, name, "gauge", help);
            out += &format!("{name} {count}\n");
        }
        if let Some(provided) = &self.provided {
            for (name, help, count) in provided.figures() {
                head(&mut out, name, "gauge", help);
                out += &format!("{name} {count}\n");
            }
        }
        for (name, kind, help, count) in self.tunnel_figures() {
            head(&mut out, name, kind, help);
            out += &format!("{name} {count}\n");
        }
        let Some(addresses) = &self.addresses else { return out };
        let (store, meters) = (&addresses.store, addresses.store.meters());
        let name = "netloom_ipam_add_seconds";
        head(&mut out, name, "histogram", "Time that an ADD took to get its addresses, from the call to the disk.");
        for (result, times) in [("granted", &meters.granted), ("refused", &meters.refused)] {
            histogram(&mut out, name, &format!("result=\"{result}\""), times);
        }
        let others = [
            ("netloom_ipam_lock_seconds", "Part of that time spent waiting for other users of the store.", &meters.locked),
            ("netloom_ipam_wait_seconds", "Part of that time spent waiting in the queue for addresses.", &meters.waited),
            ("netloom_ipam_store_fsync_seconds", "Part of that time spent waiting for the disk.", &meters.flushed),
            (
                "netloom_ipam_refill_seconds",
                "Time that this node needed more addresses of its cluster's pools than it had.",
                &meters.refilled,
            ),
        ];
        for (name, help, times) in others {
            head(&mut out, name, "histogram", help);
            histogram(&mut out, name, "", times);
        }
        head(&mut out, "netloom_ipam_add_waiting", "gauge", "ADDs waiting for addresses.");
        out += &format!("netloom_ipam_add_waiting {}\n", store.waiting());
        head(&mut out, "netloom_ipam_restore_seconds", "gauge", "Time to read the journal at the start.");
        out += &format!("netloom_ipam_restore_seconds {:.6}\n", addresses.restored.as_secs_f64());
        head(
            &mut out,
            "netloom_ipam_conflicts_total",
            "counter",
            "Addresses that another machine used when they were to be set, or was seen with.",
        );
        out += &format!("netloom_ipam_conflicts_total {}\n", meters.conflicts.load(Ordering::Relaxed));
        let name = "netloom_ipam_gc_released_total";
        head(&mut out, name, "counter", "Leases that were released without a DEL, by how that was detected.");
        let Collected { restart, gc, orphan } = &meters.collected;
        for (reason, count) in [("restart", restart), ("gc", gc), ("orphan", orphan)] {
            out += &format!("{name}{{reason=\"{reason}\"}} {}\n", count.load(Ordering::Relaxed));
        }
        let name = "netloom_ipam_addresses";
        head(&mut out, name, "gauge", "Addresses of this node's blocks by pool, family and state.");
        let now = store.now();
        store.look(|all| {
            for pool in all.every_pool() {
                for family in Family::ALL.into_iter().filter(|family| all.blocks(pool, *family).next().is_some()) {
                    let figures = Figures::of(all, &now, pool, family);
                    let waiting = ("waiting", u128::from(all.usage(pool, family).waiting));
                    let family = family.to_string().to_lowercase();
                    for (state, count) in PARTS.into_iter().map(|(state, of)| (state, of(&figures))).chain([waiting]) {
                        out += &format!("{name}{{pool=\"{}\",family=\"{family}\",state=\"{state}\"}} {count}\n", label(pool));
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
