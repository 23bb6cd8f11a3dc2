//! Who has spoken for which node. An agent that speaks again after another one has spoken lives, and so did the other one: two hosts have
//! one name, or one disk.

use std::collections::{BTreeMap, VecDeque};

use api::AgentIdentity;

/// So many of a node are remembered.
const KEPT: usize = 4;

/// The last ones of each node.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    last: BTreeMap<String, VecDeque<AgentIdentity>>,
    /// What is to be told: the node, and both agents.
    found: BTreeMap<String, [AgentIdentity; 2]>,
}

// === impl Agents ===

impl Agents {
    /// A node's object names this one.
    pub(crate) fn put(&mut self, node: &str, agent: &AgentIdentity) {
        let last = self.last.entry(node.to_owned()).or_default();
        if agent.instance.is_empty() || last.back() == Some(agent) {
            return;
        }
        if last.contains(agent)
            && let Some(other) = last.back()
        {
            self.found.insert(node.to_owned(), [agent.clone(), other.clone()]);
        }
        last.retain(|known| known != agent);
        last.push_back(agent.clone());
        if last.len() > KEPT {
            last.pop_front();
        }
    }

    /// There is no such object any more.
    pub(crate) fn forget(&mut self, node: &str) {
        self.last.remove(node);
    }

    /// What was found since this was called last: nodes, and what there is to say of each.
    pub(crate) fn take(&mut self) -> Vec<(String, String)> {
        let of = |agent: &AgentIdentity| format!("machine {}, boot {}, store {}", agent.machine_id, agent.boot_id, agent.store_id);
        let told = |(node, [a, b]): (String, [AgentIdentity; 2])| {
            let text = format!(
                "two agents report for this node: {} and {}; one of them assigns no addresses: give one of the two hosts another name, \
                    and delete its journal if its disk is a copy",
                of(&a),
                of(&b)
            );
            (node, text)
        };
        std::mem::take(&mut self.found).into_iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(instance: &str) -> AgentIdentity {
        AgentIdentity { instance: instance.to_owned(), ..AgentIdentity::default() }
    }

    #[test]
    fn who_speaks_again_after_another_one() {
        let mut agents = Agents::default();
        // One after the other: that is what restarts look like.
        for instance in ["", "a", "a", "b", "c", "d", "e", "f"] {
            agents.put("n", &agent(instance));
        }
        agents.put("other", &agent("a"));
        assert_eq!(agents.take(), []);
        agents.put("n", &agent("e"));
        assert_eq!(agents.take().iter().map(|(node, _)| node.as_str()).collect::<Vec<_>>(), ["n"]);
        agents.put("n", &agent("e"));
        assert_eq!(agents.take(), []);
        agents.put("n", &agent("f"));
        assert_eq!(agents.take().len(), 1);
    }
}
