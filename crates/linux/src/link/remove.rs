//! Links go, one by one or together.

use cni::IfName;
use nix::errno::Errno;
use nix::libc;

use super::{Change, header, set};
use crate::batch::{Batch, BatchError, Request};
use crate::netlink::Netlink;
use crate::uapi::family;
use crate::uapi::link::{IFLA_GROUP, IFLA_IFNAME};
use crate::uapi::rtnetlink::RTM_DELLINK;
use crate::wire::Message;

/// Deletes a link (`ip link del`). A veth takes its other end along, wherever that is. Error: `ENODEV`, it is gone.
///
/// Costs what the kernel needs until no processor uses it any more (an RCU grace period, 10 to 30 ms for a veth):
/// several links are deleted faster by [`Netlink::delete_together`].
pub fn delete(index: u32) -> Request<'static> {
    let message = Message::new(RTM_DELLINK, 0, &header(family::UNSPEC, index, 0, 0));
    Request::new(format!("ip link del dev if{index}"), message)
}

/// Deletes the link of this name (`ip link del dev NAME`). Error: `ENODEV`, there is none.
pub fn delete_by_name(name: &IfName) -> Request<'static> {
    let mut message = Message::new(RTM_DELLINK, 0, &header(family::UNSPEC, 0, 0, 0));
    message.put_str(IFLA_IFNAME, name.as_str());
    Request::new(format!("ip link del dev {name}"), message)
}

/// Deletes all links of a group (`ip link del group`), which takes one grace period for all. Errors: `ENODEV`, there is
/// none; `EOPNOTSUPP`, one of them cannot be deleted, and none was; `EPERM`, group 0.
pub fn delete_group(group: u32) -> Request<'static> {
    let mut message = Message::new(RTM_DELLINK, 0, &header(family::UNSPEC, 0, 0, 0));
    message.put_u32(IFLA_GROUP, group);
    Request::new(format!("ip link del group {group}"), message)
}

impl Netlink {
    /// Deletes links of the socket's namespace at the price of one: they get a group of their own, and that is deleted in
    /// the same send. Links that are gone already are no error.
    ///
    /// Hardware among them (which cannot be deleted) makes the kernel refuse the whole group; the others are then deleted
    /// one by one, and the error names what is left, which is put back into group 0.
    ///
    /// # Errors
    /// [`BatchError`] with each link that is still there.
    pub fn delete_together(&mut self, indexes: &[u32]) -> Result<(), BatchError> {
        let [_, _, ..] = indexes else { return self.delete_each(indexes) };
        let group = unused_group();
        let change = Change { group: Some(group), ..Change::default() };
        let mut batch: Batch<'_> = indexes.iter().map(|index| set(*index, &change).tolerate(Errno::ENODEV)).collect();
        batch.push(delete_group(group).tolerate(Errno::ENODEV).tolerate(Errno::EOPNOTSUPP));
        let replies = self.send(batch);
        match replies.as_deref().map(<[_]>::last) {
            Ok(Some(crate::Reply::Tolerated(Errno::EOPNOTSUPP))) | Err(_) => self.delete_each(indexes),
            Ok(_) => Ok(()),
        }
    }

    fn delete_each(&mut self, indexes: &[u32]) -> Result<(), BatchError> {
        let batch = indexes.iter().map(|index| delete(*index).tolerate(Errno::ENODEV)).collect();
        let result = self.send(batch).map(drop);
        if let Err(e) = &result
            && indexes.len() > 1
        {
            let change = Change { group: Some(0), ..Change::default() };
            let left = e.failures().filter_map(|failure| indexes.get(failure.index));
            // What is reported is that they could not be deleted.
            let _ = self.send(left.map(|index| set(*index, &change)).collect());
        }
        result
    }
}

/// A number from 2^30 to 2^31. Chosen by chance among a billion: to read the groups of all links first would cost more than
/// the deletion saves, and would not keep another program from taking the same one in between.
fn unused_group() -> u32 {
    let mut random = [0_u8; 4];
    // SAFETY: the pointer and length are those of a local array that the call fills.
    let filled = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), libc::GRND_NONBLOCK) };
    let number = if filled == 4 { u32::from_ne_bytes(random) } else { std::process::id() };
    0x4000_0000 | (number & 0x3fff_ffff)
}
