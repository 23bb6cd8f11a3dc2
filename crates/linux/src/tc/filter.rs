//! Filters by the bits of a packet (net/sched/cls_u32.c), the one classifier that every kernel with shaping has.

use std::fmt::{self, Write as _};

use ipnet::IpNet;
use nix::errno::Errno;

use super::{TCMSG, handle, header};
use crate::batch::Request;
use crate::netlink::{Netlink, ReadError};
use crate::uapi::netlink::{NLM_F_CREATE, NLM_F_EXCL};
use crate::uapi::rtnetlink::*;
use crate::uapi::sched::*;
use crate::wire::{Attributes, Message, NLA_F_NESTED, Received, text, u32_at, with_octets};

/// Length of `struct tc_u32_sel` without its keys, and of `struct tc_u32_key`.
const SELECTOR: usize = 16;
const KEY: usize = 16;

/// A filter: packets of a protocol with these bits go there. Without keys: all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The lowest is asked first. All of one priority have one protocol.
    pub priority: u16,
    /// Of which packets.
    pub protocol: Protocol,
    /// What must hold, all of it.
    pub keys: Vec<Key>,
    /// Where they go.
    pub target: Target,
}

/// What a filter is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// Every frame.
    All,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Another one, by its EtherType.
    Other(u16),
}

/// 32 bits that a packet must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Which of the bits count.
    pub mask: u32,
    /// What they are.
    pub value: u32,
    /// Bytes from the beginning of the network header.
    pub offset: u32,
}

/// Which of a packet's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// Where packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// On, past all other filters.
    Pass,
    /// To this class; the number of the root qdisc itself: past all classes.
    Class(u32),
    /// Out of another link, by its index (`action mirred egress redirect`).
    Redirect(u32),
}

// === impl Protocol ===

impl Protocol {
    fn number(self) -> u16 {
        match self {
            Protocol::All => ETH_P_ALL,
            Protocol::Ipv4 => ETH_P_IP,
            Protocol::Ipv6 => ETH_P_IPV6,
            Protocol::Other(number) => number,
        }
    }
}

impl From<u16> for Protocol {
    fn from(number: u16) -> Self {
        match number {
            ETH_P_ALL => Protocol::All,
            ETH_P_IP => Protocol::Ipv4,
            ETH_P_IPV6 => Protocol::Ipv6,
            other => Protocol::Other(other),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::All => "all",
            Protocol::Ipv4 => "ip",
            Protocol::Ipv6 => "ipv6",
            Protocol::Other(number) => return write!(f, "{number:#x}"),
        })
    }
}

// === impl Filter ===

impl Filter {
    /// Every frame.
    pub fn all(priority: u16, target: Target) -> Self {
        Filter { priority, protocol: Protocol::All, keys: Vec::new(), target }
    }

    /// Packets of which one address is in a network.
    pub fn network(priority: u16, net: IpNet, side: Side, target: Target) -> Self {
        let (protocol, offset) = match (net, side) {
            (IpNet::V4(_), Side::Source) => (Protocol::Ipv4, 12),
            (IpNet::V4(_), Side::Destination) => (Protocol::Ipv4, 16),
            (IpNet::V6(_), Side::Source) => (Protocol::Ipv6, 8),
            (IpNet::V6(_), Side::Destination) => (Protocol::Ipv6, 24),
        };
        let (address, mask) = (words(net.network()), words(net.netmask()));
        let keys = (offset..).step_by(4).zip(address.into_iter().zip(mask)).filter(|(_, (_, mask))| *mask != 0);
        let keys = keys.map(|(offset, (value, mask))| Key { mask, value, offset });
        Filter { priority, protocol, keys: keys.collect(), target }
    }

