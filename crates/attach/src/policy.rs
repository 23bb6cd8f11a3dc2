//! What definitions may use.

/// What definitions may use. Without a rule: everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<()>,
}

// === impl Policy ===

impl Policy {
    /// Everything is allowed.
    pub const OPEN: Policy = Policy { rules: Vec::new() };
}
