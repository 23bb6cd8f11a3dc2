//! How fast a link sends, and what becomes of what it receives: queueing disciplines, classes and filters (`tc`).
//!
//! ```text
//!   what leaves a link      root qdisc     tbf: all of it at one rate
//!                                          htb: a class at one rate, and what filters lead around it
//!   what a link receives    ingress qdisc  filters, which lead it to another link, an ifb
//! ```
//!
//! What is made goes with its link. Rates are bytes in a second and bursts bytes, as in the kernel, which counts whole Ethernet
//! frames without their checksum (`qdisc_pkt_len`, include/net/sch_generic.h).

mod filter;
mod qdisc;
mod shaper;

pub use filter::{Filter, Key, Protocol, Side, Target, add_filter};
pub use qdisc::{Qdisc, add_ingress, add_root, delete_ingress, delete_root, has_action, has_kind};
pub use shaper::{Bucket, Root, SeenBucket, SeenClass, SeenRoot, Tbf, add_class, add_fifo};

/// Length of `struct tcmsg` (linux/rtnetlink.h).
const TCMSG: usize = 20;

/// Where a number of our own begins: `1:`, as `tc` and others write it.
pub const ROOT: u32 = 0x0001_0000;

/// The ingress qdisc's only handle, `ffff:`.
pub const INGRESS: u32 = 0xffff_0000;

/// `struct tcmsg`.
fn header(index: u32, handle: u32, parent: u32, info: u32) -> [u8; TCMSG] {
    let mut fixed = [0; TCMSG];
    let numbers = [index, handle, parent, info].into_iter().flat_map(u32::to_ne_bytes);
    fixed.iter_mut().skip(4).zip(numbers).for_each(|(to, from)| *to = from);
    fixed
}

/// A handle as `tc` writes it: `1:`, `ffff:fff1`.
fn handle(number: u32) -> String {
    match (number >> 16, number & 0xffff) {
        (major, 0) => format!("{major:x}:"),
        (major, minor) => format!("{major:x}:{minor:x}"),
    }
}
