//! What `wg` (wireguard-tools 1.0.20210914) sends for the same commands, byte for byte, and what the kernel (Linux 6.1) answers, captured with
//! `strace -e write=all -e read=all`. The family is 32. `wg` names the device `wg0`, we say its index, 2.

use super::*;
use crate::wire::{HEADER, Message, Messages};

const FAMILY: u16 = 32;
const KEY: Key = [1; 32];

/// The bytes of a capture, with the device's index in the place of its name.
fn captured(hex: &str) -> Vec<u8> {
    let hex = hex.replacen("0800020077673000", "0800010002000000", 1);
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn change(endpoint: &str, allowed: &[&str], keepalive: u16) -> PeerChange {
    let allowed = allowed.iter().map(|range| range.parse().unwrap()).collect();
    PeerChange::Set { key: KEY, endpoint: endpoint.parse().unwrap(), allowed, keepalive }
}

/// Length and type, then everything behind the header: flags and numbers are the socket's.
fn without_header(message: &[u8]) -> (Vec<u8>, Vec<u8>) {
    (message[..6].to_vec(), message[HEADER..].to_vec())
}

#[test]
fn what_is_sent_is_what_wg_sends() {
    let one = |change| set_peers(FAMILY, 2, &[change]).remove(0);
    let key = PrivateKey(std::array::from_fn(|n| u8::try_from(n).unwrap()));
    for (command, hex, message) in [
        ("wg", "2400000010000500b1c0086b00000000030100000e000200776972656775617264000000", family_question()),
        (
            "wg set wg0 private-key FILE listen-port 51820",
            "48000000200005001a0c086b0000000001010000080002007767300024000300000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f060006006cca0000",
            set_device(FAMILY, 2, Some(&key), Some(51820), None),
        ),
        (
            "wg set wg0 peer KEY preshared-key /dev/null endpoint 192.0.2.12:51820 persistent-keepalive 25 allowed-ips 10.1.2.0/24,fd00:1:2::/64",
            "d800000020000500350c086b00000000010100000800020077673000bc000880b8000080240001000101010101010101010101010101010101010101010101010101010101010101240002000000000000000000000000000000000000000000000000000000000000000000140004000200ca6cc000020c000000000000000006000500190000000800030002000000480009801c0000800600010002000000080002000a010200050003001800000028000080060001000a00000014000200fd0000010002000000000000000000000500030040000000",
            one(change("192.0.2.12:51820", &["10.1.2.0/24", "fd00:1:2::/64"], 25)),
        ),
        (
            "wg set wg0 peer KEY preshared-key /dev/null endpoint [2001:db8::12]:51821 persistent-keepalive 0 allowed-ips 10.1.2.0/24",
            "bc00000020000500350c086b00000000010100000800020077673000a00008809c000080240001000101010101010101010101010101010101010101010101010101010101010101240002000000000000000000000000000000000000000000000000000000000000000000200004000a00ca6d0000000020010db80000000000000000000000120000000006000500000000000800030002000000200009801c0000800600010002000000080002000a0102000500030018000000",
            one(change("[2001:db8::12]:51821", &["10.1.2.0/24"], 0)),
        ),
        (
            "wg set wg0 peer KEY remove",
            "50000000200005001c0c086b0000000001010000080002007767300034000880300000802400010002020202020202020202020202020202020202020202020202020202020202020800030001000000",
            one(PeerChange::Remove { key: [2; 32] }),
        ),
        ("wg show wg0", "1c000000200005031c0c086b00000000000100000800020077673000", get(FAMILY, 2)),
    ] {
        assert_eq!(without_header(&message.finish()), without_header(&captured(hex)), "{command}");
    }
}

/// The kernel's answer to `wg show wg0`, and its end.
const SHOWN: &str = "70010000200002001c0c086b9f00000000010000060006006cca000008000700000000000800010002000000080002007767300024000300000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e5f240004008f40c5adb68f25624ae5b214ea767a6ec94d829d3d7b5e1ad1ba6f3e2138285ff4000880f0000080240001000101010101010101010101010101010101010101010101010101010101010101240002000000000000000000000000000000000000000000000000000000000000000000140006000000000000000000000000000000000006000500190000000c00080000000000000000000c000700000000000000000008000a0001000000200004000a00ca6d0000000020010db800000000000000000000001200000000480009801c00008005000300180000000600010002000000080002000a010200280000800500030040000000060001000a00000014000200fd00000100020000000000000000000014000000030002001c0c086b9f00000000000000";

fn read(bytes: &[u8]) -> Vec<MessagePart> {
    Messages(bytes).filter(|m| m.kind == FAMILY).filter_map(|m| m.payload.get(GENL_HEADER..)).map(MessagePart::parse).collect()
}

#[test]
fn what_the_kernel_answers_is_read() {
    let bytes: Vec<u8> = (0..SHOWN.len()).step_by(2).map(|at| u8::from_str_radix(&SHOWN[at..at + 2], 16).unwrap()).collect();
    let device = message::joined(read(&bytes)).unwrap();
    let peer = Peer {
        endpoint: Some("[2001:db8::12]:51821".parse().unwrap()),
        allowed: ["10.1.2.0/24", "fd00:1:2::/64"].map(|range| range.parse().unwrap()).into(),
        keepalive: 25,
        ..Peer::default()
    };
    assert_eq!((device.index, device.port, device.mark, &device.peers), (2, 51820, 0, &BTreeMap::from([(KEY, peer)])));
    // The public key of 00 01 .. 1f, as `wg pubkey` has it: j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=.
    assert_eq!(device.key.map(|key| [key[0], key[31]]), Some([0x8f, 0x5f]));
    assert!(!format!("{device:?} {:?}", PrivateKey([7; 32])).contains("7, 7"), "a private key is not printed");
    // Neither cuts nor changed bytes do harm.
    for at in 0..bytes.len() {
        drop(read(&bytes[..at]));
        for odd in [0, 1, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = odd;
            drop(message::joined(read(&changed)));
        }
    }
}

#[test]
fn two_random_keys_differ() {
    let [one, other] = [PrivateKey::random().unwrap(), PrivateKey::random().unwrap()];
    assert!(one != other);
    assert_eq!((one.0[0] & 7, one.0[31] & 0xc0), (0, 0x40), "as the kernel keeps it");
}

#[test]
fn times_and_counters() {
    let mut message = Message::new(FAMILY, 0, &[0, 1, 0, 0]);
    message.nest(crate::uapi::wireguard::WGDEVICE_A_PEERS, |peers| {
        peers.nest(0, |peer| {
            peer.put(crate::uapi::wireguard::WGPEER_A_PUBLIC_KEY, &KEY);
            peer.put(crate::uapi::wireguard::WGPEER_A_PRESHARED_KEY, &[9; 32]);
            peer.put(crate::uapi::wireguard::WGPEER_A_LAST_HANDSHAKE_TIME, &[1_u64.to_ne_bytes(), 5_u64.to_ne_bytes()].concat());
            peer.put(crate::uapi::wireguard::WGPEER_A_RX_BYTES, &7_u64.to_ne_bytes());
            peer.put(crate::uapi::wireguard::WGPEER_A_TX_BYTES, &8_u64.to_ne_bytes());
        });
    });
    let device = message::joined(read(&message.finish())).unwrap();
    let peer = &device.peers[&KEY];
    assert_eq!((peer.received, peer.sent, peer.has_preshared), (7, 8, true));
    assert_eq!(peer.handshake, Some(Duration::new(1, 5)));
}

/// A peer whose ranges are in several messages, as the kernel goes on: the key, and what did not fit.
#[test]
fn a_peer_goes_on_in_the_next_message() {
    let range = |n: usize| format!("10.{}.{}.0/24", n / 256, n % 256);
    let all: Vec<String> = (0..1000).map(range).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let change = change("192.0.2.12:51820", &all, 0);
    let messages = set_peers(FAMILY, 2, std::slice::from_ref(&change));
    assert_eq!(messages.len(), 4);
    let bytes: Vec<u8> = messages.into_iter().flat_map(Message::finish).collect();
    let device = message::joined(read(&bytes)).unwrap();
    let PeerChange::Set { allowed, .. } = change else { unreachable!() };
    assert_eq!(device.peers[&KEY].allowed, allowed);
    assert_eq!(device.peers[&KEY].endpoint, Some("192.0.2.12:51820".parse().unwrap()), "only the first message has it");
}

#[test]
fn many_peers_are_sent_in_messages_that_are_not_too_large() {
    let peer = |n: u32| {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&n.to_be_bytes());
        let allowed = [format!("10.{}.{}.0/24", n / 256, n % 256), format!("fd00:1:{n:x}::/64")].map(|range| range.parse().unwrap());
        PeerChange::Set { key, endpoint: "[2001:db8::12]:51821".parse().unwrap(), allowed: allowed.into(), keepalive: 25 }
    };
    let changes: Vec<PeerChange> = (0..5000).map(peer).collect();
    let packed = message::packed(&changes);
    let mut next = 0;
    for (first, some) in &packed {
        assert_eq!(*first, next, "in order, and none twice");
        next += some.len();
        for message in set_peers(FAMILY, 2, some) {
            assert!(message.finish().len() <= ROOM + 64);
        }
    }
    assert!(next == 5000 && packed.len() < 60, "{} messages", packed.len());
    assert!(message::packed(&[]).is_empty());
}

