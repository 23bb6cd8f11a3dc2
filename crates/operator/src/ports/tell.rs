//! What a pod's owner sees: an Event and a line where a pod does not get its ports, each once for each reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use binding::{Pod, Refused};
use cluster::{About, Event, EventKind};

use super::Ports;
use crate::log::Line;

/// What was said of pods, by UID.
#[derive(Debug, Default)]
pub(super) struct EventDedup(BTreeMap<String, String>);

/// Characters of what a KuryrPort says of it: an object has its limit.
const MOST: usize = 1000;

// === impl EventDedup ===

impl EventDedup {
    /// What is new of these problems. What was said of a pod that still waits, or that still has this problem, is not said again.
    pub(super) fn news(&mut self, problems: BTreeMap<String, String>, waits: impl Fn(&String) -> bool) -> Vec<(String, String)> {
        self.0.retain(|uid, _| waits(uid) || problems.contains_key(uid));
        let news = problems.into_iter().filter(|(uid, problem)| {
            let said = without_requests(problem);
            self.0.insert(uid.clone(), said.clone()).is_none_or(|before| before != said)
        });
        news.collect()
    }

    /// The reasons that pods have now, by UID. They do not change when a request is repeated.
    pub(super) fn now(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(uid, said)| (uid.clone(), said.chars().take(MOST).collect())).collect()
    }
}

/// The text without IDs of requests: each attempt has another one.
fn without_requests(text: &str) -> String {
    let mut parts = text.split("req-");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |done, part| done + part.trim_start_matches(|c: char| c.is_ascii_hexdigit() || c == '-'))
}

/// Several reasons as one text; of a port that Neutron has refused, with its own words.
pub(super) fn problem<'a>(refused: &[Refused], words: impl Fn(usize) -> Option<&'a str>) -> String {
    let one = |refused: &Refused| match refused {
        Refused::Port { number, .. } => words(*number).map_or_else(|| refused.to_string(), |words| format!("{refused}: {words}")),
        other => other.to_string(),
    };
    refused.iter().map(one).collect::<Vec<_>>().join("; ")
}

// === impl Ports ===

impl Ports {
    /// Says it once, and waits for nobody. An Event that is not written is not written: the log has the same.
    pub(super) fn tell(&self, uid: String, pod: &Pod, problem: String) {
        let (name, client, identity, telling) = (pod.name.clone(), self.client.clone(), self.identity.clone(), Arc::clone(&self.telling));
        Line::warn("port").with("pod", format!("{}/{}", name.namespace, name.name)).with("error", &problem).with("now", "retrying").end();
        tokio::spawn(async move {
            // It is never closed.
            let _place = telling.acquire().await;
            let regarding = About { api_version: "v1", kind: "Pod", namespace: &name.namespace, name: &name.name, uid: &uid };
            let (controller, instance, action) = (cluster::OPERATOR_CONTROLLER, identity.as_str(), "MakePorts");
            let (kind, reason) = (EventKind::Warning, "NeutronPortsFailed");
            Event { controller, instance, action, kind, reason, message: &problem, regarding }.tell(&client).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_is_said_once() {
        let mut told = EventDedup::default();
        let of =
            |texts: &[(&str, &str)]| texts.iter().map(|(uid, text)| ((*uid).to_owned(), (*text).to_owned())).collect::<BTreeMap<_, _>>();
        let mut news =
            |texts: &[(&str, &str)], waits: bool| told.news(of(texts), |_| waits).into_iter().map(|(uid, _)| uid).collect::<Vec<_>>();
        assert_eq!(news(&[("a", "full (req-1a)")], true), ["a"]);
        assert_eq!(news(&[("a", "full (req-2b-3c)"), ("b", "full")], true), ["b"]);
        assert_eq!(news(&[], true), Vec::<String>::new());
        assert_eq!(news(&[("a", "full (req-4d)"), ("b", "quota")], true), ["b"]);
        assert_eq!(news(&[("a", "full (req-5)")], false), [""; 0], "it has its ports, and the same problem");
        assert_eq!(news(&[], false), [""; 0]);
        assert_eq!(news(&[("a", "full (req-6)")], true), ["a"], "it had none meanwhile");
        let port = Refused::Port { number: 2, interface: "eth2".to_owned(), place: "s".to_owned() };
        let text = problem(&[port, Refused::NoSubnet("x".to_owned())], |number| (number == 2).then_some("No more IP addresses"));
        assert!(text.starts_with("Neutron refuses the port of eth2 in s: No more IP addresses; subnet x"), "{text}");
    }
}
