//! How fast a path is: datagrams to and fro for its latency, and as many bytes over TCP as it takes.
//!
//! ```text
//!   latency     NUMBER over UDP to the port of probes, which answers each
//!   throughput  bytes over TCP to the sink's port; at the end of them the sink says how many it got
//! ```

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use linux::Inside;
use serde::{Deserialize, Serialize};
use verify::{PORT, SINK};

use crate::client::{self, AskError};
use crate::server::{ListenError, Transport};

/// Datagrams of a measurement.
pub(crate) const DATAGRAMS: u32 = 500;
/// Bytes that are written at a time.
const BLOCK: usize = 256 << 10;
/// How many connections a sink takes bytes of at a time.
const AT_A_TIME: usize = 4;
/// How long it takes at most until a sink sees that it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// What takes bytes, in one namespace.
#[derive(Debug)]
pub struct Sink(TcpListener);

/// How fast a path is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Speed {
    /// What half of the datagrams took to and fro at most.
    pub p50: Duration,
    /// The same of nine tenths.
    pub p90: Duration,
    /// The same of 99 in a hundred.
    pub p99: Duration,
    /// The datagrams that did not come back.
    pub lost: usize,
    /// Bits in a second over one TCP connection.
    pub bits_per_second: u64,
}

/// How long datagrams took to the destination and back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Latency {
    /// Each of those that came back, the shortest first.
    sorted: Vec<Duration>,
    /// How many did not.
    lost: usize,
}

// === impl Sink ===

impl Sink {
    /// Opens the sink's port of the namespace where the caller is. `name` is whose it is, for a message.
    ///
    /// # Errors
    /// [`ListenError`]
    pub fn open(_: &Inside, name: &str) -> Result<Self, ListenError> {
        let open = |any: IpAddr| TcpListener::bind(SocketAddr::new(any, SINK));
        let listener = open(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| open(Ipv4Addr::UNSPECIFIED.into()));
        let opened = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
        let failed = |e: std::io::Error| ListenError { name: name.to_owned(), transport: Transport::Tcp, port: SINK, why: e.to_string() };
        opened.map(Sink).map_err(failed)
    }

    /// Takes the bytes of connections, a few at a time, until it is to end: one that waited for another one's end would seem to get nothing.
    pub fn swallow(&self, end: &AtomicBool) {
        let open = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            while !end.load(Ordering::Relaxed) {
                let next = if open.load(Ordering::Relaxed) < AT_A_TIME { self.0.accept().ok() } else { None };
                let Some((connection, _)) = next else {
                    // Sleeps: nothing tells of a connection and of the end at once, and a look costs nothing.
                    std::thread::sleep(LOOK);
                    continue;
                };
                open.fetch_add(1, Ordering::Relaxed);
                let open = &open;
                scope.spawn(move || {
                    // Who asked sees how it ended.
                    drop(count(connection));
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
    }
}

/// Reads a connection to its end, and says how many bytes it had.
fn count(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(Duration::from_secs(60)))?;
    let (mut block, mut all) = (vec![0; BLOCK], 0_u64);
    loop {
        match connection.read(&mut block)? {
            0 => break,
            got => all += got as u64,
        }
    }
    connection.write_all(&all.to_be_bytes())
}

/// Measures the path to an address whose port of probes answers and whose sink takes bytes. They are sent for `time`; an answer is waited for
/// `patience`.
///
/// # Errors
/// [`AskError`]
pub fn speed(inside: &Inside, to: IpAddr, (time, patience): (Duration, Duration)) -> Result<Speed, AskError> {
    let latency = latency(inside, to, DATAGRAMS, patience)?;
    let bytes = throughput(inside, to, time, patience)?;
    let [p50, p90, p99] = [50, 90, 99].map(|percent| latency.percentile(percent));
    Ok(Speed { p50, p90, p99, lost: latency.lost, bits_per_second: (bytes * 8.0) as u64 })
}

/// Sends bytes to a sink for so long, and says how many got there in a second.
fn throughput(_: &Inside, to: IpAddr, time: Duration, patience: Duration) -> Result<f64, AskError> {
    let failed = |e: std::io::Error| AskError::Failed(format!("send to {to} port {SINK}: {e}"));
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(to, SINK), patience).map_err(failed)?;
    stream.set_write_timeout(Some(patience)).map_err(failed)?;
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    let (block, began) = (vec![0_u8; BLOCK], Instant::now());
    while began.elapsed() < time {
        stream.write_all(&block).map_err(failed)?;
    }
    stream.shutdown(Shutdown::Write).map_err(failed)?;
    let mut all = [0; 8];
    stream.read_exact(&mut all).map_err(failed)?;
    let bytes = u64::from_be_bytes(all) as f64;
    Ok(bytes / began.elapsed().as_secs_f64())
}

/// How long a rate must hold to be one: a machine that stands still for a moment has none.
const SPAN: Duration = Duration::from_secs(3);
/// How long a write is waited for until the clock is looked at.
const WRITE: Duration = Duration::from_millis(250);
/// Bytes, more than the largest burst of a limit: runtimes' has up to 2^32 bits.
const PAST_BURST: u64 = 1 << 30;

/// How long a rate is waited for until a limit is said not to hold: its burst comes first.
pub const MEASURED: Duration = Duration::from_secs(90);

/// Sends bytes to a sink until so many get through in a second as are expected, and says how many: in the end, if they never do. A limit
/// has a burst, which runtimes make half a gigabyte: what gets through at first says nothing of it. The connection is waited for
/// `connect` long, such a rate `patience`, or until more bytes were sent than any burst has.
///
/// # Errors
/// [`AskError`]
pub fn sustained(
    _: &Inside,
    to: SocketAddr,
    (least, most): (u64, u64),
    (connect, patience): (Duration, Duration),
) -> Result<u64, AskError> {
    let failed = |e: std::io::Error| client::error(&e, patience);
    let began = Instant::now();
    let mut stream = TcpStream::connect_timeout(&to, connect).map_err(|e| client::error(&e, connect))?;
    stream.set_write_timeout(Some(WRITE)).map_err(failed)?;
    let block = vec![0_u8; BLOCK];
    let (mut since, mut bytes, mut before) = (Instant::now(), 0_u64, 0_u64);
    loop {
        match stream.write(&block) {
            Ok(sent) => bytes += sent as u64,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(e) => return Err(failed(e)),
        }
        let span = since.elapsed();
        if span >= SPAN {
            let bits = (bytes as f64 * 8.0 / span.as_secs_f64()) as u64;
            let is_too_fast = bits > most && before > PAST_BURST;
            if (least..=most).contains(&bits) || is_too_fast || began.elapsed() >= patience {
                return Ok(bits);
            }
            (since, before, bytes) = (Instant::now(), before + bytes, 0);
        }
    }
}

/// Sends datagrams to the port of probes, one after the other. It is an error if the first does not come back.
fn latency(_: &Inside, to: IpAddr, count: u32, patience: Duration) -> Result<Latency, AskError> {
    let failed = |e: std::io::Error| AskError::Failed(format!("send to {to} port {PORT}: {e}"));
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).map_err(failed)?;
    socket.connect((to, PORT)).map_err(failed)?;
    socket.set_read_timeout(Some(patience)).map_err(failed)?;
    let mut sorted = Vec::new();
    for number in 0..count {
        let began = Instant::now();
        if let Some(took) = socket.send(format!("{number} ").as_bytes()).ok().and_then(|_| back(&socket, number, began)) {
            sorted.push(took);
        } else if sorted.is_empty() {
            return Err(AskError::Silent(patience));
        }
    }
    sorted.sort_unstable();
    let lost = usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(sorted.len());
    Ok(Latency { sorted, lost })
}

