//! What an attachment has of the firewall, collected to be put back: somebody may have flushed it.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use cni::CniError;
use linux::nft::SetElement;

use crate::Host;

/// What an attachment has of the firewall, by its configuration and result.
///
/// A plugin fills it ([`Plugin::restore`](crate::Plugin::restore)) and changes nothing itself. Of elements only those that are
/// missing are put back, of many attachments at once; then [`Restore::finish`] does the rest.
#[derive(Default)]
pub struct Restore {
    elements: Vec<SetElement>,
    after: Vec<(Range<usize>, After)>,
    rules: Vec<Rules>,
}

type After = Box<dyn FnOnce(&[SetElement], &mut Host) -> Result<(), CniError>>;

type PutBack = Box<dyn FnOnce(&mut Host, Instant) -> Result<bool, CniError>>;

/// Rules that are no elements.
struct Rules {
    what: String,
    put_back: PutBack,
}

// === impl Restore ===

impl Restore {
    /// The attachment has these elements.
    pub fn elements(&mut self, elements: Vec<SetElement>) {
        self.elements.extend(elements);
    }

    /// The attachment has these elements, and once some of them had to be put back, something is to be done: `then` gets those.
    pub fn elements_then(
        &mut self,
        elements: Vec<SetElement>,
        then: impl FnOnce(&[SetElement], &mut Host) -> Result<(), CniError> + 'static,
    ) {
        let begin = self.elements.len();
        self.elements.extend(elements);
        self.after.push((begin..self.elements.len(), Box::new(then)));
    }

    /// The attachment has rules that are no elements: `put_back` looks for them, puts back what is missing until the given time,
    /// and says whether anything was.
    pub fn rules(&mut self, what: impl Into<String>, put_back: impl FnOnce(&mut Host, Instant) -> Result<bool, CniError> + 'static) {
        self.rules.push(Rules { what: what.into(), put_back: Box::new(put_back) });
    }

    /// Whether the attachment has nothing of the firewall.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty() && self.rules.is_empty()
    }

    /// All elements that the attachment has.
    pub fn wanted(&self) -> &[SetElement] {
        &self.elements
    }

    /// Does what is to be done once `missing`, those of the elements that were missing, are there again: the rules that were put
    /// back as well, and what failed. What fails takes its time from `patience`: others may wait for this one's end, and what
    /// hangs once hangs for everybody.
    pub fn finish(self, missing: &[SetElement], host: &mut Host, patience: &mut Duration) -> (Vec<String>, Vec<CniError>) {
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for (range, then) in self.after {
            let of_it = self.elements.get(range).unwrap_or_default().iter().filter(|e| missing.contains(e));
            let of_it: Vec<SetElement> = of_it.cloned().collect();
            if !of_it.is_empty() {
                failed.extend(then(&of_it, host).err());
            }
        }
        for Rules { what, put_back } in self.rules {
            let begun = Instant::now();
            match put_back(host, begun + *patience) {
                Ok(true) => done.push(what),
                Ok(false) => {}
                Err(e) => {
                    *patience = patience.saturating_sub(begun.elapsed());
                    failed.push(e.within(what));
                }
            }
        }
        (done, failed)
    }
}

impl fmt::Debug for Restore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules: Vec<&str> = self.rules.iter().map(|r| r.what.as_str()).collect();
        f.debug_struct("Restore").field("elements", &self.elements).field("rules", &rules).finish_non_exhaustive()
    }
}
