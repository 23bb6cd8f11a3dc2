//! What `ip`, `bridge` and `tc` (iproute2 6.1.0) send for the same commands, byte for byte, captured with
//! `strace -e trace=sendmsg -e write=all`; in their namespace br0 has index 5, vx0 6, vx6 7, host0 77 and mv0 9;
//! to `tc` br0 has index 2 and ifb7 3. What it sends of tables for old kernels (`rtab`) is not among it.

use std::net::IpAddr;

use cni::{IfName, Mac};
use ipnet::IpNet;

use crate::link::{self, Bridge, Change, IpvlanMode, Kind, LinkSpec, Macvlan, MacvlanMode, Peer, PortFlags, PortVlan, Vxlan};
use crate::tc::{self, Filter, Root, Side, Target};
use crate::wire::{HEADER, kind_of};
use crate::{AddrFlags, Family, Hop, Request, Route, RouteKind, Rule, addr, fdb, neigh, route, rule};

/// The command, what it sent, what we send.
fn captured() -> Vec<(&'static str, &'static str, Request<'static>)> {
    vec![
        (
            "ip neigh del 10.0.0.5 dev br0",
            "240000001d000500ee65016b00000000020000000500000080000000080001000a000005",
            neigh::delete(5, "10.0.0.5".parse().unwrap()),
        ),
        (
            "ip neigh replace 10.1.2.0 lladdr 02:5e:00:00:00:02 dev vx0 nud permanent",
            "300000001c0005051a53076b00000000020000000600000080000000080001000a0102000a000200025e000000020000",
            neigh::replace(6, "10.1.2.0".parse().unwrap(), &mac("02:5e:00:00:00:02")),
        ),
        (
            "ip neigh replace fd00:1:2:: lladdr 02:5e:00:00:00:02 dev vx0 nud permanent",
            "3c0000001c0005051a53076b000000000a000000060000008000000014000100fd0000010002000000000000000000000a000200025e000000020000",
            neigh::replace(6, "fd00:1:2::".parse().unwrap(), &mac("02:5e:00:00:00:02")),
        ),
        (
            "bridge fdb replace 02:5e:00:00:00:02 dev vx0 dst 192.0.2.12 self permanent",
            "300000001c0005051a53076b000000000700000006000000c00002000a000200025e00000002000008000100c000020c",
            fdb::replace(6, &mac("02:5e:00:00:00:02"), "192.0.2.12".parse().unwrap()),
        ),
        (
            "bridge fdb replace 02:5e:00:00:00:02 dev vx6 dst 2001:db8::12 self permanent",
            "3c0000001c0005051a53076b000000000700000007000000c00002000a000200025e0000000200001400010020010db8000000000000000000000012",
            fdb::replace(7, &mac("02:5e:00:00:00:02"), "2001:db8::12".parse().unwrap()),
        ),
        (
            "bridge fdb del 02:5e:00:00:00:02 dev vx0 self",
            "280000001d0005001a53076b000000000700000006000000c00002000a000200025e000000020000",
            fdb::delete(6, &mac("02:5e:00:00:00:02")),
        ),
        (
            "ip route replace 10.1.2.0/24 via 10.1.2.0 dev vx0 proto 110 onlink",
            "34000000180005051953076b0000000002180000fe6e000104000000080001000a010200080005000a0102000800040006000000",
            route::replace(&Route { gateway: ip("10.1.2.0"), oif: Some(6), onlink: true, proto: 110, ..Route::to(net("10.1.2.0/24")) }),
        ),
        (
            "ip -6 route replace fd00:1:2::/64 via fd00:1:2:: dev vx0 proto 110 onlink",
            "4c000000180005051953076b000000000a400000fe6e00010400000014000100fd00000100020000000000000000000014000500fd0000010002000000000000000000000800040006000000",
            route::replace(&Route { gateway: ip("fd00:1:2::"), oif: Some(6), onlink: true, proto: 110, ..Route::to(net("fd00:1:2::/64")) }),
        ),
        (
            "ip route del unicast 10.1.2.0/24 proto 110",
            "24000000190005004054076b0000000002180000fe6eff0100000000080001000a010200",
            route::delete_of_proto(&Route { proto: 110, ..Route::to(net("10.1.2.0/24")) }),
        ),
        (
            "ip link add name vx0 index 6 address 02:5e:00:00:00:01 mtu 1450 type vxlan id 4096 dstport 8472 local 192.0.2.1 nolearning",
            "70000000100005061953076b00000000000000000600000000000000000000000a000100025e00000001000008000400aa0500000800030076783000340012000900010076786c616e00000024000200080001000010000008000400c0000201050007000000000006000f0021180000",
            link::create(&LinkSpec {
                index: Some(6),
                mtu: Some(1450),
                mac: Some(mac("02:5e:00:00:00:01")),
                ..LinkSpec::new(name("vx0"), Kind::Vxlan(vxlan(8472, "192.0.2.1")))
            }),
        ),
        (
            "ip link add name vx6 index 7 type vxlan id 4096 dstport 8473 local 2001:db8::1 nolearning",
            "68000000100005061953076b00000000000000000700000000000000000000000800030076783600400012000900010076786c616e0000003000020008000100001000001400110020010db8000000000000000000000001050007000000000006000f0021190000",
            link::create(&LinkSpec { index: Some(7), ..LinkSpec::new(name("vx6"), Kind::Vxlan(vxlan(8473, "2001:db8::1"))) }),
        ),
        (
            "ip link set dev vx0 type vxlan remote 0.0.0.0 local 192.0.2.9 dev br0 nolearning",
            "54000000100005004054076b0000000000000000060000000000000000000000340012000900010076786c616e00000024000200080003000500000008000400c000020908000200000000000500070000000000",
            link::set_vxlan(6, &Vxlan { link: Some(5), ..vxlan(8472, "192.0.2.9") }),
        ),
        (
            "ip rule add from 10.1.0.2 table 100",
            "24000000200005068bed016b00000000020020006400000100000000080002000a010002",
            rule::add(&Rule::from_address("10.1.0.2".parse().unwrap(), 100)),
        ),
        (
            "ip -6 rule del from fd00::2 to fd00:9::/64 table 1000 pref 77 iif lo oif lo",
            "64000000210005008bed016b000000000a408000000000000000000014000200fd00000000000000000000000000000214000100fd00000900000000000000000000000008000f00e8030000080006004d000000070003006c6f0000070011006c6f0000",
            rule::delete(&Rule {
                from: Some("fd00::2/128".parse().unwrap()),
                to: Some("fd00:9::/64".parse().unwrap()),
                priority: 77,
                iif: Some("lo".to_owned()),
                oif: Some("lo".to_owned()),
                ..Rule::to_table(Family::V6, 1000)
            }),
        ),
        (
            "ip link add link br0 name mv0 index 9 mtu 1400 type macvlan bcqueuelen 500 mode vepa",
            "5c00000010000506ee65016b000000000000000009000000000000000000000008000400780500000800050005000000080003006d763000240012000b0001006d6163766c616e001400020008000700f40100000800010002000000",
            link::create(&LinkSpec {
                index: Some(9),
                mtu: Some(1400),
                ..LinkSpec::new(
                    name("mv0"),
                    Kind::Macvlan { parent: 5, macvlan: Macvlan { mode: MacvlanMode::Vepa, bc_queue_len: Some(500) } },
                )
            }),
        ),
        (
            "ip link add link br0 name v0 type vlan id 5",
            "48000000100005068cee016b0000000000000000000000000000000000000000080005000500000007000300763000001800120008000100766c616e0c0002000600010005000000",
            link::create(&LinkSpec::new(name("v0"), Kind::Vlan { parent: 5, id: 5 })),
        ),
        (
            "ip link add link br0 name iv0 type ipvlan mode l3s",
            "54000000100005068cee016b000000000000000000000000000000000000000008000500050000000800030069763000240012000a0001006970766c616e00001400020006000100020000000600020000000000",
            link::create(&LinkSpec::new(name("iv0"), Kind::Ipvlan { parent: 5, mode: IpvlanMode::L3s })),
        ),
        (
            "ip link add name d0 type dummy",
            "38000000100005068cee016b00000000000000000000000000000000000000000700030064300000100012000900010064756d6d79000000",
            link::create(&LinkSpec::new(name("d0"), Kind::Dummy)),
        ),
        (
            "ip link add name vrf0 type vrf table 1001",
            "44000000100005068cee016b00000000000000000000000000000000000000000900030076726630000000001800120007000100767266000c00020008000100e9030000",
            link::create(&LinkSpec::new(name("vrf0"), Kind::Vrf { table: 1001 })),
        ),
        (
            "ip link add name br1 up type bridge stp_state 1",
            "4400000010000506ee65016b000000000000000000000000010000000100000008000300627231001c0012000a00010062726964676500000c0002000800050001000000",
            link::create(&LinkSpec {
                up: true,
                ..LinkSpec::new(name("br1"), Kind::Bridge(Bridge { stp: Some(true), ..Bridge::default() }))
            }),
        ),
        (
            "ip link add name host0 index 77 address 02:00:00:00:00:01 mtu 1400 txqueuelen 500 group 9 up master br0 type veth peer name eth0 index 78 address 02:00:00:00:00:02 mtu 1300 group 9",
            "a400000010000506ee65016b00000000000000004d00000001000000010000000a0001000200000000010000080004007805000008000d00f401000008001b000900000008000a00050000000a000300686f7374300000004c0012000800010076657468400002003c000100000000004e00000000000000000000000a0001000200000000020000080004001405000008001b0009000000090003006574683000000000",
            link::create(&LinkSpec {
                index: Some(77),
                mtu: Some(1400),
                mac: Some(mac("02:00:00:00:00:01")),
                txqlen: Some(500),
                group: Some(9),
                up: true,
                master: Some(5),
                ..LinkSpec::new(
                    name("host0"),
                    Kind::Veth(Peer {
                        index: Some(78),
                        mac: Some(mac("02:00:00:00:00:02")),
                        mtu: Some(1300),
                        group: Some(9),
                        ..Peer::new(name("eth0"))
                    }),
                )
            }),
        ),
        (
            "ip link set dev host0 mtu 1280 up promisc on allmulticast off nomaster group 7 alias hello",
            "4400000010000500ee65016b00000000000000004d0000000101000001030000080004000005000008000a000000000008001b00070000000900140068656c6c6f000000",
            link::set(
                77,
                &Change {
                    mtu: Some(1280),
                    up: Some(true),
                    promisc: Some(true),
                    allmulti: Some(false),
                    master: Some(0),
                    group: Some(7),
                    alias: Some("hello".into()),
                    ..Change::default()
                },
            ),
        ),
        (
            "ip link set dev mv0 type macvlan mode source",
            "3c00000010000500c8c4016b00000000000000000900000000000000000000001c0012000b0001006d6163766c616e000c0002000800010010000000",
            link::set_macvlan_mode(9, MacvlanMode::Source),
        ),
        (
            "ip link set dev host0 master br0",
            "2800000010000500ee65016b00000000000000004d000000000000000000000008000a0005000000",
            link::set(77, &Change { master: Some(5), ..Change::default() }),
        ),
        (
            "bridge link set dev host0 hairpin on isolated on learning off flood off",
            "4400000013000500ef65016b00000000070000004d000000000000000000000024000c800500040001000000050009000000000005000800000000000500210001000000",
            link::set_port(
                77,
                &PortFlags { hairpin: Some(true), isolated: Some(true), learning: Some(false), flood: Some(false), ..PortFlags::default() },
            ),
        ),
        (
            "ip addr add 10.1.2.3/24 brd + dev br0",
            "3000000014000506ee65016b000000000218000005000000080002000a010203080001000a010203080004000a0102ff",
            addr::add(5, net("10.1.2.3/24"), AddrFlags::NONE),
        ),
        (
            "ip addr add 10.1.3.3/31 dev br0",
            "2800000014000506ee65016b00000000021f000005000000080002000a010303080001000a010303",
            addr::add(5, net("10.1.3.3/31"), AddrFlags::NONE),
        ),
        (
            "ip addr add 2001:db8::3/64 dev br0 nodad",
            "4000000014000506ee65016b000000000a400200050000001400020020010db80000000000000000000000031400010020010db8000000000000000000000003",
            addr::add(5, net("2001:db8::3/64"), AddrFlags::NODAD),
        ),
        (
            "ip addr add 2001:db8::4/64 dev br0 nodad noprefixroute",
            "4800000014000506ee65016b000000000a400000050000001400020020010db800000000000000000000000408000800020200001400010020010db8000000000000000000000004",
            addr::add(5, net("2001:db8::4/64"), AddrFlags::NODAD | AddrFlags::NOPREFIXROUTE),
        ),
        (
            "ip addr del 10.1.2.3/24 dev br0",
            "2800000015000500ee65016b000000000218000005000000080002000a010203080001000a010203",
            addr::delete(5, net("10.1.2.3/24")),
        ),
        (
            "ip route add 192.0.2.0/24 via 10.1.2.9 dev br0 metric 7 table 1000 src 10.1.2.3 mtu 1400 advmss 1360",
            "6000000018000506ee65016b0000000002180000000300010000000008000100c0000200080005000a010209080006000700000008000f00e8030000080007000a01020308000400050000001400080008000200780500000800080050050000",
            route::add(&Route {
                gateway: ip("10.1.2.9"),
                oif: Some(5),
                priority: 7,
                table: 1000,
                src: ip("10.1.2.3"),
                mtu: Some(1400),
                advmss: Some(1360),
                ..Route::to(net("192.0.2.0/24"))
            }),
        ),
        (
            "ip route add default via 10.9.9.9 dev br0 onlink",
            "2c00000018000506ee65016b0000000002000000fe03000104000000080005000a0909090800040005000000",
            route::add(&Route { gateway: ip("10.9.9.9"), oif: Some(5), onlink: true, ..Route::to(net("0.0.0.0/0")) }),
        ),
        (
            "ip route add 192.0.3.0/24 dev br0",
            "2c00000018000506ee65016b0000000002180000fe03fd010000000008000100c00003000800040005000000",
            route::add(&Route { oif: Some(5), ..Route::to(net("192.0.3.0/24")) }),
        ),
        (
            "ip route add 192.0.4.0/24 via inet6 fe80::1 dev br0",
            "4400000018000506ee65016b0000000002180000fe0300010000000008000100c0000400160012000a00fe80000000000000000000000000000100000800040005000000",
            route::add(&Route { gateway: ip("fe80::1"), oif: Some(5), ..Route::to(net("192.0.4.0/24")) }),
        ),
        (
            "ip -6 route add 2001:db8:5::/64 nexthop via fe80::1 dev br0 weight 2 nexthop via fe80::2 dev br0",
            "6c00000018000506ee65016b000000000a400000fe030001000000001400010020010db80005000000000000000000003c0009001c0000010500000014000500fe8000000000000000000000000000011c0000000500000014000500fe800000000000000000000000000002",
            route::add(&Route { hops: vec![hop("fe80::1", 2), hop("fe80::2", 1)], ..Route::to(net("2001:db8:5::/64")) }),
        ),
        (
            "ip route del 192.0.3.0/24 dev br0",
            "2c00000019000500ee65016b0000000002180000fe00ff000000000008000100c00003000800040005000000",
            route::delete(&Route { oif: Some(5), kind: RouteKind::Other(0), ..Route::to(net("192.0.3.0/24")) }),
        ),
        (
            "bridge vlan add dev host0 vid 7 pvid untagged",
            "2c000000130005006ff2016b00000000070000004d00000000000000000000000c001a000800020006000700",
            link::add_vlans(77, &[PortVlan::native(7)]),
        ),
        (
            "bridge vlan add dev host0 vid 100-199",
            "34000000130005006ff2016b00000000070000004d000000000000000000000014001a000800020008006400080002001000c700",
            link::add_vlans(77, &[PortVlan::tagged(100, 199)]),
        ),
        (
            "bridge vlan del dev host0 vid 1",
            "2c000000110005006ff2016b00000000070000004d00000000000000000000000c001a000800020000000100",
            link::delete_vlans(77, &[PortVlan::tagged(1, 1)]),
        ),
        (
            "ip link add name ifb8 type ifb",
            "38000000100005065d2c026b00000000000000000000000000000000000000000900030069666238000000000c0012000700010069666200",
            link::create(&LinkSpec::new(name("ifb8"), Kind::Ifb)),
        ),
        (
            "tc qdisc add dev br0 ingress",
            "30000000240005065e2c026b0000000000000000020000000000fffff1ffffff000000000c000100696e677265737300",
            tc::add_ingress(2),
        ),
        (
            "tc qdisc del dev br0 ingress",
            "30000000250005005e2c026b0000000000000000020000000000fffff1ffffff000000000c000100696e677265737300",
            tc::delete_ingress(2),
        ),
        (
            "tc filter add dev br0 parent ffff: protocol ip pref 1 u32 match ip dst 10.2.0.0/16 action mirred egress redirect dev ifb7",
            "8c0000002c0005065e2c026b000000000000000002000000000000000000ffff0800010008000100753332006000020038000700340001000b0001006d697272656400002400028020000200000000000000000004000000000000000000000001000000030000002400050001000100000000000000000000000000ffff00000a0200001000000000000000",
            tc::add_filter(2, tc::INGRESS, &Filter::network(1, net("10.2.0.0/16"), Side::Destination, Target::Redirect(3))),
        ),
        (
            "tc filter add dev br0 parent ffff: protocol all pref 3 u32 match u32 0 0 action mirred egress redirect dev ifb7",
            "8c0000002c0005065e2c026b000000000000000002000000000000000000ffff0003030008000100753332006000020038000700340001000b0001006d69727265640000240002802000020000000000000000000400000000000000000000000100000003000000240005000100010000000000000000000000000000000000000000000000000000000000",
            tc::add_filter(2, tc::INGRESS, &Filter::all(3, Target::Redirect(3))),
        ),
        (
            "tc qdisc add dev br0 root handle 1: htb default 1",
            "48000000240005065e2c026b00000000000000000200000000000100ffffffff0000000008000100687462001c00020018000200030000000a000000010000000000000000000000",
            tc::add_root(2, &Root::Htb { default: 1 }),
        ),
        (
            "tc qdisc add dev br0 parent 1:1 bfifo limit 125000",
            "38000000240005065e2c026b0000000000000000020000000000000001000100000000000a000100626669666f0000000800020048e80100",
            tc::add_fifo(2, 1, 125_000),
        ),
        (
            "tc filter add dev br0 parent 1: protocol ipv6 pref 2 u32 match ip6 src fd00:5::/35 flowid 1:0",
            "6c0000002c0005065e2c026b000000000000000002000000000000000000010086dd020008000100753332004000020008000100000001003400050001000200000000000000000000000000fffffffffd0000050800000000000000e0000000000000000c00000000000000",
            tc::add_filter(2, tc::ROOT, &Filter::network(2, net("fd00:5::/35"), Side::Source, Target::Class(tc::ROOT))),
        ),
        (
            "ip link set dev host0 vf 1 mac 02:00:00:00:00:55",
            "5000000010000500fdb9096b00000000000000004d0000000000000000000000300016002c00010028000100010000000200000000550000000000000000000000000000000000000000000000000000",
            link::set_vf_mac(77, 1, [2, 0, 0, 0, 0, 0x55]),
        ),
        (
            "ip link set dev host0 vf 1 vlan 100 qos 3",
            "3800000010000500fcb9096b00000000000000004d0000000000000000000000180016001400010010000200010000006400000003000000",
            link::set_vf_vlan(77, 1, 100, 3),
        ),
        ("ip link del dev mv0", "2000000011000500ee65016b0000000000000000090000000000000000000000", link::delete(9)),
        ("ip link del group 7", "2800000011000500ee65016b000000000000000000000000000000000000000008001b0007000000", link::delete_group(7)),
    ]
}

