//! Characters that carry meaning on a terminal, in Unicode or ASCII.

use crate::topology::Interface;

use super::scene::Scene;

/// The characters.
pub(super) struct Signs {
    /// Whether they are Unicode.
    pub(super) unicode: bool,
    /// Stands for text left out.
    pub(super) ellipsis: char,
    /// Marks a pod that failed.
    pub(super) failed: char,
    default: char,
    other: char,
    default_down: char,
    other_down: char,
}

// === impl Signs ===

impl Signs {
    pub(super) fn new(unicode: bool) -> Self {
        if unicode {
            Signs { unicode, ellipsis: '…', failed: '✗', default: '◆', other: '●', default_down: '◇', other_down: '○' }
        } else {
            Signs { unicode, ellipsis: '~', failed: '!', default: '*', other: '+', default_down: 'x', other_down: '-' }
        }
    }

    /// The sign of an interface: whether it is the default network's, and whether it is up.
    pub(super) fn of(&self, interface: &Interface) -> char {
        match (interface.default, interface.up) {
            (true, true) => self.default,
            (false, true) => self.other,
            (true, false) => self.default_down,
            (false, false) => self.other_down,
        }
    }

    /// What the signs that occur mean.
    pub(super) fn legend(&self, scene: &Scene) -> String {
        let mut parts = Vec::new();
        let interfaces = || scene.nodes().iter().flat_map(|node| &node.pods).flat_map(|pod| &pod.interfaces);
        let meanings = [
            (true, true, "default network"),
            (false, true, "other network"),
            (true, false, "default network, down"),
            (false, false, "other network, down"),
        ];
        for (default, up, meaning) in meanings {
            if let Some(one) = interfaces().find(|one| (one.default, one.up) == (default, up)) {
                parts.push(format!("{} {meaning}", self.of(one)));
            }
        }
        parts.join("   ")
    }
}
