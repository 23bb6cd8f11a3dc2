//! A look at all that was read, whether it can be as it is.

use std::time::Duration;

use ledger::{Violation, audit};
use tokio::time::Instant;

use super::Operator;
use crate::check::{Pods, named};
use crate::log::Line;

/// What an audit has found is looked at again after this time.
const SUSPECTED: Duration = Duration::from_secs(5);

// === impl Operator ===

impl Operator {
    /// Sooner where something is to be confirmed.
    pub(super) fn audit_every(&self) -> Duration {
        if self.suspected.is_empty() { self.options.audit_every } else { self.options.audit_every.min(SUSPECTED) }
    }

    pub(super) async fn audit(&mut self) {
        self.audited = Some(Instant::now());
        let now = audit(&self.seen.lock().world);
        let found: Vec<Violation> = now.iter().filter(|violation| self.suspected.contains(violation)).cloned().collect();
        self.suspected = now;
        self.metrics.audited(&found);
        let mut pods = Pods::new();
        for violation in &found {
            let found = named(&self.client, &self.seen, violation, &mut pods).await;
            Line::error("audit").with("found", &found).end();
            if !found.node.is_empty() {
                self.tell_of_node(&found.node, "LedgerViolated", &found.to_string()).await;
            }
        }
    }
}