#[test]
fn a_kernel_without_wireguard_says_so() {
    // Where the kernel has it, the guest's tests use it.
    match WireGuard::open(&Inside::here()) {
        Err(e) => assert!(matches!(e, WireGuardError::Missing) && e.to_string().contains("modprobe wireguard"), "{e:?}"),
        Ok(mut wireguard) => assert_eq!(wireguard.device(crate::link::LOOPBACK), Ok(None)),
    }
}

/// Who changes only the keepalive takes no range away meanwhile.
#[test]
fn an_update_replaces_nothing_and_makes_no_peer() {
    let update = PeerChange::Update { key: KEY, endpoint: None, added: BTreeSet::new(), keepalive: Some(25) };
    let message = set_peers(FAMILY, 2, &[update]).remove(0).finish();
    let of = |attributes: &[u8], kind: u16| Attributes(attributes).find(|(own, _)| *own == kind).map(|(_, value)| value.to_vec());
    let peers = of(&message[HEADER + GENL_HEADER..], crate::uapi::wireguard::WGDEVICE_A_PEERS).unwrap();
    let peer = of(&peers, 0).unwrap();
    use crate::uapi::wireguard::*;
    assert_eq!(of(&peer, WGPEER_A_FLAGS), Some(WGPEER_F_UPDATE_ONLY.to_ne_bytes().to_vec()));
    assert_eq!(of(&peer, WGPEER_A_PERSISTENT_KEEPALIVE_INTERVAL), Some(25_u16.to_ne_bytes().to_vec()));
    assert_eq!((of(&peer, WGPEER_A_ENDPOINT), of(&peer, WGPEER_A_ALLOWEDIPS)), (None, Some(Vec::new())));
}
