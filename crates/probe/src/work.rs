//! Questions by the line: what a verification runs in a pod, on a node or outside of the cluster, over the standard streams.
//!
//! ```text
//!   stdin:  {"id":1,"ask":{"to":"10.244.1.2:26767","transport":"tcp","patience":3000}}   stdout: {"id":1,"result":{"answered":{...}}}
//! ```
//!
//! Questions are asked at the same time, each on a thread of its own; an answer has its question's number. It ends with its input.

use std::io::{BufRead, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use linux::{Inside, Netlink, Sysctl};
use serde::{Deserialize, Serialize};

use crate::client::{self, Answer, AskError, Question};
use crate::perf::{self, Speed};
use crate::server::Transport;

/// The longest line that is read, in bytes.
const LONGEST: u64 = 1 << 20;
/// The most questions that are asked at a time: what more there is waits in the stream.
const AT_A_TIME: usize = 256;
/// How much longer than an answer's time is waited for the answerer that is wanted, where several take turns.
const TURNS: u32 = 4;

/// One line of what is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The number that its reply has.
    pub id: u64,
    /// What is wanted.
    #[serde(flatten)]
    pub wish: ProbeTask,
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeTask {
    /// The answer to a question.
    Ask(Asking),
    /// How many bits get to a sink in a second.
    Measure(Measuring),
    /// How fast the path to an address is.
    Time(Timing),
    /// The links and addresses here, and through which of them each of these addresses is reached.
    Look(Vec<IpAddr>),
    /// The body that an HTTP server has at a path.
    Get {
        /// Where.
        to: SocketAddr,
        /// The path, as `/proxyMode`.
        path: String,
        /// Milliseconds to wait.
        patience: u64,
    },
}

/// A measurement, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measuring {
    /// The sink.
    pub to: SocketAddr,
    /// The bits in a second that are expected at least.
    pub least: u64,
    /// And at most.
    pub most: u64,
    /// Milliseconds that the connection to it is waited for.
    pub connect: u64,
    /// Milliseconds that are waited for such a rate.
    pub patience: u64,
}

/// A measurement of a path's speed, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Where the port of probes answers, and the sink takes bytes.
    pub to: IpAddr,
    /// Milliseconds of sending.
    pub time: u64,
    /// Milliseconds that an answer is waited for.
    pub patience: u64,
}

/// A question, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    /// Where.
    pub to: SocketAddr,
    /// By which protocol.
    pub transport: Transport,
    /// Bytes of the packet with its IP header.
    #[serde(default)]
    pub size: Option<usize>,
    /// Milliseconds that an answer is waited for.
    pub patience: u64,
    /// Where several take turns: ask again until this one answers.
    #[serde(default)]
    pub wanted: Option<String>,
}

/// One line of what is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The order's number.
    pub id: u64,
    /// What came of it.
    pub result: Outcome,
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Somebody answered.
    Answered {
        /// Who.
        by: String,
        /// As whom it saw the one who asks.
        seen: IpAddr,
        /// Microseconds from the question to the answer.
        took: u64,
    },
    /// So many bits get through in a second.
    Rate(u64),
    /// So fast is the path.
    Speed(Speed),
    /// The port is closed.
    Refused,
    /// Nothing came in time.
    Silent,
    /// The own link takes no packet of this length.
    TooLong,
    /// There is no way, as the kernel or a router says.
    Unreachable(String),
    /// The question could not be asked, or another program answered.
    Failed(String),
    /// What is here.
    Here(Here),
    /// The body of an HTTP answer, or the first part of a long one.
    Body(String),
}

/// The links of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    /// Each link.
    pub links: Vec<HereLink>,
    /// Of each address that was asked about and has a way, the link's name.
    pub ways: Vec<(IpAddr, String)>,
    /// Whether packets to 127.0.0.0/8 may leave (`net.ipv4.conf.all.route_localnet`).
    #[serde(default)]
    pub route_localnet: bool,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HereLink {
    /// Its name.
    pub name: String,
    /// What made it, as `vxlan`.
    pub kind: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Bytes in a packet; 0: an older `netloom` does not say.
    #[serde(default)]
    pub mtu: u32,
}