    fn parse(message: &Received<'_>) -> Option<Self> {
        let (fixed, attributes) = message.payload.split_at_checked(TCMSG)?;
        let info = fixed.get(16..).and_then(u32_at)?;
        let (mut kind, mut options) = (String::new(), None);
        for (attribute, value) in Attributes(attributes) {
            match attribute {
                TCA_KIND => kind = text(value),
                TCA_OPTIONS => options = Some(value),
                _ => {}
            }
        }
        let options = options.filter(|_| kind == "u32")?;
        let find = |wanted| Attributes(options).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
        // What has no selector is a hash table of the classifier's own.
        let keys = keys(find(TCA_U32_SEL)?)?;
        let class = find(TCA_U32_CLASSID).and_then(u32_at).filter(|class| *class != 0);
        let target = match (find(TCA_U32_ACT).and_then(redirected), class) {
            (Some(index), _) => Target::Redirect(index),
            (None, Some(class)) => Target::Class(class),
            (None, None) => Target::Pass,
        };
        let [_, _, low, high] = info.to_be_bytes();
        let protocol = Protocol::from(u16::from_be(u16::from_be_bytes([low, high])));
        Some(Filter { priority: u16::try_from(info >> 16).ok()?, protocol, keys, target })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "protocol {} pref {} u32", self.protocol, self.priority)?;
        if self.keys.is_empty() {
            f.write_str(" match u32 0 0")?;
        }
        for key in &self.keys {
            write!(f, " match u32 {:#x} {:#x} at {}", key.value, key.mask, key.offset)?;
        }
        match self.target {
            Target::Pass => Ok(()),
            Target::Class(class) => write!(f, " flowid {}", handle(class)),
            Target::Redirect(index) => write!(f, " action mirred egress redirect dev if{index}"),
        }
    }
}

/// An address in words of 32 bits.
fn words(address: std::net::IpAddr) -> Vec<u32> {
    with_octets(address, |octets| octets.chunks_exact(4).filter_map(|word| word.first_chunk().copied()).map(u32::from_be_bytes).collect())
}

/// The keys of a selector that says nothing else; of one that means every packet none.
fn keys(selector: &[u8]) -> Option<Vec<Key>> {
    let (_, keys) = selector.split_at_checked(SELECTOR)?;
    let number = |key: &[u8], at: usize| key.get(at..).and_then(|bytes| bytes.first_chunk().copied());
    let key = |key: &[u8]| {
        let [mask, value] = [number(key, 0)?, number(key, 4)?].map(u32::from_be_bytes);
        Some(Key { mask, value, offset: u32::from_ne_bytes(number(key, 8)?) })
    };
    let mut keys = keys.chunks_exact(KEY).map(key).collect::<Option<Vec<Key>>>()?;
    keys.retain(|key| key.mask != 0);
    Some(keys)
}

/// The link that the first action leads to, if that is what it does.
fn redirected(actions: &[u8]) -> Option<u32> {
    let (_, action) = Attributes(actions).next()?;
    let find = |of, wanted| Attributes(of).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    if text(find(action, TCA_ACT_KIND)?) != "mirred" {
        return None;
    }
    // `struct tc_mirred`: five numbers that every action has, what is done, and the link.
    let parms = find(find(action, TCA_ACT_OPTIONS)?, TCA_MIRRED_PARMS)?;
    let number = |at: usize| parms.get(at..).and_then(u32_at);
    (number(20)? == TCA_EGRESS_REDIR).then(|| number(24)).flatten()
}

