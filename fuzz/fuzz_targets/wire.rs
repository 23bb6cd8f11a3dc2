//! The messages between executable, agent and command line: what is understood is understood again as it is printed.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use wire::{Ask, Message, ToAgent, ToShim, AdminReply};

fn read<M: Message + PartialEq + Debug>(bytes: &[u8]) {
    // As a connection gives them: lengths, and what stands behind them.
    let mut rest = bytes;
    while let Ok(Some(message)) = wire::receive::<M>(&mut rest) {
        kept(&message);
    }
    match wire::parse::<M>(bytes) {
        Ok(message) => kept(&message),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

fn kept<M: Message + PartialEq + Debug>(message: &M) {
    let mut sent = Vec::new();
    if wire::send(&mut sent, message).is_ok() {
        let again = wire::receive::<M>(&mut sent.as_slice()).expect("what was sent is received");
        assert_eq!(again.as_ref(), Some(message));
    }
}

fuzz_target!(|bytes: &[u8]| {
    read::<ToAgent>(bytes);
    read::<ToShim>(bytes);
    read::<Ask>(bytes);
    read::<AdminReply>(bytes);
});
