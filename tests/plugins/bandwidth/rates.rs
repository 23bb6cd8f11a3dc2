//! How fast a stream is.
//!
//! A limit is an upper bound, so it is judged from both sides by what a busy machine cannot spoil: all that has come since the
//! connection's beginning is no more than the limit allows; and the best of many short windows is nearly all of it. Where the
//! machine itself cannot do more, it is compared with what the same way does without a limit.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use netloom_tests::Host;

use crate::bandwidth::{Scene, both};

/// The bytes of a full Ethernet frame, as the kernel counts them, and what of them a TCP stream carries over IPv4 and IPv6.
const FRAME: f64 = 1514.0;
const PAYLOAD: [f64; 2] = [1448.0, 1428.0];

/// How long a connection, or the next byte, may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Sender {
    Container,
    Host,
}

/// What came, when: seconds since the connection was made, and all bytes until then.
pub(crate) type Arrivals = Vec<(f64, u64)>;

/// A connection from the container to an address of the host's, through which one of them sends until so much has come, or so
/// much time has gone.
pub(crate) fn stream(host: &Host, address: &str, sender: Sender, most: u64, limit: Duration) -> Arrivals {
    let address: IpAddr = address.parse().unwrap();
    let listener = host.within("", || TcpListener::bind((address, 0)).unwrap());
    let to = listener.local_addr().unwrap();
    let inner = host.within("c1", || TcpStream::connect_timeout(&to, PATIENCE).unwrap());
    let outer = listener.accept().unwrap().0;
    let (mut from, mut into) = if sender == Sender::Container { (inner, outer) } else { (outer, inner) };
    into.set_read_timeout(Some(PATIENCE)).unwrap();
    let (sending, begun) = (from.try_clone().unwrap(), Instant::now());
    let arrivals = std::thread::scope(|scope| {
        scope.spawn(move || while from.write_all(&[7; 1 << 16]).is_ok() {});
        let arrivals = arrivals(&mut into, begun, most, limit);
        // Both, or what is still under way keeps the sender waiting; also where something is wrong.
        for end in [&into, &sending] {
            let _ = end.shutdown(Shutdown::Both);
        }
        arrivals
    });
    arrivals.expect("something comes within two minutes")
}

fn arrivals(into: &mut TcpStream, begun: Instant, most: u64, limit: Duration) -> std::io::Result<Arrivals> {
    let (mut arrivals, mut all, mut buffer) = (vec![(0.0, 0)], 0, vec![0; 1 << 20]);
    while all < most && begun.elapsed() < limit {
        all += match into.read(&mut buffer) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(came) => came as u64,
            // A machine that was stopped for a moment; a socket with a timeout tells.
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => 0,
            Err(e) => return Err(e),
        };
        arrivals.push((begun.elapsed().as_secs_f64(), all));
    }
    Ok(arrivals)
}

/// The most that came in a second, over any window of this length.
fn best(arrivals: &Arrivals, window: f64) -> f64 {
    let mut best: f64 = 0.0;
    let mut first = 0;
    for (last, (at, all)) in arrivals.iter().enumerate() {
        while first + 1 < last && at - arrivals[first + 1].0 >= window {
            first += 1;
        }
        let (began, before) = arrivals[first];
        if at - began >= window {
            best = best.max((all - before) as f64 / (at - began));
        }
    }
    best
}

/// Both directions, each in another family.
fn is_met(rate: u64, burst: u64, seconds: f64) {
    let scene = Scene::new();
    let limit = Duration::from_secs_f64(seconds);
    for way in [(Sender::Host, "10.1.0.1", 0), (Sender::Container, "fd00:1::1", 1)] {
        // What the machine can do beside its other work changes from one second to the next: each stream is compared with one right before
        // it. A machine may be too slow to reach the limit once; it never lets more pass.
        let attempt = |_| {
            let free = best(&stream(&scene.host, way.1, way.0, u64::MAX, Duration::from_millis(600)), 0.2) * 8.0;
            let (config, result) = scene.limited(both(rate, burst));
            let found = is_within(&scene.host, way, rate, burst, limit);
            scene.ends(&config, &result);
            (found, free)
        };
        let mut seen = Vec::new();
        let reached = (0..10).map(attempt).inspect(|attempt| seen.push(*attempt)).any(|(found, free)| {
            let possible = (rate as f64).min(free * 0.7);
            found >= possible * 0.95
        });
        assert!(reached, "{:?} sends: {rate} bit/s asked, and not reached in ten streams; (with, without a limit): {seen:.0?}", way.0);
    }
}

/// One stream, of which no more comes than the limit allows: bits a second in its best window.
fn is_within(host: &Host, (sender, address, family): (Sender, &str, usize), rate: u64, burst: u64, limit: Duration) -> f64 {
    let seconds = limit.as_secs_f64();
    let arrivals = stream(host, address, sender, u64::MAX, limit);
    let in_frames = 8.0 * FRAME / PAYLOAD[family];
    let (took, all) = *arrivals.last().unwrap();
    let all = all as f64 * in_frames;
    let allowed = rate as f64 * took + burst as f64;
    // The burst is used up long before.
    let later: Arrivals = arrivals.iter().copied().filter(|(at, _)| *at > seconds / 4.0).collect();
    let found = best(&later, seconds / 4.0) * in_frames;
    println!("{sender:?} sends, {rate} bit/s asked: {found:.0} in the best window, {:.0} on average", all / took);
    assert!(all <= allowed * 1.05, "{sender:?} sends: {all:.0} bits came in {took:.2} s, which is more than {allowed:.0}");
    found
}

#[test]
fn one_megabit_in_a_second() {
    is_met(1_000_000, 200_000, 8.0);
}

#[test]
fn a_hundred_megabits_in_a_second() {
    is_met(100_000_000, 2_000_000, 2.0);
}

#[test]
fn a_gigabit_in_a_second() {
    is_met(1_000_000_000, 8_000_000, 2.0);
}