/// Adds a filter to a qdisc, after those of its priority that are there (`tc filter add dev LINK parent PARENT ...`). Errors:
/// `ENOENT`, the kernel lacks classifier or action; `EINVAL`, there is no such qdisc; `ENODEV`, the link is gone.
pub fn add_filter(index: u32, parent: u32, filter: &Filter) -> Request<'static> {
    let info = u32::from(filter.priority) << 16 | u32::from(filter.protocol.number().to_be());
    let mut message = Message::new(RTM_NEWTFILTER, NLM_F_CREATE | NLM_F_EXCL, &header(index, 0, parent, info));
    message.put_str(TCA_KIND, "u32");
    message.nest(TCA_OPTIONS, |options| {
        if let Target::Class(class) = filter.target {
            options.put_u32(TCA_U32_CLASSID, class);
        }
        if let Target::Redirect(to) = filter.target {
            options.nest(TCA_U32_ACT, |actions| actions.nest(1, |action| write_redirect(to, action)));
        }
        options.put(TCA_U32_SEL, &selector(&filter.keys));
    });
    let mut what = format!("tc filter add dev if{index} parent {} ", handle(parent));
    let _ = write!(what, "{filter}");
    Request::new(what, message)
}

fn selector(keys: &[Key]) -> Vec<u8> {
    let every = [Key { mask: 0, value: 0, offset: 0 }];
    let keys = if keys.is_empty() { &every } else { keys };
    let mut bytes = vec![TC_U32_TERMINAL, 0, u8::try_from(keys.len()).unwrap_or(u8::MAX)];
    bytes.resize(SELECTOR, 0);
    for key in keys {
        bytes.extend([key.mask.to_be_bytes(), key.value.to_be_bytes(), key.offset.to_ne_bytes(), [0; 4]].concat());
    }
    bytes
}

fn write_redirect(to: u32, action: &mut Message) {
    action.put_str(TCA_ACT_KIND, "mirred");
    action.nest(TCA_ACT_OPTIONS | NLA_F_NESTED, |options| {
        let numbers = [0, 0, TC_ACT_STOLEN, 0, 0, TCA_EGRESS_REDIR, to];
        options.put(TCA_MIRRED_PARMS, &numbers.into_iter().flat_map(u32::to_ne_bytes).collect::<Vec<u8>>());
    });
}

impl Netlink {
    /// The filters of a link's qdisc that go by bits, in their order (`tc filter show dev LINK parent PARENT`).
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn filters(&mut self, index: u32, parent: u32) -> Result<Vec<Filter>, ReadError> {
        let question = Message::new(RTM_GETTFILTER, 0, &header(index, 0, parent, 0));
        let filter = |m: &Received<'_>| (m.kind == RTM_NEWTFILTER).then(|| Filter::parse(m)).flatten();
        self.dump("tc filter show", question, &[Errno::ENODEV, Errno::EINVAL], filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Messages;

    #[test]
    fn what_is_written_is_read() {
        for net in ["10.1.0.0/16", "10.1.2.3/32", "fd00::/64", "fd00::7/128", "2001:db8:e000::/35", "0.0.0.0/0"] {
            for (side, target) in
                [(Side::Source, Target::Pass), (Side::Destination, Target::Redirect(7)), (Side::Source, Target::Class(0x10001))]
            {
                let filter = Filter::network(3, net.parse().unwrap(), side, target);
                let request = add_filter(9, super::super::INGRESS, &filter);
                let message = Messages(&request.message).next().unwrap();
                assert_eq!(Filter::parse(&message).as_ref(), Some(&filter), "{}", request.what());
            }
        }
        let all = Filter::all(1, Target::Redirect(7));
        assert_eq!(Filter::parse(&Messages(&add_filter(9, 0xffff_0000, &all).message).next().unwrap()), Some(all));
    }

    #[test]
    fn the_bits_of_a_network() {
        let keys = |net: &str, side| Filter::network(1, net.parse().unwrap(), side, Target::Pass).keys;
        assert_eq!(keys("10.1.0.0/16", Side::Destination), [Key { mask: 0xffff_0000, value: 0x0a01_0000, offset: 16 }]);
        let v6 = keys("2001:db8:e000::/35", Side::Source);
        assert_eq!(v6, [Key { mask: u32::MAX, value: 0x2001_0db8, offset: 8 }, Key { mask: 0xe000_0000, value: 0xe000_0000, offset: 12 }]);
        assert_eq!(keys("::/0", Side::Source), []);
    }
}
