//! What `iptables-save` prints of a table.

use super::Rule;
use super::text::words;

/// Chains and rules of a table, in order; without counters, which change by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    chains: Vec<String>,
    /// What happens to a packet that no rule of a chain decides on: `ACCEPT`, `DROP`, and `-` of a chain that has none.
    policies: Vec<String>,
    rules: Vec<(String, Rule)>,
}

// === impl Saved ===

impl Saved {
    /// Reads what was printed of one table; nothing is there where it was not printed.
    #[must_use]
    pub fn parse(table: &str, printed: &str) -> Self {
        let (mut chains, mut policies, mut rules) = (Vec::new(), Vec::new(), Vec::new());
        let mut lines = printed.lines().skip_while(|line| line.strip_prefix('*') != Some(table));
        for line in lines.by_ref().skip(1).take_while(|line| *line != "COMMIT") {
            if let Some(chain) = line.strip_prefix(':') {
                let mut words = words(chain).into_iter();
                if let Some(name) = words.next() {
                    chains.push(name);
                    policies.push(words.next().unwrap_or_default());
                }
            } else if let Some((chain, rule)) = line.strip_prefix("-A ").map(|rest| rest.split_once(' ').unwrap_or((rest, ""))) {
                rules.push((chain.to_owned(), Rule::saved(rule)));
            }
        }
        Saved { chains, policies, rules }
    }

    /// Whether there is such a chain.
    #[must_use]
    pub fn has_chain(&self, chain: &str) -> bool {
        self.chains.iter().any(|c| c == chain)
    }

    /// The chains, in order.
    pub fn chains(&self) -> impl Iterator<Item = &str> {
        self.chains.iter().map(String::as_str)
    }

    /// What happens to a packet that no rule of a chain decides on: `ACCEPT` or `DROP`; `-` of a chain that rules jump to.
    #[must_use]
    pub fn policy(&self, chain: &str) -> Option<&str> {
        let at = self.chains.iter().position(|known| known == chain)?;
        self.policies.get(at).map(String::as_str)
    }

    /// The rules of a chain, in order.
    pub fn rules<'a>(&'a self, chain: &'a str) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(move |(of, _)| of == chain).map(|(_, rule)| rule)
    }

    /// Whether a chain has a rule of these words, in this order.
    #[must_use]
    pub fn has(&self, chain: &str, rule: &Rule) -> bool {
        let wanted = rule.words();
        self.rules(chain).any(|rule| rule.words() == wanted)
    }

    /// The rules of all chains that lead to this one, each with its own chain.
    pub fn leading_to<'a>(&'a self, chain: &'a str) -> impl Iterator<Item = (&'a str, &'a Rule)> {
        let named = self.rules.iter().filter(move |(_, rule)| rule.to_string().contains(chain));
        named.filter(move |(_, rule)| rule.target().as_deref() == Some(chain)).map(|(of, rule)| (of.as_str(), rule))
    }
}
