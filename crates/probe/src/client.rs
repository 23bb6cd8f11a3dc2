//! The side that asks.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use linux::{Errno, Family, Inside};

use crate::sctp;
use crate::server::Transport;

/// How long a datagram is waited for before it is sent again.
const AGAIN: Duration = Duration::from_millis(250);
/// The most that is read of an HTTP answer, in bytes.
const LONGEST_BODY: u64 = 64 << 10;
/// The longest answer of a server, in bytes: a name, and an address.
const LONGEST_ANSWER: u64 = 1024;
/// Bytes of a UDP header.
const UDP: usize = 8;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// Where.
    pub to: SocketAddr,
    /// By which protocol.
    pub transport: Transport,
    /// Of UDP: bytes of the packet with its IP header, which is then sent whole; `None`: it does not matter.
    pub size: Option<usize>,
    /// How long an answer is waited for.
    pub patience: Duration,
}

/// Who has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its name.
    pub name: String,
    /// The address that it saw.
    pub seen: IpAddr,
    /// From the question that it answers to the answer.
    pub took: Duration,
}

/// Nobody has answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// Nobody listens on the port.
    #[error("the port is closed")]
    Refused,
    /// Nothing came in time.
    #[error("no answer in {0:?}")]
    Silent(Duration),
    /// The own link takes no packet of this length.
    #[error("the packet is longer than the link's MTU")]
    TooLong,
    /// A router, or the own kernel, says that there is no way.
    #[error("{0}")]
    Unreachable(String),
    /// Something else, such as an answer that is none of this server's.
    #[error("{0}")]
    Failed(String),
}

/// Asks from the namespace where the caller is.
///
/// # Errors
/// [`AskError`]
pub fn ask(_: &Inside, question: &Question) -> Result<Answer, AskError> {
    match question.transport {
        Transport::Tcp | Transport::Sctp => over_stream(question),
        Transport::Udp => over_udp(question),
    }
}

fn over_stream(question: &Question) -> Result<Answer, AskError> {
    let begun = Instant::now();
    let failed = |e: std::io::Error| error(&e, question.patience);
    let mut stream = connected(question, begun).map_err(failed)?;
    let said = read(&mut stream, LONGEST_ANSWER, begun + question.patience).map_err(failed)?;
    answer(&String::from_utf8_lossy(&said), begun.elapsed())
}

