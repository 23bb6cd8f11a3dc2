//! An address of a claim that another node may have at the same time is for those of the claim's pods that say that they migrate, and for
//! nobody else. They ask for it in the same words, so that neither kind gets what is for the other one.

/// In front of the claim's name. No claim is named so: no name has a blank.
const MIGRATING: &str = "migrating pods of ";

/// What [`Block::claim`](crate::Block::claim) and [`Ask::claim`](crate::Ask::claim) say where only pods of that claim are meant that
/// migrate.
#[must_use]
pub fn migrating(claim: &str) -> String {
    format!("{MIGRATING}{claim}")
}

/// The claim of which only such pods are meant; `None`: anybody else is.
#[must_use]
pub fn migrating_of(owner: &str) -> Option<&str> {
    owner.strip_prefix(MIGRATING)
}
