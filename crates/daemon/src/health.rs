//! Pages for the kubelet's probes, for Prometheus, and for a person with `curl`.
//!
//! Whoever reaches the address may connect, an unprivileged process of the node among them: so many connections are open at a time, each
//! for so long, with so many bytes. At the limit the oldest one that has not asked yet is closed, and who comes next is served; what was
//! asked is answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::response::IntoResponse;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tower::ServiceExt;

use crate::log::Line;

/// Between two attempts to listen.
const PAUSE: Duration = Duration::from_secs(5);
/// How many connections are open at a time.
const MOST: usize = 64;
/// How long a request may take to come, or an answer while others wait for its place, and how long a connection may be open at all.
const REQUEST: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(30);
/// What a request may have, in bytes. Those that are answered here have no body.
const LONGEST: usize = 16 << 10;
/// After an accept that failed for want of descriptors, say.
const AFTER_FAILURE: Duration = Duration::from_millis(200);

/// Listens until it is aborted. An address that is taken is told once, and tried again: the daemon does its work all the same.
pub async fn serve(address: SocketAddr, pages: Router) {
    let mut said = None;
    loop {
        let failed = match TcpListener::bind(address).await {
            Ok(listener) => answer(&listener, &pages).await,
            Err(e) => e.to_string(),
        };
        if said.as_ref() != Some(&failed) {
            Line::error("health").with("address", address).with("error", &failed).end();
            said = Some(failed);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A connection that is open.
struct Open {
    task: AbortHandle,
    since: Instant,
    /// Whether its request is here.
    has_asked: Arc<AtomicBool>,
}

/// Answers who connects, until that is aborted.
async fn answer(listener: &TcpListener, pages: &Router) -> ! {
    let mut connections = JoinSet::new();
    // The oldest one first.
    let mut open: Vec<Open> = Vec::with_capacity(MOST);
    loop {
        make_room(&mut connections, &mut open).await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        };
        let has_asked = Arc::new(AtomicBool::new(false));
        let task = connections.spawn(one(stream, pages.clone(), Arc::clone(&has_asked)));
        open.push(Open { task, since: Instant::now(), has_asked });
        // What it has sent already is read before the next one comes.
        tokio::task::yield_now().await;
    }
}

/// Until there is room for one more. Where all that are open have asked, one of them comes to its end, or has had its time.
async fn make_room(connections: &mut JoinSet<()>, open: &mut Vec<Open>) {
    loop {
        while connections.try_join_next().is_some() {}
        open.retain(|connection| !connection.task.is_finished());
        if open.len() < MOST {
            return;
        }
        let waits = |connection: &Open| !connection.has_asked.load(Ordering::Relaxed) || connection.since.elapsed() >= REQUEST;
        match open.iter().position(waits) {
            Some(at) => open.remove(at).task.abort(),
            None => {
                let left = open.first().map_or(Duration::ZERO, |oldest| REQUEST.saturating_sub(oldest.since.elapsed()));
                let _ = tokio::time::timeout(left, connections.join_next()).await;
            }
        }
    }
}

/// One connection, with one request.
async fn one(stream: TcpStream, pages: Router, has_asked: Arc<AtomicBool>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(REQUEST).max_buf_size(LONGEST).keep_alive(false);
    let pages = service_fn(move |request| {
        has_asked.store(true, Ordering::Relaxed);
        pages.clone().oneshot(request)
    });
    let connection = http.serve_connection(TokioIo::new(stream), pages);
    // What went wrong is the other side's: it sees that it is closed.
    drop(tokio::time::timeout(WHOLE, connection).await);
}

/// Figures in Prometheus' text format, version 0.0.4.
pub fn figures(text: String) -> impl IntoResponse {
    ([("content-type", "text/plain; version=0.0.4")], text)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Semaphore;

    use super::*;

    async fn asked(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Who is refused in the middle of what he says is not listened to any more.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn a_probe_is_answered_whoever_else_has_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pages = Router::new().route("/healthz", get(|| async { "ok\n" }));
        let server = tokio::spawn(async move { answer(&listener, &pages).await });
        let mut half = Vec::new();
        for _ in 0..4 * MOST {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Half: ").await.unwrap();
            half.push(stream);
        }
        let told = asked(address, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(told.starts_with("HTTP/1.1 200") && told.ends_with("ok\n"), "{told}");
        // The first ones were closed for those that came after them.
        let mut byte = [0];
        let closed = half.first_mut().unwrap().read(&mut byte).await;
        assert!(!matches!(closed, Ok(1..)), "{closed:?}");
        // A request that has no end.
        let endless = [b"GET /healthz HTTP/1.1\r\nX: ".as_slice(), &vec![b'x'; 4 * LONGEST]].concat();
        assert!(!asked(address, &endless).await.starts_with("HTTP/1.1 200"));
        server.abort();
    }

    /// Pages whose answer comes when it is told to, and how many have asked.
    fn slow() -> (Router, Arc<Semaphore>, Arc<AtomicUsize>) {
        let (release, asked) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let page = {
            let (release, asked) = (Arc::clone(&release), Arc::clone(&asked));
            get(move || async move {
                asked.fetch_add(1, Ordering::Relaxed);
                release.acquire().await.unwrap().forget();
                "ok\n"
            })
        };
        (Router::new().route("/healthz", page), release, asked)
    }

    async fn until(so: impl Fn() -> bool) {
        while !so() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_was_asked_is_answered_however_many_connect_after_it() {
        const PROBE: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (pages, release, asked_so_far) = slow();
        let server = tokio::spawn(async move { answer(&listener, &pages).await });
        let probe = tokio::spawn(asked(address, PROBE));
        until(|| asked_so_far.load(Ordering::Relaxed) == 1).await;
        // A loop of connects meanwhile: each is closed for a later one, and the probe is not.
        let mut silent = Vec::new();
        for _ in 0..4 * MOST {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut byte = [0];
        let closed = silent.first_mut().unwrap().read(&mut byte).await;
        assert!(!matches!(closed, Ok(1..)), "{closed:?}");
        release.add_permits(1);
        let told = probe.await.unwrap();
        assert!(told.starts_with("HTTP/1.1 200") && told.ends_with("ok\n"), "{told}");
        // More that ask than there are places: each gets its turn.
        let probes: Vec<_> = (0..2 * MOST).map(|_| tokio::spawn(asked(address, PROBE))).collect();
        until(|| asked_so_far.load(Ordering::Relaxed) == 1 + MOST).await;
        release.add_permits(2 * MOST);
        for probe in probes {
            let told = probe.await.unwrap();
            assert!(told.starts_with("HTTP/1.1 200"), "{told}");
        }
        server.abort();
    }
}
