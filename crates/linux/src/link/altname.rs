//! A link's further names (Linux 5.5), of up to 127 bytes.

use super::header;
use crate::batch::Request;
use crate::uapi::family;
use crate::uapi::link::{IFLA_ALT_IFNAME, IFLA_PROP_LIST};
use crate::uapi::rtnetlink::{RTM_DELLINKPROP, RTM_NEWLINKPROP};
use crate::wire::{Message, NLA_F_NESTED};

/// Gives a link a further name (`ip link property add dev NAME altname`). Error: `EEXIST`, a link has it.
pub fn add_altname(index: u32, name: &str) -> Request<'static> {
    request(format!("give link {index} the altname {name}"), RTM_NEWLINKPROP, index, name)
}

/// Takes a further name from a link (`ip link property del dev NAME altname`). Error: `ENOENT`, it has no such name.
pub fn remove_altname(index: u32, name: &str) -> Request<'static> {
    request(format!("take the altname {name} from link {index}"), RTM_DELLINKPROP, index, name)
}

fn request(what: String, kind: u16, index: u32, name: &str) -> Request<'static> {
    let mut message = Message::new(kind, 0, &header(family::UNSPEC, index, 0, 0));
    // The kernel insists on the flag (`nlmsg_parse` in `rtnl_linkprop`, net/core/rtnetlink.c).
    message.nest(IFLA_PROP_LIST | NLA_F_NESTED, |list| list.put_str(IFLA_ALT_IFNAME, name));
    Request::new(what, message)
}
