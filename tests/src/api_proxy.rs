//! The API server as a node sees it: the same address, in the node's own network.
//!
//! ```text
//!   agent --127.0.0.1:PORT in the node's namespace--> a thread of the test --127.0.0.1:PORT--> API server
//! ```

use std::fs::File;
use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

/// A proxy that can be shut: connections end, and new ones are refused, as where no server listens.
pub struct ApiProxy {
    netns: PathBuf,
    address: String,
    open: Mutex<Option<Opening>>,
    is_slow: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

/// The thread that listens, and what ends it.
struct Opening {
    open: Arc<AtomicBool>,
    listens: JoinHandle<()>,
}

// === impl ApiProxy ===

impl ApiProxy {
    /// Opens it in a network namespace.
    ///
    /// # Panics
    /// If the address is taken there.
    pub fn new(netns: PathBuf, address: &str) -> ApiProxy {
        let proxy =
            ApiProxy { netns, address: address.to_owned(), open: Mutex::default(), is_slow: Arc::default(), streams: Arc::default() };
        proxy.open();
        proxy
    }

    /// Opens it again.
    ///
    /// # Panics
    /// As [`ApiProxy::new`].
    pub fn open(&self) {
        let listener = self.listen();
        listener.set_nonblocking(true).unwrap();
        let open = Arc::new(AtomicBool::new(true));
        let (streams, address, goes_on) = (Arc::clone(&self.streams), self.address.clone(), Arc::clone(&open));
        let is_slow = Arc::clone(&self.is_slow);
        let listens = thread::spawn(move || {
            while goes_on.load(Ordering::SeqCst) {
                match Some(&listener).filter(|_| !is_slow.load(Ordering::SeqCst)).map(TcpListener::accept) {
                    Some(Ok((near, _))) => join(near, &address, &streams),
                    // Sleeps: between two looks.
                    _ => thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(Opening { open, listens });
    }

    /// A socket belongs to the namespace that its thread was in when it was made.
    fn listen(&self) -> TcpListener {
        let (netns, address) = (self.netns.clone(), self.address.clone());
        let inside = move || {
            let netns = File::open(&netns).unwrap();
            setns(netns, CloneFlags::CLONE_NEWNET).unwrap();
            TcpListener::bind(&address).expect("the API server's port is free in the node's namespace")
        };
        thread::spawn(inside).join().unwrap()
    }

    /// Whether new connections get no answer, as where the server is there and slow: until it is fast again.
    pub fn slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::SeqCst);
    }

    /// Shuts it.
    pub fn shut(&self) {
        let opening = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Opening { open, listens }) = opening {
            open.store(false, Ordering::SeqCst);
            // Until the thread that listens has seen it, somebody may still come in.
            drop(listens.join());
        }
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.shut();
    }
}

fn join(near: TcpStream, address: &str, streams: &Mutex<Vec<TcpStream>>) {
    let Ok(far) = TcpStream::connect(address) else { return };
    near.set_nonblocking(false).unwrap();
    for (from, to) in [(&near, &far), (&far, &near)] {
        let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        streams.lock().unwrap_or_else(PoisonError::into_inner).push(from.try_clone().unwrap());
        thread::spawn(move || {
            let _ = copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}