/// What comes until the end, a number of bytes or a moment, whichever is first. Nothing by then is an error: whoever answers may send without
/// end, or a byte now and then.
fn read(stream: &mut TcpStream, most: u64, end: Instant) -> std::io::Result<Vec<u8>> {
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    while (said.len() as u64) < most {
        let left = end.saturating_duration_since(Instant::now());
        let got = if left.is_zero() {
            Err(ErrorKind::TimedOut.into())
        } else {
            stream.set_read_timeout(Some(left)).and_then(|()| stream.read(&mut buffer))
        };
        match got {
            Ok(0) => break,
            Ok(got) => said.extend_from_slice(buffer.get(..got).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // What came of it is enough.
            Err(_) if !said.is_empty() => break,
            Err(e) => return Err(e),
        }
    }
    said.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    Ok(said)
}

/// The body that an HTTP server has at a path, the first 64 KiB of it.
pub(crate) fn get(to: SocketAddr, path: &str, patience: Duration) -> Result<String, AskError> {
    let begun = Instant::now();
    let failed = |e: std::io::Error| error(&e, patience);
    let question = Question { to, transport: Transport::Tcp, size: None, patience };
    let mut stream = connected(&question, begun).map_err(failed)?;
    let left = patience.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
    stream.set_write_timeout(Some(left)).map_err(failed)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {to}\r\n\r\n").as_bytes()).map_err(failed)?;
    let said = read(&mut stream, LONGEST_BODY, begun + patience).map_err(failed)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    if !said.starts_with("HTTP/") {
        return Err(AskError::Failed("what answered is no HTTP server".to_owned()));
    }
    Ok(said.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

/// A neighbour that did not answer a moment ago is asked for again, and until then the kernel says at once that there is no way to the host.
fn connected(question: &Question, begun: Instant) -> std::io::Result<TcpStream> {
    loop {
        let left = question.patience.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
        let done = match question.transport {
            Transport::Sctp => sctp::connected(question.to, left),
            Transport::Tcp | Transport::Udp => TcpStream::connect_timeout(&question.to, left),
        };
        match done {
            Err(e) if e.kind() == ErrorKind::HostUnreachable && left > AGAIN => {
                // Sleeps: nothing tells when the neighbour is asked for again.
                std::thread::sleep(AGAIN);
            }
            done => return done,
        }
    }
}

/// What is lost is sent again. A question has a number: an answer to an older one may be on its way.
fn over_udp(question: &Question) -> Result<Answer, AskError> {
    let failed = |e: std::io::Error| error(&e, question.patience);
    let (any, family, header): (IpAddr, Family, usize) = match question.to {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Family::V4, 20),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), Family::V6, 40),
    };
    let socket = UdpSocket::bind((any, 0)).map_err(failed)?;
    socket.connect(question.to).map_err(failed)?;
    if question.size.is_some() {
        linux::send_whole(&socket, family).map_err(|e| AskError::Failed(e.to_string()))?;
    }
    let length = question.size.map_or(0, |size| size.saturating_sub(header + UDP));
    let end = Instant::now() + question.patience;
    let mut last = AskError::Silent(question.patience);
    for number in 0_u32.. {
        let begun = Instant::now();
        let left = end.saturating_duration_since(begun);
        if left.is_zero() {
            break;
        }
        let mut text = format!("{number} ").into_bytes();
        text.resize(text.len().max(length), b'.');
        socket.set_read_timeout(Some(left.min(AGAIN))).map_err(failed)?;
        match socket.send(&text).and_then(|_| receive(&socket, number, length, begun + left.min(AGAIN))) {
            Ok(said) => return answer(&said, begun.elapsed()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(e) => match error(&e, question.patience) {
                too_long @ AskError::TooLong => return Err(too_long),
                // It may be of a moment: a neighbour that is asked for, say.
                other => {
                    last = other;
                    // Sleeps: nothing tells when a way is there again; the next question is due then.
                    std::thread::sleep(left.min(AGAIN));
                }
            },
        }
    }
    Err(last)
}

/// The answer to a question of this number, if it comes before `end`: who answers others all the time is not waited for.
fn receive(socket: &UdpSocket, number: u32, length: usize, end: Instant) -> std::io::Result<String> {
    let mut buffer = vec![0; length.max(512)];
    loop {
        if Instant::now() >= end {
            return Err(ErrorKind::TimedOut.into());
        }
        let got = socket.recv(&mut buffer)?;
        let said = String::from_utf8_lossy(buffer.get(..got).unwrap_or_default()).into_owned();
        if let Some(said) = said.strip_prefix(&format!("{number} ")) {
            return Ok(said.to_owned());
        }
    }
}

fn answer(said: &str, took: Duration) -> Result<Answer, AskError> {
    let mut words = said.split_whitespace();
    let (name, seen) = (words.next(), words.next().and_then(|address| address.parse().ok()));
    match (name, seen) {
        // A name is a place's, whoever answers: none has what a terminal takes for an order.
        (Some(name), Some(seen)) if !name.chars().any(char::is_control) => Ok(Answer { name: name.to_owned(), seen, took }),
        _ => Err(AskError::Failed("another program answered".to_owned())),
    }
}

pub(crate) fn error(e: &std::io::Error, patience: Duration) -> AskError {
    match e.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED) => AskError::Refused,
        Some(Errno::EMSGSIZE) => AskError::TooLong,
        Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::EACCES | Errno::EPERM | Errno::EINVAL) => {
            AskError::Unreachable(e.to_string())
        }
        Some(Errno::EAGAIN | Errno::ETIMEDOUT) => AskError::Silent(patience),
        None if matches!(e.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => AskError::Silent(patience),
        _ => AskError::Failed(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    /// Asks somebody who treats each connection like this, until he has asked no more.
    fn asked(patience: Duration, answer: fn(TcpStream)) -> (Result<Answer, AskError>, JoinHandle<()>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let answers = std::thread::spawn(move || answer(listener.accept().unwrap().0));
        let question = Question { to, transport: Transport::Tcp, size: None, patience };
        (ask(&Inside::here(), &question), answers)
    }

    #[test]
    fn an_answer_without_end_is_read_as_far_as_one_goes() {
        let endless = |mut stream: TcpStream| while stream.write_all(&[b'x'; 4096]).is_ok() {};
        let (answer, answers) = asked(Duration::from_secs(60), endless);
        assert_eq!(answer, Err(AskError::Failed("another program answered".to_owned())));
        // Nobody reads: it ends.
        answers.join().unwrap();
    }

    #[test]
    fn a_byte_now_and_then_does_not_hold_a_question_up() {
        let drips = |mut stream: TcpStream| {
            while stream.write_all(b"x").is_ok() {
                // Sleeps: that is what it is to do.
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let (answer, answers) = asked(Duration::from_millis(300), drips);
        assert_eq!(answer, Err(AskError::Failed("another program answered".to_owned())));
        answers.join().unwrap();
    }

    #[test]
    fn no_name_gives_orders_to_a_terminal() {
        let colours = |mut stream: TcpStream| stream.write_all(b"\x1b[2Jpod 10.0.0.1\n").unwrap();
        let (answer, answers) = asked(Duration::from_secs(60), colours);
        assert_eq!(answer, Err(AskError::Failed("another program answered".to_owned())));
        answers.join().unwrap();
        assert!(super::answer("pod/a/b 10.0.0.1\n", Duration::ZERO).is_ok());
    }
}