/// How long the answer with this number took.
fn back(socket: &UdpSocket, number: u32, began: Instant) -> Option<Duration> {
    let mut buffer = [0; 512];
    loop {
        let got = socket.recv(&mut buffer).ok()?;
        if buffer.get(..got)?.starts_with(format!("{number} ").as_bytes()) {
            return Some(began.elapsed());
        }
    }
}

// === impl Latency ===

impl Latency {
    /// What so many of a hundred did not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        let at = (self.sorted.len() * percent).div_ceil(100).saturating_sub(1);
        self.sorted.get(at).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let of = |count: u64| Latency { sorted: (1..=count).map(Duration::from_micros).collect(), lost: 0 };
        let all = |latency: &Latency| [50, 90, 99, 100].map(|percent| latency.percentile(percent).as_micros());
        assert_eq!(all(&of(100)), [50, 90, 99, 100]);
        assert_eq!(all(&of(10)), [5, 9, 10, 10]);
        assert_eq!(all(&of(1)), [1; 4]);
        assert_eq!(all(&of(0)), [0; 4]);
    }

    /// A sink counts what it gets, and datagrams come back.
    #[test]
    fn over_the_own_host() {
        let here = Inside::here();
        let sink = Sink::open(&here, "here").unwrap();
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| sink.swallow(&end));
            let patience = Duration::from_secs(60);
            let speed = throughput(&here, Ipv4Addr::LOCALHOST.into(), Duration::from_millis(20), patience);
            end.store(true, Ordering::Relaxed);
            assert!(speed.unwrap() > 1000.0);
        });
    }

    /// A sink that has a connection open takes the bytes of another one.
    #[test]
    fn several_connections_at_a_time() {
        let sink = Sink(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        sink.0.set_nonblocking(true).unwrap();
        let to = sink.0.local_addr().unwrap();
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| sink.swallow(&end));
            let first = TcpStream::connect(to).unwrap();
            let mut second = TcpStream::connect(to).unwrap();
            second.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            second.write_all(&[0; 9]).unwrap();
            second.shutdown(Shutdown::Write).unwrap();
            let mut all = [0; 8];
            let read = second.read_exact(&mut all);
            drop(first);
            end.store(true, Ordering::Relaxed);
            assert_eq!((read.map_err(|e| e.kind()), u64::from_be_bytes(all)), (Ok(()), 9));
        });
    }

    /// A rate that is expected ends a measurement; one that never comes is said in the end.
    #[test]
    fn a_rate_is_waited_for() {
        let here = Inside::here();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let _ = count(connection);
            }
        });
        let (connect, patience) = (Duration::from_secs(60), Duration::from_millis(10));
        // Whatever is sent is too fast, and nothing is too slow.
        assert!(sustained(&here, to, (0, 0), (connect, patience)).unwrap() > 1_000_000);
        assert!(sustained(&here, to, (1, u64::MAX), (connect, Duration::from_secs(600))).unwrap() > 0);
    }
}
