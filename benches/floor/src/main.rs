//! The kernel's floor: the same links, addresses and routes as an attachment has, by bare netlink, and nothing else. It
//! knows every name, index and address beforehand, reads no configuration, keeps no record, and undoes nothing.
//!
//! ```text
//!   floor nothing
//!   floor add NETNS LINK...     LINK: bridge,BRIDGE-INDEX,OUTER-NAME,NAME,A.B.C.D/PREFIX,GATEWAY   the host's end a bridge's port
//!                                     macvlan,PARENT-INDEX,NAME,A.B.C.D/PREFIX
//!   floor del NETNS             all that `add` has made, as one group
//!   floor move NETNS INDEX NAME   a link goes into another namespace, under another name
//!   floor ask SOCKET            carries standard input to a server, and prints its answer: four bytes of length, and as many more
//!   floor peak PROGRAM ARG...   starts a program and tells its peak memory (KiB), as the small process that it is
//! ```
//!
//! With `FLOOR_TRACE=1` it tells how long each step took.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a measurement ends at the first error"
)]

mod message;

use std::fs::File;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Instant;

use message::Messages;
use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// Every link that it makes belongs to this group, in the container.
const GROUP: u32 = 0x666c;

/// The index of the first link in a container: what the kernel gives after `lo`, and what the others are born with.
const FIRST: u32 = 2;

/// What one link is to be.
struct Wanted {
    /// The bridge and the name of the host's end; none is a macvlan.
    outer: Option<String>,
    /// The bridge's, or the parent's, index.
    below: u32,
    name: String,
    address: [u8; 4],
    prefix: u8,
    gateway: Option<[u8; 4]>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut clock = Clock::start();
    match args.as_slice() {
        ["nothing"] => {}
        ["add", netns, links @ ..] => add(netns, &links.iter().map(|l| wanted(l)).collect::<Vec<_>>(), &mut clock),
        ["del", netns] => del(netns, &mut clock),
        ["move", netns, index, name] => hand_over(netns, index.parse().unwrap(), name, &mut clock),
        ["ask", socket] => ask(socket, &mut clock),
        ["peak", program, args @ ..] => {
            let status = Command::new(program).args(args).status().unwrap();
            eprintln!("peak {}", getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss());
            assert!(status.success(), "{status}");
        }
        _ => panic!("floor nothing | add NETNS LINK... | del NETNS | move NETNS INDEX NAME | ask SOCKET | peak PROGRAM ARG..."),
    }
}

fn wanted(text: &str) -> Wanted {
    let parts: Vec<&str> = text.split(',').collect();
    let v4 = |text: &str| text.parse::<Ipv4Addr>().unwrap().octets();
    let (outer, below, name, address, gateway) = match parts.as_slice() {
        ["bridge", below, outer, name, address, gateway] => (Some((*outer).to_owned()), *below, *name, *address, Some(v4(gateway))),
        ["macvlan", below, name, address] => (None, *below, *name, *address, None),
        _ => panic!("{text:?} is no link"),
    };
    let (address, prefix) = address.split_once('/').unwrap();
    Wanted { outer, below: below.parse().unwrap(), name: name.to_owned(), address: v4(address), prefix: prefix.parse().unwrap(), gateway }
}

fn add(netns: &str, links: &[Wanted], clock: &mut Clock) {
    let netns = File::open(netns).unwrap();
    let host = route_socket();
    clock.lap("open");
    let mut messages = Messages::default();
    for (link, index) in links.iter().zip(FIRST..) {
        make(&mut messages, link, index, netns.as_raw_fd() as u32);
    }
    exchange(&host, &messages);
    clock.lap("make the links");
    setns(netns, CloneFlags::CLONE_NEWNET).unwrap();
    let inside = route_socket();
    clock.lap("enter the container");
    let mut messages = Messages::default();
    for (link, index) in links.iter().zip(FIRST..) {
        messages.address(index, link.address, link.prefix);
        messages.up(index);
        if let Some(gateway) = link.gateway {
            messages.default_route(index, gateway);
        }
    }
    exchange(&inside, &messages);
    clock.lap("addresses, up, routes");
}