#[test]
fn we_send_what_ip_sends() {
    for (command, hex, request) in captured() {
        let theirs: Vec<u8> = (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        let mut ours = request.message.clone();
        assert_eq!(hexadecimal(&ours[HEADER..]), hexadecimal(&theirs[HEADER..]), "{command}");
        // `ip link set` sends RTM_NEWLINK. With index 0 and a group that would change every link of the group: we send
        // RTM_SETLINK, which does the same otherwise, but leaves out what only a link of that type has.
        let same = if command.starts_with("ip link set") && !command.contains(" type ") { [19, 16] } else { [kind_of(&theirs); 2] };
        assert_eq!([kind_of(&ours), kind_of(&theirs)], same, "{command}");
        // NLM_F_REQUEST and NLM_F_ACK are for the batch to set.
        crate::wire::stamp(&mut ours, 0, 5);
        assert_eq!(ours[6..8], theirs[6..8], "{command}");
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn name(name: &str) -> IfName {
    IfName::parse(name).unwrap()
}

fn mac(mac: &str) -> Mac {
    mac.parse().unwrap()
}

fn net(net: &str) -> IpNet {
    net.parse().unwrap()
}

fn ip(ip: &str) -> Option<IpAddr> {
    Some(ip.parse().unwrap())
}

fn vxlan(port: u16, local: &str) -> Vxlan {
    Vxlan { vni: 4096, port, local: ip(local), remote: None, link: None, learning: false }
}

fn hop(gateway: &str, weight: u16) -> Hop {
    Hop { gateway: ip(gateway), oif: 5, weight, onlink: false }
}