/// Answers orders until there are no more.
///
/// # Errors
/// If the streams fail, or a line is no order: a newer `netloom` asks then.
pub fn work(mut orders: impl BufRead, replies: impl Write + Send) -> std::io::Result<()> {
    let replies = Mutex::new(replies);
    let (slots, free) = std::sync::mpsc::sync_channel::<()>(AT_A_TIME);
    let free = Mutex::new(free);
    std::thread::scope(|scope| {
        loop {
            let mut line = String::new();
            if std::io::Read::take(&mut orders, LONGEST).read_line(&mut line)? == 0 {
                return Ok(());
            }
            let order: Order = serde_json::from_str(&line).map_err(|e| std::io::Error::new(ErrorKind::InvalidData, e))?;
            let (replies, free) = (&replies, &free);
            // Full as long as all are at work.
            slots.send(()).map_err(|e| std::io::Error::other(e.to_string()))?;
            scope.spawn(move || {
                let reply = Reply { id: order.id, result: done(&Inside::here(), &order.wish) };
                let mut text = serde_json::to_string(&reply).unwrap_or_default();
                text.push('\n');
                let mut out = replies.lock().unwrap_or_else(PoisonError::into_inner);
                // Who does not read any more wants no answer.
                let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
                drop(out);
                let _ = free.lock().unwrap_or_else(PoisonError::into_inner).try_recv();
            });
        }
    })
}

fn done(inside: &Inside, wish: &ProbeTask) -> Outcome {
    match wish {
        ProbeTask::Ask(asking) => asked(inside, asking),
        ProbeTask::Measure(Measuring { to, least, most, connect, patience }) => {
            let (connect, patience) = (Duration::from_millis(*connect), Duration::from_millis(*patience));
            match perf::sustained(inside, *to, (*least, *most), (connect, patience)) {
                Ok(bits) => Outcome::Rate(bits),
                Err(e) => e.into(),
            }
        }
        ProbeTask::Time(Timing { to, time, patience }) => {
            let times = (Duration::from_millis(*time), Duration::from_millis(*patience));
            perf::speed(inside, *to, times).map_or_else(Outcome::from, Outcome::Speed)
        }
        ProbeTask::Look(addresses) => here(inside, addresses).map_or_else(Outcome::Failed, Outcome::Here),
        ProbeTask::Get { to, path, patience } => match client::get(*to, path, Duration::from_millis(*patience)) {
            Ok(body) => Outcome::Body(body),
            Err(e) => e.into(),
        },
    }
}

/// Where several take turns, the one that is wanted has its turn soon.
fn asked(inside: &Inside, asking: &Asking) -> Outcome {
    let patience = Duration::from_millis(asking.patience);
    let question = Question { to: asking.to, transport: asking.transport, size: asking.size, patience };
    let end = Instant::now() + patience.saturating_mul(TURNS);
    loop {
        let result = client::ask(inside, &question);
        let is_other = match (&result, &asking.wanted) {
            (_, None) => false,
            (Ok(answer), Some(wanted)) => answer.name != *wanted,
            (Err(AskError::TooLong), _) => false,
            (Err(_), Some(_)) => true,
        };
        if !is_other || Instant::now() >= end {
            return result.into();
        }
    }
}

fn here(inside: &Inside, addresses: &[IpAddr]) -> Result<Here, String> {
    let mut netlink = Netlink::open(inside).map_err(|e| e.to_string())?;
    let links = netlink.links().map_err(|e| e.to_string())?;
    let own = netlink.addresses(None).map_err(|e| e.to_string())?;
    let ways = addresses.iter().filter_map(|address| {
        let way = netlink.route_to(*address).ok()??.oif?;
        Some((*address, links.iter().find(|link| link.index == way)?.name.clone()))
    });
    let ways = ways.collect();
    let link = |link: &linux::Link| HereLink {
        name: link.name.clone(),
        kind: link.kind.clone().unwrap_or_default(),
        addresses: own.iter().filter(|address| address.index == link.index).map(|address| address.net.addr()).collect(),
        mtu: link.mtu,
    };
    let localnet = Sysctl::new(["net", "ipv4", "conf", "all", "route_localnet"]).and_then(|sysctl| sysctl.read(inside));
    Ok(Here { links: links.iter().map(link).collect(), ways, route_localnet: localnet.is_ok_and(|value| value.trim() == "1") })
}

// === impl Timing ===

impl Timing {
    /// What the measurement takes at most: each datagram but the first may be lost.
    pub fn most(&self) -> Duration {
        Duration::from_millis(self.time) + Duration::from_millis(self.patience).saturating_mul(perf::DATAGRAMS.saturating_add(3))
    }
}

// === impl Outcome ===

impl From<Result<Answer, AskError>> for Outcome {
    fn from(result: Result<Answer, AskError>) -> Self {
        match result {
            Ok(Answer { name, seen, took }) => {
                Outcome::Answered { by: name, seen, took: u64::try_from(took.as_micros()).unwrap_or(u64::MAX) }
            }
            Err(e) => e.into(),
        }
    }
}

impl From<AskError> for Outcome {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Refused => Outcome::Refused,
            AskError::Silent(_) => Outcome::Silent,
            AskError::TooLong => Outcome::TooLong,
            AskError::Unreachable(why) => Outcome::Unreachable(why),
            AskError::Failed(why) => Outcome::Failed(why),
        }
    }
}