/// Born with its final name and index, in the container; the host's end a port of the bridge, and up.
fn make(m: &mut Messages, link: &Wanted, index: u32, netns: u32) {
    let message = if link.outer.is_some() { m.new_link(0, true) } else { m.new_link(index, false) };
    let own = |m: &mut Messages| {
        m.attribute(3, format!("{}\0", link.name).as_bytes()); // IFLA_IFNAME
        m.u32(28, netns); // IFLA_NET_NS_FD
        m.u32(27, GROUP); // IFLA_GROUP
    };
    // One queue in each direction. Without this the kernel makes one for each processor, and waits twice until all of them know that it uses
    // one only.
    let queues = |m: &mut Messages| [31, 32].into_iter().for_each(|kind| m.u32(kind, 1)); // IFLA_NUM_TX_QUEUES, IFLA_NUM_RX_QUEUES
    match &link.outer {
        Some(outer) => {
            m.attribute(3, format!("{outer}\0").as_bytes());
            m.u32(10, link.below); // IFLA_MASTER
            queues(m);
            let info = m.nest(18); // IFLA_LINKINFO
            m.attribute(1, b"veth\0"); // IFLA_INFO_KIND
            let (data, peer) = (m.nest(2), m.nest(1)); // IFLA_INFO_DATA, VETH_INFO_PEER
            m.raw(&message::link(index, false));
            own(m);
            queues(m);
            [peer, data, info].into_iter().for_each(|nest| m.unnest(nest));
        }
        None => {
            own(m);
            m.u32(5, link.below); // IFLA_LINK
            let info = m.nest(18);
            m.attribute(1, b"macvlan\0");
            let data = m.nest(2);
            m.u32(1, 4); // IFLA_MACVLAN_MODE: bridge
            [data, info].into_iter().for_each(|nest| m.unnest(nest));
        }
    }
    m.end(message);
}

fn del(netns: &str, clock: &mut Clock) {
    setns(File::open(netns).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
    let inside = route_socket();
    clock.lap("enter the container");
    let mut messages = Messages::default();
    messages.delete_group(GROUP);
    exchange(&inside, &messages);
    clock.lap("delete the group");
}

fn hand_over(netns: &str, index: u32, name: &str, clock: &mut Clock) {
    let netns = File::open(netns).unwrap();
    let host = route_socket();
    clock.lap("open");
    let mut messages = Messages::default();
    let message = messages.change_link(index, false);
    messages.attribute(3, format!("{name}\0").as_bytes()); // IFLA_IFNAME
    messages.u32(28, netns.as_raw_fd() as u32); // IFLA_NET_NS_FD
    messages.end(message);
    exchange(&host, &messages);
    clock.lap("move the link");
}

fn ask(socket: &str, clock: &mut Clock) {
    let mut question = vec![0; 4];
    std::io::stdin().read_to_end(&mut question).unwrap();
    let length = u32::try_from(question.len() - 4).unwrap();
    question[..4].copy_from_slice(&length.to_be_bytes());
    clock.lap("read");
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(&question).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    clock.lap("ask");
    std::io::stdout().write_all(&answer).unwrap();
}

fn route_socket() -> OwnedFd {
    socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute).unwrap()
}

/// Sends all messages in one call and takes every answer, which must be good.
fn exchange(socket: &OwnedFd, messages: &Messages) {
    let (bytes, mut count) = messages.done();
    assert_eq!(send(socket.as_raw_fd(), bytes, MsgFlags::empty()).unwrap(), bytes.len());
    let mut buffer = [0; 4096];
    while count > 0 {
        let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).unwrap();
        let mut rest = &buffer[..length];
        while rest.len() >= 20 {
            let own = u32::from_ne_bytes(rest[..4].try_into().unwrap()) as usize;
            let error = i32::from_ne_bytes(rest[16..20].try_into().unwrap());
            assert_eq!(error, 0, "the kernel refused a message: {}", std::io::Error::from_raw_os_error(-error));
            rest = &rest[own.next_multiple_of(4).min(rest.len())..];
            count -= 1;
        }
    }
}

/// Tells the time of each step, if asked to.
struct Clock(Option<Instant>);

impl Clock {
    fn start() -> Self {
        Clock(std::env::var_os("FLOOR_TRACE").map(|_| Instant::now()))
    }

    fn lap(&mut self, what: &str) {
        if let Some(since) = &mut self.0 {
            eprintln!("{:>6} us  {what}", since.elapsed().as_micros());
            *since = Instant::now();
        }
    }
}
