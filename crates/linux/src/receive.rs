//! Where datagrams are received: a thread's next socket takes over the buffer of its last one. A buffer is large, as the kernel fills a
//! dump's datagrams as far as they go; taken from the allocator and given back for each, it is a mapping of its own that comes and goes.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr};
use nix::errno::Errno;
use nix::libc::MSG_DONTWAIT;
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;

/// What a thread keeps for its next socket at the most, in bytes.
const KEPT: usize = 64 * 1024;

/// Room for a datagram that the kernel sends by itself.
const DATAGRAM: usize = 64 * 1024;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A buffer for datagrams, of any capacity.
#[derive(Debug)]
pub(crate) struct Buffer(Vec<u8>);

// === impl Buffer ===

impl Buffer {
    /// The thread's spare one, else one that grows when it is used.
    pub(crate) fn take() -> Self {
        Buffer(SPARE.take())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.0.capacity() <= KEPT {
            // A thread that ends keeps nothing.
            let _ = SPARE.try_with(|spare| spare.set(std::mem::take(&mut self.0)));
        }
    }
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

/// Receives one datagram, and tells who sent it: the kernel has port 0. `None` as patience is for ever, zero does not wait; `EAGAIN`: nothing
/// came in time.
pub(crate) fn datagram(socket: &Socket, buffer: &mut Vec<u8>, patience: Option<Duration>) -> Result<SocketAddr, Errno> {
    let waits = patience != Some(Duration::ZERO);
    if waits {
        // Zero is for ever, to the kernel.
        let wait = patience.map_or(Duration::ZERO, |wait| wait.max(Duration::from_millis(1)));
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
        setsockopt(socket, sockopt::ReceiveTimeout, &TimeVal::new(seconds.into(), wait.subsec_micros().into()))?;
    }
    buffer.clear();
    buffer.reserve(DATAGRAM);
    let received = socket.recv_from(buffer, if waits { 0 } else { MSG_DONTWAIT });
    received.map(|(_, sender)| sender).map_err(|e| e.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_socket_has_the_last_ones_memory() {
        let mut first = Buffer::take();
        first.reserve_exact(KEPT);
        let at = first.as_ptr();
        drop(first);
        let mut next = Buffer::take();
        assert_eq!((next.as_ptr(), next.capacity()), (at, KEPT));
        assert_eq!(Buffer::take().capacity(), 0, "one has it at a time");
        next.reserve_exact(2 * KEPT);
        drop(next);
        assert_eq!(Buffer::take().capacity(), 0, "what is larger than usual is given back");
    }
}
