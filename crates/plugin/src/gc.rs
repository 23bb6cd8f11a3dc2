//! GC beside other programs, which attach containers meanwhile.
//!
//! ```text
//!   others? --known--> collect into a Teardown --> others? --the same, or fewer--> commit
//!                        ^                            |
//!                        '------ somebody new --------'
//! ```
//!
//! What a program has attached after it was asked would look like a left-over. So it is asked once more when it is known what would go, and before
//! anything does. An attachment that its program notes only at the end of ADD, as runtimes do, is not seen before.

use std::collections::BTreeSet;

use cni::{AttachmentId, CniError, Code};

use crate::Teardown;

/// How often it is collected before GC is to be called again.
const ROUNDS: usize = 3;

/// Collects what GC frees. `collect` gets what others have attached, and is called again with an empty [`Teardown`] if they have attached
/// more meanwhile. `known` is what they have said already.
///
/// # Errors
/// Those of `others`, and code 11 if they do not stop attaching; nothing is freed then.
pub fn collect_beside<T>(
    known: Vec<AttachmentId>,
    others: impl Fn() -> Result<Vec<AttachmentId>, CniError>,
    mut collect: impl FnMut(&[AttachmentId], &mut Teardown) -> T,
) -> Result<(T, Teardown), CniError> {
    let mut known = known;
    for _ in 0..ROUNDS {
        let mut teardown = Teardown::new();
        let collected = collect(&known, &mut teardown);
        if teardown.is_empty() {
            return Ok((collected, teardown));
        }
        let now = others()?;
        let before: BTreeSet<&AttachmentId> = known.iter().collect();
        if now.iter().all(|id| before.contains(id)) {
            return Ok((collected, teardown));
        }
        known = now;
    }
    let msg = "other programs attached containers while GC looked for what it may free: nothing was freed, call GC again";
    Err(CniError::new(Code::TRY_AGAIN_LATER, msg))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Stage;

    fn ids(count: usize) -> Vec<AttachmentId> {
        let id = |number| AttachmentId {
            network: "blue".parse().unwrap(),
            container: format!("c{number}").parse().unwrap(),
            ifname: "eth0".parse().unwrap(),
        };
        (0..count).map(id).collect()
    }

    /// An ADD of another program ends between the question and the look: its container is not freed.
    #[test]
    fn what_is_attached_meanwhile_is_kept() {
        let (asked, mut kept) = (Cell::new(0), Vec::new());
        let others = |said: [usize; 3]| {
            let asked = &asked;
            move || Ok(ids(said[asked.replace(asked.get() + 1)]))
        };
        let mut collect = |known: &[AttachmentId], teardown: &mut Teardown| {
            kept.push(known.len());
            teardown.at(Stage::Files, "free the rest", |_| Ok(()));
        };
        assert!(collect_beside(ids(1), others([2, 2, 0]), &mut collect).is_ok());
        // One that goes is no reason to begin again.
        asked.set(0);
        assert!(collect_beside(ids(2), others([1, 0, 0]), &mut collect).is_ok());
        asked.set(0);
        let e = collect_beside(ids(1), others([2, 3, 4]), &mut collect).err().unwrap();
        assert_eq!((e.code, asked.get()), (Code::TRY_AGAIN_LATER, 3));
        let fails = || Err(CniError::new(Code::IO, "cut off"));
        assert_eq!(collect_beside(ids(1), fails, &mut collect).err().unwrap().code, Code::IO);
        // Where nothing would go nobody is asked.
        assert!(collect_beside(ids(1), fails, |_, _| ()).is_ok());
        assert_eq!(kept, [1, 2, 2, 1, 2, 3, 1]);
    }
}
