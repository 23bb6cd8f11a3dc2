//! What may stand between us and a server: it passes requests on, or cuts, keeps, invents an answer.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What becomes of a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// It is passed on, and so is the answer.
    Pass,
    /// It is passed on and carried out; the connection is closed without an answer.
    Swallow,
    /// It is passed on and carried out; the answer is cut in its middle.
    Cut,
    /// It is not passed on; nobody answers, and nobody closes.
    Hang,
    /// It is not passed on; this is the answer.
    Answer(String),
}

/// It listens as long as the process lives.
#[derive(Clone)]
pub(crate) struct Proxy(Arc<Shared>);

struct Shared {
    port: u16,
    /// `127.0.0.1:9696`.
    server: String,
    plan: Mutex<VecDeque<Act>>,
    seen: Mutex<Vec<String>>,
    busy: AtomicUsize,
    most: AtomicUsize,
    /// Before each request.
    delay: Duration,
}

// === impl Proxy ===

impl Proxy {
    pub(crate) fn before(url: &str, delay: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let shared = Shared {
            port: listener.local_addr().unwrap().port(),
            server: url.trim_start_matches("http://").to_owned(),
            plan: Mutex::default(),
            seen: Mutex::default(),
            busy: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            delay,
        };
        let proxy = Proxy(Arc::new(shared));
        let served = proxy.clone();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let proxy = served.clone();
                thread::spawn(move || proxy.serve(connection));
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.0.port)
    }

    /// The next requests, in order; those behind them pass.
    pub(crate) fn plan(&self, acts: &[Act]) {
        self.0.plan.lock().unwrap().extend(acts.iter().cloned());
        self.0.seen.lock().unwrap().clear();
    }

    /// The first lines of requests since the last plan, without their queries.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.0.seen.lock().unwrap().clone()
    }

    /// So many requests were on their way at once.
    pub(crate) fn most(&self) -> usize {
        self.0.most.load(Ordering::SeqCst)
    }

    fn serve(&self, mut connection: TcpStream) {
        let Some(request) = read_request(&mut connection) else { return };
        let busy = self.0.busy.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.most.fetch_max(busy, Ordering::SeqCst);
        let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
        let words: Vec<&str> = line.split([' ', '?']).collect();
        self.0.seen.lock().unwrap().push(words[..2].join(" "));
        let act = self.0.plan.lock().unwrap().pop_front().unwrap_or(Act::Pass);
        // Sleeps: it stands for a slow server.
        thread::sleep(self.0.delay);
        let answer = match &act {
            Act::Pass | Act::Swallow | Act::Cut => self.pass_on(&request),
            Act::Answer(answer) => answer.clone().into_bytes(),
            Act::Hang => Vec::new(),
        };
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
        match act {
            Act::Pass | Act::Answer(_) => drop(connection.write_all(&answer)),
            Act::Cut => drop(connection.write_all(&answer[..answer.len() - 20])),
            Act::Swallow => {}
            // Until the client has lost its patience.
            Act::Hang => drop(connection.read(&mut [0])),
        }
    }

    fn pass_on(&self, request: &[u8]) -> Vec<u8> {
        let mut server = TcpStream::connect(&self.0.server).unwrap();
        let end = request.windows(2).position(|two| two == b"\r\n").unwrap();
        server.write_all(&request[..end]).unwrap();
        server.write_all(b"\r\nConnection: close").unwrap();
        server.write_all(&request[end..]).unwrap();
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).unwrap();
        // The client must not use this connection again, either.
        let text = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let kept = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
        format!("{}\r\nConnection: close\r\n\r\n{body}", kept.collect::<Vec<_>>().join("\r\n")).into_bytes()
    }
}

/// An answer with this status, these headers and this body.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Act {
    Act::Answer(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n{body}", body.len()))
}

fn read_request(connection: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut request, mut byte) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        connection.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    connection.read_exact(&mut body).ok()?;
    request.extend(body);
    Some(request)
}
