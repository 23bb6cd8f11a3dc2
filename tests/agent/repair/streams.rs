//! Traffic that goes on, and what of it has come.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use netloom_tests::Host;
use nix::sys::socket::{setsockopt, sockopt};

/// A packet, or a line, each so long.
const PACE: Duration = Duration::from_millis(1);
/// How long the last packet may be on its way.
const PATIENCE: Duration = Duration::from_secs(60);

/// UDP packets with numbers, from one namespace to another, one a millisecond.
pub(crate) struct Packets {
    what: String,
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: UdpSocket,
    /// What the kernel had dropped when they began.
    dropped: u64,
}

/// How many packets this machine's processors have dropped so far, of all namespaces (`/proc/net/softnet_stat`, second column): one that
/// is busy keeps a thousand of them (`net.core.netdev_max_backlog`) for a pair's other end.
fn dropped() -> u64 {
    let lines = std::fs::read_to_string("/proc/net/softnet_stat").unwrap();
    lines.lines().map(|line| u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()).sum()
}

/// A TCP connection on which a byte goes forth and back every millisecond.
pub(crate) struct Echo {
    stop: Arc<AtomicBool>,
    client: JoinHandle<u64>,
    seen: Arc<AtomicU64>,
}

// === impl Packets ===

impl Packets {
    /// From `from` to an address, where a socket of `to` receives.
    pub(crate) fn start(host: &Host, what: &str, from: &str, address: &str, (to, at): (&str, &str)) -> Self {
        let dropped = dropped();
        let receiver = host.within(to, || UdpSocket::bind(at).unwrap());
        // A busy machine's test sleeps for seconds.
        setsockopt(&receiver, sockopt::RcvBufForce, &(256 << 20)).unwrap();
        let sender = host.within(from, || UdpSocket::bind("0.0.0.0:0").unwrap());
        sender.connect(address).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let send = move || {
            let (mut next, mut sent) = (Instant::now(), 0_u64);
            while !stopped.load(Ordering::Relaxed) {
                // A refusal of the one before is told at the next one.
                if sender.send(&sent.to_be_bytes()).is_ok() {
                    sent += 1;
                }
                // What was not sent while the machine stood still is not sent all at once.
                next = next.max(Instant::now() - PACE) + PACE;
                // Sleeps: packets are sent at this pace.
                std::thread::sleep(next.saturating_duration_since(Instant::now()).max(Duration::from_micros(50)));
            }
            sent
        };
        Packets { what: what.to_owned(), stop, sender: std::thread::spawn(send), receiver, dropped }
    }

    /// Ends it: how many packets were sent, and each that has come with its sender's address.
    pub(crate) fn end(self) -> (u64, Vec<(u64, SocketAddr)>) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        self.receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let (mut came, mut packet) = (Vec::new(), [0; 8]);
        let end = Instant::now() + PATIENCE;
        while let Ok((8, from)) = self.receiver.recv_from(&mut packet) {
            came.push((u64::from_be_bytes(packet), from));
            if u64::try_from(came.len()).unwrap() == sent || Instant::now() > end {
                break;
            }
        }
        (sent, came)
    }

    /// Ends it: every packet has come, in order, from this address; but those for which a processor had no room.
    pub(crate) fn expect_all(self, from: &str) {
        let (what, before) = (self.what.clone(), self.dropped);
        let (sent, came) = self.end();
        let no_room = usize::try_from(dropped() - before).unwrap();
        let numbers: Vec<u64> = came.iter().map(|(n, _)| *n).collect();
        let lost: Vec<u64> = (0..sent).filter(|n| numbers.binary_search(n).is_err()).collect();
        assert!(
            sent > 100 && lost.len() <= no_room,
            "{what}: of {sent} packets {} are lost, and all processors had no room for {no_room}: {:?}",
            lost.len(),
            lost.iter().take(20).collect::<Vec<_>>()
        );
        let others: Vec<&SocketAddr> = came.iter().map(|(_, sender)| sender).filter(|sender| sender.ip().to_string() != from).collect();
        assert!(others.is_empty(), "{what}: {} packets came from elsewhere than {from}: {:?}", others.len(), others[0]);
        println!("{what}: {sent} packets, {} of them came", came.len());
    }

    /// Ends it: many packets were sent, and none has come.
    pub(crate) fn expect_none(self) {
        let what = self.what.clone();
        let (sent, came) = self.end();
        assert!(sent > 100 && came.is_empty(), "{what}: of {sent} packets {} came: {:?}", came.len(), came.first());
        println!("{what}: {sent} packets, none of them came");
    }
}

// === impl Echo ===

impl Echo {
    /// From `from` to an address, where a socket of `to` listens.
    pub(crate) fn start(host: &Host, from: &str, address: &str, (to, at): (&str, &str)) -> Self {
        let server = host.within(to, || TcpListener::bind(at).unwrap());
        let address: SocketAddr = address.parse().unwrap();
        let mut client = host.within(from, || TcpStream::connect_timeout(&address, PATIENCE).unwrap());
        let (mut far, _) = server.accept().unwrap();
        [&client, &far].iter().for_each(|end| {
            end.set_nodelay(true).unwrap();
            end.set_read_timeout(Some(PATIENCE)).unwrap();
        });
        std::thread::spawn(move || {
            let mut byte = [0];
            while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
        });
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&seen));
        let talk = move || {
            while !stopped.load(Ordering::Relaxed) {
                client.write_all(b"x").unwrap();
                client.read_exact(&mut [0]).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                // Sleeps: packets are sent at this pace.
                std::thread::sleep(PACE);
            }
            count.load(Ordering::Relaxed)
        };
        Echo { stop, client: std::thread::spawn(talk), seen }
    }

    /// How many bytes have come back so far.
    pub(crate) fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Ends it: the connection has lived all the time.
    pub(crate) fn expect_alive(self) {
        self.stop.store(true, Ordering::Relaxed);
        let echoed = self.client.join().expect("the connection lives");
        assert!(echoed > 50, "{echoed}");
        println!("TCP: {echoed} bytes went forth and back");
    }
}
