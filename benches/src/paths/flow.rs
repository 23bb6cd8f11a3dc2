//! One round of packets from a pod to another one.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::namespace::Namespace;

/// Round trips of a round: the median of so many is its figure.
const TRIPS: usize = 300;
/// How long the stream of a round goes on.
const STREAM: Duration = Duration::from_millis(300);
/// What a write hands over.
const CHUNK: usize = 128 * 1024;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a round has measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    /// The median of UDP round trips.
    pub(super) round_trip: Duration,
    /// What the stream has carried, and in which time.
    pub(super) bytes: u64,
    pub(super) took: Duration,
    /// The processor time of the whole machine meanwhile: the kernel's work on packets is nobody's.
    pub(super) computed: Duration,
}

/// From one pod to the other, whose address this is.
pub(super) fn measure(from: &Namespace, to: &Namespace, address: IpAddr) -> Result<Flow> {
    let round_trip = round_trips(from, to, address)?;
    let listener = to.enter(|| TcpListener::bind((address, 0)).context("listen"))?;
    let at = listener.local_addr().context("listen")?;
    let mut stream = from.enter(|| TcpStream::connect_timeout(&at, PATIENCE).context("connect"))?;
    let (mut far, _) = listener.accept().context("accept")?;
    let reading = thread::spawn(move || -> std::io::Result<u64> {
        let (mut chunk, mut all) = (vec![0; CHUNK], 0);
        loop {
            match far.read(&mut chunk)? {
                0 => return Ok(all),
                read => all += read as u64,
            }
        }
    });
    let (chunk, before, begun) = (vec![0; CHUNK], computed()?, Instant::now());
    while begun.elapsed() < STREAM {
        stream.write_all(&chunk).context("send")?;
    }
    drop(stream);
    let bytes = reading.join().map_err(|_| anyhow!("the reader panicked"))?.context("receive")?;
    Ok(Flow { round_trip, bytes, took: begun.elapsed(), computed: computed()?.saturating_sub(before) })
}

fn round_trips(from: &Namespace, to: &Namespace, address: IpAddr) -> Result<Duration> {
    let server = to.enter(|| UdpSocket::bind((address, 0)).context("listen"))?;
    let at = server.local_addr().context("listen")?;
    let client = from.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).context("a socket"))?;
    [&server, &client].iter().try_for_each(|socket| socket.set_read_timeout(Some(PATIENCE))).context("a socket")?;
    let answering = thread::spawn(move || -> std::io::Result<()> {
        let mut packet = [0; 64];
        for _ in 0..TRIPS {
            let (length, asks) = server.recv_from(&mut packet)?;
            server.send_to(packet.get(..length).unwrap_or_default(), asks)?;
        }
        Ok(())
    });
    let mut times = trips(&client, at)?;
    answering.join().map_err(|_| anyhow!("the answerer panicked"))?.context("answer")?;
    times.sort_unstable();
    times.get(TRIPS / 2).copied().context("no round trip")
}

fn trips(client: &UdpSocket, at: SocketAddr) -> Result<Vec<Duration>> {
    let (mut packet, mut times) = ([0; 64], Vec::with_capacity(TRIPS));
    for _ in 0..TRIPS {
        let begun = Instant::now();
        client.send_to(&packet, at).context("send")?;
        client.recv_from(&mut packet).context("no answer comes back")?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// The processor time of everything on the machine, to a hundredth of a second: all of /proc/stat's first line but idle and iowait.
fn computed() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let ticks = text.lines().next().into_iter().flat_map(|line| line.split_whitespace().skip(1).take(8));
    let busy = ticks.enumerate().filter(|(at, _)| ![3, 4].contains(at)).filter_map(|(_, ticks)| ticks.parse::<u64>().ok());
    Ok(Duration::from_millis(busy.sum::<u64>() * 10))
}
