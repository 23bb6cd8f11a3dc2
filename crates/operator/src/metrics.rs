//! What is counted, and how Prometheus reads it (text format 0.0.4).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ledger::{Step, Tally, Violation};
use pool::Family;

use crate::ports;

/// A number of a pool and family: its name, what it is, and how it is read.
type Gauge = (&'static str, &'static str, fn(&Tally) -> u64);

/// What is counted since the start, and how it is now.
#[derive(Default)]
pub(crate) struct Metrics(Mutex<Numbers>, OnceLock<Arc<ports::Numbers>>);

#[derive(Default)]
struct Numbers {
    tallies: BTreeMap<(String, Family), Tally>,
    /// By verb, kind and what came of it.
    writes: BTreeMap<(&'static str, &'static str, &'static str), u64>,
    watch_failures: u64,
    violations: u64,
    leading: bool,
    steps: u64,
}

// === impl Metrics ===

impl Metrics {
    fn change(&self, change: impl FnOnce(&mut Numbers)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Shows the numbers of ports, too.
    pub(crate) fn add(&self, ports: Arc<ports::Numbers>) {
        drop(self.1.set(ports));
    }

    pub(crate) fn step(&self, step: &Step) {
        self.change(|n| {
            n.tallies = step.tallies.clone();
            n.steps += 1;
        });
    }

    pub(crate) fn wrote(&self, verb: &'static str, kind: &'static str, result: &'static str) {
        self.change(|n| *n.writes.entry((verb, kind, result)).or_default() += 1);
    }

    pub(crate) fn watch_failed(&self) {
        self.change(|n| n.watch_failures += 1);
    }

    pub(crate) fn audited(&self, found: &[Violation]) {
        self.change(|n| n.violations = found.len() as u64);
    }

    pub(crate) fn leads(&self, leading: bool) {
        self.change(|n| n.leading = leading);
    }

    /// All of it, for `/metrics`.
    pub(crate) fn text(&self) -> String {
        let n = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        let gauges: [Gauge; 7] = [
            ("netloom_operator_ipam_blocks_needed", "Blocks that nodes need and do not have.", |t| t.needed.saturating_sub(t.served)),
            ("netloom_operator_ipam_blocks_granted", "Blocks that nodes have.", |t| t.granted),
            ("netloom_operator_ipam_exhausted", "1 if the pool has too few blocks for its nodes.", |t| {
                u64::from(t.needed > t.served || t.short_addresses.1 > 0)
            }),
            ("netloom_operator_ipam_nodes_full", "Nodes whose objects have the maximum number of blocks.", |t| t.full),
            ("netloom_operator_ipam_nodes_in_deficit", "Nodes that need more blocks.", |t| t.in_deficit),
            ("netloom_operator_ipam_nodes_asked", "Nodes asked to return unused blocks for waiting pods of other nodes.", |t| t.asked),
            ("netloom_operator_ipam_nodes_at_capacity", "Nodes that have the maximum that one node may have.", |t| t.at_capacity),
        ];
        for (name, help, value) in gauges {
            head(&mut out, name, "gauge", help);
            for ((pool, family), tally) in &n.tallies {
                let family = family.to_string().to_lowercase();
                out += &format!("{name}{{pool=\"{}\",family=\"{family}\"}} {}\n", label(pool), value(tally));
            }
        }
        let name = "netloom_operator_writes_total";
        head(&mut out, name, "counter", "Writes by verb, kind and result: done, conflict or failed.");
        for ((verb, kind, result), count) in &n.writes {
            out += &format!("{name}{{verb=\"{verb}\",kind=\"{kind}\",result=\"{result}\"}} {count}\n");
        }
        let conflicts = n.writes.iter().filter(|((_, kind, result), _)| *kind == "IPLedgerShard" && *result == "conflict");
        let singles = [
            (
                "netloom_operator_ledger_cas_conflicts_total",
                "counter",
                "Writes to the ledger that conflicted with another writer.",
                conflicts.map(|(_, n)| n).sum(),
            ),
            ("netloom_operator_watch_failures_total", "counter", "Lists and watches that failed.", n.watch_failures),
            ("netloom_operator_steps_total", "counter", "Number of reconciliations.", n.steps),
            ("netloom_operator_ipam_violations", "gauge", "Contradictions that the last audit found.", n.violations),
            ("netloom_operator_leading", "gauge", "1 if this operator is the leader, 0 if it stands by.", u64::from(n.leading)),
        ];
        for (name, form, help, value) in singles {
            head(&mut out, name, form, help);
            out += &format!("{name} {value}\n");
        }
        out += &self.1.get().map(|ports| ports.text()).unwrap_or_default();
        out
    }
}

fn head(out: &mut String, name: &str, form: &str, help: &str) {
    *out += &format!("# HELP {name} {help}\n# TYPE {name} {form}\n");
}

fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
