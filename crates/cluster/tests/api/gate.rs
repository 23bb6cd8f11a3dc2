//! A way to the API server that can be shut: connections end, and new ones are refused.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use testbed::ControlPlane;

/// Forwards what comes to a port of its own.
pub(crate) struct Gate {
    address: SocketAddr,
    open: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Gate {
    pub(crate) fn to(plane: &ControlPlane) -> Gate {
        let server = plane.url().trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = Gate { address: listener.local_addr().unwrap(), open: Arc::new(true.into()), streams: Arc::default() };
        let (open, streams) = (Arc::clone(&gate.open), Arc::clone(&gate.streams));
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&server) else { continue };
                // Whoever shuts the gate ends all that are held, and nobody comes in after that.
                let mut held = streams.lock().unwrap();
                if !open.load(Ordering::SeqCst) {
                    continue;
                }
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    held.push(from.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        gate
    }

    /// The administrator's kubeconfig, through the gate.
    pub(crate) fn kubeconfig(&self, plane: &ControlPlane) -> PathBuf {
        let through = std::fs::read_to_string(plane.kubeconfig()).unwrap().replace(&plane.url(), &format!("https://{}", self.address));
        let path = plane.dir().join("gate.kubeconfig");
        std::fs::write(&path, through).unwrap();
        path
    }

    pub(crate) fn shut(&self) {
        self.open.store(false, Ordering::SeqCst);
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}
