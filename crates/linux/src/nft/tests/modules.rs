//! What iptables writes through modules of its own, and what nftables leaves to chance, is read as steps.

use std::io::Write;
use std::process::Stdio;

use super::*;

fn load(ns: &Namespace, program: &str, rules: &str) {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &ns.0]).args(program.split(' ')).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program}: {rules}");
}

/// The steps of each rule of a chain, but for counters, and the rules' comments.
fn chain(ns: &Namespace, name: &str) -> Vec<(Option<String>, Vec<Op>)> {
    let tables = ns.with(|socket| socket.ruleset().unwrap());
    let chain = tables.into_iter().flat_map(|table| table.chains).find(|chain| chain.name == name).unwrap();
    let steps = |rule: ListedRule| (rule.comment, rule.ops.into_iter().filter(|op| *op != Op::Nothing).collect());
    chain.rules.into_iter().map(steps).collect()
}

fn equal(number: u32) -> Op {
    Op::Compare { at: 32, how: 0, value: number.to_ne_bytes().to_vec() }
}

fn differs(number: u32) -> Op {
    Op::Compare { at: 32, how: 1, value: number.to_ne_bytes().to_vec() }
}

fn bits(mask: u32, xor: u32) -> Op {
    Op::Mask { from: 32, into: 32, mask: mask.to_ne_bytes().to_vec(), xor: xor.to_ne_bytes().to_vec() }
}

fn jump(chain: &str) -> Op {
    Op::Verdict(ListedVerdict::Jump(chain.to_owned()))
}

/// Every module that kube-proxy's mode iptables uses.
#[test]
fn modules_of_iptables_are_read_as_steps() {
    let ns = Namespace::new();
    let address = |octets: [u8; 4]| [octets.as_slice(), &[0; 12]].concat();
    let tcp = [Op::Meta { key: 16, into: 0 }, Op::Compare { at: 0, how: 0, value: vec![6] }];
    let with_tcp = |steps: Vec<Op>| tcp.iter().cloned().chain(steps).collect::<Vec<_>>();
    let dnat = vec![
        Op::Load { into: 32, value: address([10, 244, 1, 2]) },
        Op::Load { into: 48, value: vec![0x1f, 0x90] },
        Op::Dnat { address: Some(32), port: Some(48) },
    ];
    let state = |mask, compared| [Op::Ct { key: 0, into: 32 }, bits(mask, 0), compared];
    let rows: Vec<(&str, Vec<Op>)> = vec![
        (
            "-m statistic --mode random --probability 0.5 -j SEP",
            vec![Op::Choice { into: 32, modulus: 2, offset: 0 }, equal(0), jump("SEP")],
        ),
        ("-j MARK --set-xmark 0x4000/0x4000", vec![Op::Meta { key: 3, into: 32 }, bits(!0x4000, 0x4000), Op::SetMark { from: 32 }]),
        ("-j MARK --set-xmark 0x4000/0x0", vec![Op::Meta { key: 3, into: 32 }, bits(!0, 0x4000), Op::SetMark { from: 32 }]),
        ("-m addrtype --dst-type LOCAL -j SEP", vec![Op::AddressType { of_destination: true, into: 32 }, equal(2), jump("SEP")]),
        ("-m addrtype ! --src-type LOCAL -j SEP", vec![Op::AddressType { of_destination: false, into: 32 }, differs(2), jump("SEP")]),
        ("-m conntrack --ctstate NEW,INVALID -j SEP", [state(9, differs(0)).to_vec(), vec![jump("SEP")]].concat()),
        (
            "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j SEP",
            [state(6, equal(0)).to_vec(), vec![Op::Ct { key: 2, into: 32 }, bits(0x20, 0), equal(0), jump("SEP")]].concat(),
        ),
        ("-p tcp -m tcp -j DNAT --to-destination 10.244.1.2:8080", with_tcp(dnat.clone())),
        ("-p tcp -m recent --name A --set --rsource -j DNAT --to-destination 10.244.1.2:8080", with_tcp(dnat)),
        ("-m recent --name A --rcheck --seconds 10 --rsource -j SEP", vec![Op::Other("match recent".to_owned()), jump("SEP")]),
        // One of several: which one is not known.
        ("-p tcp -j DNAT --to-destination 10.244.1.2-10.244.1.9", with_tcp(vec![Op::Other("target DNAT".to_owned())])),
        ("-j MASQUERADE --random-fully", vec![Op::Masquerade]),
        ("-m length --length 100 -j SEP", vec![Op::Other("match length".to_owned()), jump("SEP")]),
    ];
    let rules: String = rows.iter().map(|(rule, _)| format!("-A KUBE {rule}\n")).collect();
    // MASQUERADE is for one hook alone: the chain is called from there.
    let text = format!(
        "*nat\n:KUBE - [0:0]\n:SEP - [0:0]\n:NAMED - [0:0]\n-A NAMED -m comment --comment \"of ns/a:web\" -j KUBE\n{rules}COMMIT\n"
    );
    load(&ns, "iptables-nft-restore", &text);
    let read = chain(&ns, "KUBE");
    assert_eq!(read.len(), rows.len());
    for ((_, steps), (rule, expected)) in read.into_iter().zip(rows) {
        assert_eq!(steps, expected, "{rule}");
    }
    assert_eq!(chain(&ns, "NAMED"), [(Some("of ns/a:web".to_owned()), vec![jump("KUBE")])]);
}

/// The rules of kube-proxy's mode nftables that lead a Service to an endpoint by chance.
#[test]
fn chance_is_read_as_a_choice() {
    let ns = Namespace::new();
    let text = "table ip kube-proxy {
        set affinity { type ipv4_addr; flags dynamic,timeout; timeout 3h; }
        chain one { }
        chain two { }
        chain service { numgen random mod 2 vmap { 0 : goto one, 1 : goto two }; }
        chain endpoint { update @affinity { ip saddr }; meta l4proto tcp dnat to 10.244.1.2:8080; }
        chain hashed { jhash ip saddr mod 3 offset 4 vmap { 4 : goto one }; }
        chain noted { ct mark set 7; meta nftrace set 1; }
    }";
    load(&ns, "nft -f -", text);
    let lookup = |set: &str| Op::Lookup { at: 0, set: set.to_owned(), negated: false, into: None };
    assert_eq!(chain(&ns, "service")[0].1, [Op::Choice { into: 0, modulus: 2, offset: 0 }, lookup("__map0")]);
    let load = |into, value: &[u8]| Op::Load { into, value: value.to_vec() };
    assert_eq!(
        chain(&ns, "endpoint")[1].1[2..],
        [load(0, &[10, 244, 1, 2]), load(16, &[0x1f, 0x90]), Op::Dnat { address: Some(0), port: Some(16) }]
    );
    assert!(!chain(&ns, "endpoint")[0].1.iter().any(|op| matches!(op, Op::Other(_))));
    assert!(chain(&ns, "hashed")[0].1.contains(&Op::Choice { into: 0, modulus: 3, offset: 4 }), "{:?}", chain(&ns, "hashed"));
    assert!(chain(&ns, "noted").iter().flat_map(|(_, steps)| steps).all(|op| matches!(op, Op::Load { .. })));
}
