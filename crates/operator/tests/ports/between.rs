//! What stands between the operator and a server: it passes requests on, or refuses them, or gives them to the server when nobody waits any more.

use std::io::{Read, Write, copy};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

/// What becomes of a request.
pub(crate) enum Act {
    Pass,
    /// With this status, in words that both servers' clients read.
    Refuse(u16),
    /// It is passed on after [`Between::release`], and its answer goes nowhere.
    Late,
    /// It is not passed on: this is the answer.
    Answer(String),
    /// It is passed on, and the end of the answer is missing.
    Cut,
    /// Nothing comes, as long as the client waits.
    Hang,
}

/// It listens as long as the process lives.
pub(crate) struct Between {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: String,
    act: Box<dyn Fn(&str) -> Act + Send + Sync>,
    released: Mutex<bool>,
    changed: Condvar,
    /// Requests that were passed on.
    passed: Mutex<Vec<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Between ===

impl Between {
    pub(crate) fn before(url: &str, act: impl Fn(&str) -> Act + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (server, act) = (url.trim_start_matches("http://").to_owned(), Box::new(act));
        let shared = Shared { server, act, released: Mutex::new(false), changed: Condvar::new(), passed: Mutex::default() };
        let between = Between { port: listener.local_addr().unwrap().port(), shared: Arc::new(shared) };
        let shared = Arc::clone(&between.shared);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.serve(connection));
            }
        });
        between
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn release(&self) {
        *locked(&self.shared.released) = true;
        self.shared.changed.notify_all();
    }

    /// How many requests were passed on that begin so.
    pub(crate) fn passed(&self, line: &str) -> usize {
        self.requests(line).len()
    }

    /// Those requests, with their bodies.
    pub(crate) fn requests(&self, line: &str) -> Vec<String> {
        locked(&self.shared.passed).iter().filter(|passed| passed.starts_with(line)).cloned().collect()
    }
}

// === impl Shared ===

impl Shared {
    /// One request; the connection ends with it.
    fn serve(&self, mut client: TcpStream) {
        let Some(request) = whole(&mut client) else { return };
        let act = (self.act)(&request);
        let is_cut = matches!(act, Act::Cut);
        match act {
            Act::Pass | Act::Cut => {}
            Act::Answer(answer) => return drop(client.write_all(answer.as_bytes())),
            Act::Hang => return drop(client.read(&mut [0])),
            Act::Refuse(status) => {
                let body = format!(
                    "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"reason\":\"Forbidden\",\"code\":{status},\
                     \"message\":\"no such right\",\"NeutronError\":{{\"type\":\"Refused\",\"message\":\"no such right\",\"detail\":\"\"}}}}"
                );
                let head = format!(
                    "HTTP/1.1 {status} No\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                return drop(client.write_all((head + &body).as_bytes()));
            }
            Act::Late => {
                let mut released = locked(&self.released);
                while !*released {
                    released = self.changed.wait(released).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        locked(&self.passed).push(request.clone());
        let Ok(mut server) = TcpStream::connect(&self.server) else { return };
        let closing = request.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        if server.write_all(closing.as_bytes()).is_err() {
            return;
        }
        if is_cut {
            let mut answer = Vec::new();
            drop(server.read_to_end(&mut answer));
            answer.truncate(answer.len().saturating_sub(20));
            drop(client.write_all(&answer));
        } else if copy(&mut server, &mut client).is_err() {
            // Who does not wait any more does not stop the server.
            drop(copy(&mut server, &mut std::io::sink()));
        }
    }
}

/// A request with its body, which is text.
fn whole(client: &mut TcpStream) -> Option<String> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 8192]);
    loop {
        let text = String::from_utf8(bytes.clone()).ok()?;
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(|n| n.trim().parse::<usize>()));
            if body.len() >= length.and_then(Result::ok).unwrap_or_default() {
                return Some(text);
            }
        }
        match client.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}
