//! What is counted of ports.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use neutron::Sent;

/// What is counted since the start, and how it is now.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By method, resource and status: how many, and how long they took together.
    requests: BTreeMap<(String, String, String), (u64, Duration)>,
    /// Ports of this cluster by status.
    ports: BTreeMap<String, u64>,
    ready: u64,
    waiting: u64,
    refused: u64,
}

// === impl Numbers ===

impl Numbers {
    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn sent(&self, sent: &Sent<'_>) {
        let status = sent.status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        self.change(|n| {
            let (count, took) = n.requests.entry((sent.method.to_string(), sent.resource.to_owned(), status)).or_default();
            (*count, *took) = (*count + 1, *took + sent.took);
        });
    }

    /// How it is now: ports by status, ready ports, pods that wait for theirs, and of these those that are refused.
    pub(crate) fn now(&self, ports: BTreeMap<String, u64>, ready: usize, waiting: usize, refused: usize) {
        self.change(|n| (n.ports, n.ready, n.waiting, n.refused) = (ports, ready as u64, waiting as u64, refused as u64));
    }

    /// All of it, for `/metrics`.
    pub(crate) fn text(&self) -> String {
        let n = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = String::new();
        let mut family = |name: &str, form: &str, help: &str, lines: Vec<String>| {
            out += &format!("# HELP {name} {help}\n# TYPE {name} {form}\n{}", lines.concat());
        };
        let of = |name: &str, value: fn(&(u64, Duration)) -> String| {
            let line = |((method, resource, status), numbers): (&(String, String, String), &(u64, Duration))| {
                format!("{name}{{method=\"{method}\",resource=\"{resource}\",status=\"{status}\"}} {}\n", value(numbers))
            };
            n.requests.iter().map(line).collect::<Vec<_>>()
        };
        let name = "netloom_operator_neutron_requests_total";
        family(
            name,
            "counter",
            "Requests to Neutron by method, resource and status; none: no answer.",
            of(name, |(count, _)| count.to_string()),
        );
        let name = "netloom_operator_neutron_request_seconds_total";
        family(name, "counter", "The time that these requests took, in seconds.", of(name, |(_, took)| took.as_secs_f64().to_string()));
        let name = "netloom_operator_neutron_ports";
        let ports = n.ports.iter().map(|(status, count)| format!("{name}{{status=\"{status}\"}} {count}\n")).collect();
        family(name, "gauge", "Neutron ports of this cluster by status.", ports);
        let name = "netloom_operator_neutron_ready_ports";
        family(name, "gauge", "Ready ports that the next pods can have.", vec![format!("{name} {}\n", n.ready)]);
        let name = "netloom_operator_neutron_pods_waiting";
        family(name, "gauge", "Pods of which not all ports are ACTIVE.", vec![format!("{name} {}\n", n.waiting)]);
        let name = "netloom_operator_neutron_pods_refused";
        family(name, "gauge", "Pods that do not get their ports; Events of these pods show why.", vec![format!("{name} {}\n", n.refused)]);
        out
    }
}
