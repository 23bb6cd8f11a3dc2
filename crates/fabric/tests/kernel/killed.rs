//! A process that applies a plan is killed between any two messages: the next one finishes what it has begun, or does something else.

use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use between::{Mode, NodeSeen, OwnNode, Plan, Settings, Underlay, Vxlan, plan};
use linux::{Inside, Netlink};
use netloom_fabric::Fabric;

use crate::cluster::{VXLAN, seen, settings};
use crate::oracle;
use crate::space::Space;

const STATE: &str = "NETLOOM_FABRIC_STATE";
/// The index of the uplink, which a child cannot ask the test for.
const UPLINK: u32 = 77;
/// Enough peers that their entries take several sends.
const PEERS: u8 = 40;

/// What the tables are to be, by name.
fn state(name: &str) -> Plan {
    let addresses = ["192.0.2.1/24", "2001:db8::1/64"].map(|net| net.parse().unwrap()).to_vec();
    let own = OwnNode {
        name: "n1".to_owned(),
        links: vec![Underlay { index: UPLINK, name: "eth0".to_owned(), mtu: 1500, addresses }],
        ..OwnNode::default()
    };
    let endpoints =
        |host: u8| -> Vec<IpAddr> { vec![format!("192.0.2.{host}").parse().unwrap(), format!("2001:db8::{host:x}").parse().unwrap()] };
    let peer = |number: u8| match name {
        // Each has another address and another VTEP.
        "replaced" => NodeSeen { uid: format!("another n{number}"), ..seen(number, endpoints(number + 100)) },
        _ => seen(number, endpoints(number)),
    };
    let mut nodes = vec![seen(1, endpoints(1))];
    if name != "nothing" {
        nodes.extend((2..2 + PEERS).map(peer));
    }
    let all = match name {
        "direct" => settings(Mode::Direct),
        "another port" => Settings { vxlan: Vxlan { port: 4789, ..VXLAN }, ..settings(Mode::Vxlan) },
        _ => settings(Mode::Vxlan),
    };
    plan(&all, &own, &nodes).unwrap()
}

#[test]
#[ignore = "started by the tests of killed, in a namespace and with a state in its environment"]
fn child() {
    let Ok(name) = std::env::var(STATE) else { return };
    let applied = Fabric::default().apply(&mut Netlink::open(&Inside::here()).unwrap(), &state(&name)).unwrap();
    assert_eq!((applied.errors, applied.skipped), (Vec::new(), 0));
}

fn apply(space: &Space, name: &str) {
    let applied = space.run(|_, netlink| Fabric::default().apply(netlink, &state(name))).unwrap();
    assert_eq!((applied.errors, applied.skipped), (Vec::new(), 0));
    oracle::agrees(space, &state(name));
}

#[test]
fn whatever_a_killed_process_leaves_the_next_one_leads_on() {
    let space = Space::new();
    space.sh(&format!("ip link add eth0 index {UPLINK} type veth peer name wire"));
    for link in ["eth0", "wire"] {
        space.sh(&format!("ip link set {link} up"));
    }
    space.sh("ip addr add 192.0.2.1/24 dev eth0");
    space.sh("ip -6 addr add 2001:db8::1/64 dev eth0 nodad");
    let mut killed = 0;
    for way in ["nothing", "vxlan", "replaced", "another port", "direct", "vxlan", "nothing"].windows(2) {
        let [from, to] = way else { panic!("{way:?}") };
        for time in 1.. {
            let mut died = 0;
            for point in ["netlink-unsent", "netlink-sent"] {
                apply(&space, from);
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["--exact", "killed::child", "--ignored"]);
                command.env(STATE, to).env("NETLOOM_CRASH_AT", format!("{point}:{time}"));
                let output = space.output_of(command);
                assert!(output.status.success() || output.status.signal() == Some(9), "{output:?}");
                died += u32::from(!output.status.success());
                // Half of them go on to where it went, the others back.
                apply(&space, if time % 2 == 0 { to } else { from });
            }
            killed += died;
            if died == 0 {
                break;
            }
        }
        apply(&space, to);
    }
    println!("{killed} processes were killed");
    assert!(killed > 40, "{killed}");
}
