//! What is random gets a name by what it belongs to, so that two machines can be compared.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::configurations::case::Case;
use crate::configurations::state::{Raw, list};

/// Random texts, and what stands in their place.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    known: Vec<(String, String)>,
    /// What the configuration says.
    said: String,
}

/// What a hardware address that is made of one of our IPv4 addresses begins with: `10.1.0.` after `0a:58`.
const FROM_IP: &str = "0a:58:0a:01:00:";

// === impl Labels ===

impl Labels {
    /// Names of links that nobody named, and hardware addresses that nobody gave.
    pub(crate) fn of(case: &Case, before: &BTreeMap<&'static str, BTreeSet<String>>, after: &Raw) -> Self {
        let said = case.text();
        let mut labels = Vec::new();
        for place in ["host", "c1"] {
            // `br0.100` is made of the bridge's name, and no random one either.
            let is_said = |name: &str| said.contains(name) || name.split_once('.').is_some_and(|(stem, _)| said.contains(stem));
            let known = |name: &str| before.get(place).is_some_and(|names| names.contains(name)) || is_said(name);
            for link in list(after, place, "link").iter().filter(|l| !known(&name(l))) {
                labels.push((name(link), label(link, place, after)));
            }
        }
        let names = Labels { known: labels, said: said.to_lowercase() };
        let mut macs: Vec<(String, String)> = Vec::new();
        for bridges in [false, true] {
            for place in ["host", "c1"] {
                // A bridge may have the address of one of its ports: it is the port's.
                let links = list(after, place, "link");
                for link in links.iter().filter(|l| (l["linkinfo"]["info_kind"] == "bridge") == bridges) {
                    let mac = link["address"].as_str().unwrap_or_default();
                    if !names.is_said(mac) && !macs.iter().any(|(known, _)| known == mac) {
                        macs.push((mac.to_owned(), format!("MAC of {place} {}", names.text(&name(link)))));
                    }
                }
            }
        }
        Labels { known: [names.known, macs].concat(), said: names.said }
    }

    fn is_said(&self, mac: &str) -> bool {
        mac == "00:00:00:00:00:00" || mac == "ff:ff:ff:ff:ff:ff" || self.said.contains(mac) || mac.starts_with(FROM_IP)
    }

    /// A text with labels for what is random.
    pub(crate) fn text(&self, text: &str) -> String {
        let text = self.known.iter().fold(text.to_owned(), |text, (random, label)| text.replace(random, label));
        // What had an address that nothing has any more.
        let is_mac = |word: &str| word.len() == 17 && word.split(':').all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
        let words: Vec<&str> = text.split(|c: char| !c.is_ascii_hexdigit() && c != ':').filter(|w| is_mac(w)).collect();
        let gone: Vec<String> = words.into_iter().filter(|w| !self.is_said(w)).map(str::to_owned).collect();
        gone.iter().fold(text, |text, mac| text.replace(mac, "an earlier MAC"))
    }

    /// A line in which labels stand, as it is on this machine.
    pub(crate) fn undo(&self, line: &str) -> String {
        self.known.iter().fold(line.to_owned(), |line, (random, label)| line.replace(&format!("<{label}>"), random))
    }

    /// All sections.
    pub(crate) fn apply(&self, raw: &Raw) -> Raw {
        raw.iter().map(|(key, text)| (key.clone(), self.text(text))).collect()
    }
}

fn name(link: &Value) -> String {
    link["ifname"].as_str().unwrap_or_default().to_owned()
}

/// `peer of eth0`: the other end's name, wherever it is.
fn label(link: &Value, place: &'static str, raw: &Raw) -> String {
    if let Some(peer) = link["link"].as_str() {
        return format!("peer of {peer}");
    }
    let other = if place == "host" { "c1" } else { "host" };
    let peers = list(raw, other, "link");
    let peer = peers.iter().find(|p| p["link_index"] == link["ifindex"] && p["ifindex"] == link["link_index"]);
    peer.map_or_else(|| format!("new {}", link["linkinfo"]["info_kind"].as_str().unwrap_or("link")), |p| format!("peer of {}", name(p)))
}
