//! What is refused: before anything is changed, and with a name for it.

use serde_json::{Value, json};

use crate::portmap::scene::{GATEWAY4, HOST4, HOST6, Scene, bridge, tcp, udp};

#[test]
fn bad_mappings_and_keys_are_named() {
    let scene = Scene::new();
    let result = scene.cni("c1").add(&bridge());
    let before = scene.host.traces();
    let one = |keys: Value| {
        let mut mapping = tcp(8080, 80);
        keys.as_object().unwrap().iter().for_each(|(k, v)| mapping[k] = v.clone());
        json!([mapping])
    };
    let cases = [
        (one(json!({"hostPort": 0})), json!({}), 7, "failed to parse config: Invalid host port number: 0: runtimeConfig.portMappings[0]"),
        (one(json!({"hostPort": -1})), json!({}), 7, "Invalid host port number: -1"),
        (one(json!({"hostPort": 65536})), json!({}), 7, "Invalid host port number: 65536"),
        (one(json!({"containerPort": 0})), json!({}), 7, "Invalid container port number: 0"),
        (one(json!({"protocol": "icmp"})), json!({}), 7, "protocol \"icmp\" is unknown: use tcp, udp or sctp"),
        (one(json!({"protocol": ""})), json!({}), 7, "protocol \"\" is unknown"),
        (one(json!({"hostIP": "here"})), json!({}), 7, "hostIP \"here\" is not an IP address"),
        (
            json!([tcp(1, 1), tcp(8080, 80), tcp(8080, 81)]),
            json!({}),
            7,
            "portMappings[2]: hostPort 8080/tcp is mapped to containerPort \
            80",
        ),
        (json!([tcp(8080, 80), one(json!({"containerPort": 81, "hostIP": "0.0.0.0"}))[0]]), json!({}), 7, "by mapping 0"),
        (json!([]), json!({"backend": "pf"}), 7, "unrecognized backend \"pf\""),
        (
            json!([]),
            json!({"backend": "nftables", "conditionsV4": ["!", "-s", "192.0.2.0/24"], "externalSetMarkChain": "X"}),
            7,
            "nftables backend was requested but configuration contains iptables-specific options [externalSetMarkChain conditionsV4]",
        ),
        (
            json!([]),
            json!({"conditionsV4": ["-d", "192.0.2.1"], "conditionsV6": ["ip6", "saddr", "fd00::/8"]}),
            7,
            "iptables backend was requested but configuration contains nftables-specific options [conditionsV6]",
        ),
        (json!([]), json!({"conditionsV6": ["tcp", "sport", "80"]}), 2, "\"tcp\" is not supported"),
        (json!([]), json!({"conditionsV4": ["ip", "saddr", "fd00::/8"]}), 2, "unsupported: conditionsV4="),
        (one(json!({"hostIP": HOST4})), json!({"conditionsV4": ["ip saddr 192.0.2.9"]}), 2, "portMappings[0].hostIP"),
        (json!([]), json!({"markMasqBit": 32}), 7, "MasqMarkBit must be between 0 and 31: markMasqBit is 32"),
        (json!([]), json!({"backend": "nftables", "markMasqBit": -1}), 7, "MasqMarkBit must be between 0 and 31: markMasqBit is -1"),
        (json!([]), json!({"markMasqBit": 5, "externalSetMarkChain": "X"}), 7, "Cannot specify externalSetMarkChain and markMasqBit"),
    ];
    for (mappings, keys, code, text) in cases {
        let mut config = crate::portmap::scene::portmap(&mappings, &keys);
        let status = scene.cni("c1").call("STATUS", "portmap", config.to_string());
        config["prevResult"] = result.clone();
        let outcome = scene.cni("c1").call("ADD", "portmap", config.to_string());
        for outcome in [outcome, status] {
            assert!(outcome.message().contains(text), "{config}: {outcome:?}");
            assert_eq!(outcome.error()["code"], code, "{config}: {outcome:?}");
        }
        // What ADD has refused DEL has nothing to say about.
        scene.cni("c1").del(&config, &result);
    }
    let config = crate::portmap::scene::portmap(&json!([tcp(8080, 80)]), &json!({"conditionsV4": [""], "conditionsV6": []}));
    let alone = scene.cni("c1").call("ADD", "portmap", config.to_string());
    assert!(alone.message().contains("must be called as chained plugin"), "{alone:?}");
    let alone = scene.cni("c1").call("CHECK", "portmap", config.to_string());
    assert!(alone.message().contains("Required prevResult missing"), "{alone:?}");
    let ready = scene.cni("c1").call("STATUS", "portmap", config.to_string());
    assert_eq!((ready.code, ready.stdout.as_str()), (0, ""));
    scene.host.expect_traces(&before, "refused calls");
}

/// Who has a port keeps it, and is named; who wants it can try again when it is free.
#[test]
fn a_port_that_another_has() {
    let scene = Scene::new();
    let first = scene.add("c1", &json!([tcp(8080, 80)]));
    scene.answer("c1", 80);
    let (outcome, second) = scene.try_add("c2", &json!([tcp(9090, 90), tcp(8080, 80)]), &json!({}));
    assert_eq!(outcome.error()["code"], 11);
    assert!(outcome.message().contains("host port 8080/tcp is used by attachment published/c1/eth0"), "{outcome:?}");
    assert!(scene.tcp("outside", HOST4, 8080).starts_with("c1 "));
    // Nothing of the other is there, not even the port that was free.
    assert!(!scene.host.sh("", "nft list table inet netloom").contains("c2"));
    scene.check(&first).silent();
    // Again for the attachment itself, as by a runtime that was restarted.
    let mut again = first.config.clone();
    again["prevResult"] = first.result.clone();
    assert_eq!(scene.cni("c1").add(&again), first.result);
    // A late DEL of who never had it.
    scene.del(&second);
    scene.check(&first).silent();
    scene.del(&first);
    let second = scene.add("c2", &json!([tcp(8080, 80)]));
    scene.answer("c2", 80);
    assert!(scene.tcp("outside", HOST4, 8080).starts_with("c2 "));
    scene.del(&second);
    scene.expect_nothing();
}

/// A port of one address is looked up ahead of the same port of all: whoever came later took it from who had it. Two containers have the
/// same port at different addresses, one container at one and at all, and each protocol is a port of its own.
#[test]
fn a_port_that_another_has_at_one_address_or_at_all() {
    let scene = Scene::new();
    let at = |ip: &str| json!({"hostPort": 8080, "containerPort": 81, "protocol": "tcp", "hostIP": ip});
    scene.answer("c1", 80);
    scene.answer("c1", 81);
    for (has, asks, says) in [
        (tcp(8080, 80), at(HOST4), "host port 8080/tcp of 192.0.2.1 is used by attachment published/c1/eth0"),
        (tcp(8080, 80), at(HOST6), "host port 8080/tcp of 2001:db8::1 is used by attachment published/c1/eth0"),
        (at(HOST4), tcp(8080, 80), "host port 8080/tcp is used by attachment published/c1/eth0"),
        (at(HOST6), tcp(8080, 80), "host port 8080/tcp is used by attachment published/c1/eth0"),
        (at("0.0.0.0"), at(HOST4), "host port 8080/tcp of 192.0.2.1 is used by attachment published/c1/eth0"),
    ] {
        let first = scene.add("c1", &json!([has]));
        let before = scene.host.sh("", "nft list table inet netloom");
        let (outcome, second) = scene.try_add("c2", &json!([tcp(9090, 90), asks]), &json!({}));
        assert_eq!(outcome.error()["code"], 11, "{has} {asks}: {outcome:?}");
        assert!(outcome.message().contains(says), "{has} {asks}: {outcome:?}");
        assert_eq!(scene.host.sh("", "nft list table inet netloom"), before, "{has} {asks}");
        scene.check(&first).silent();
        scene.del(&second);
        scene.check(&first).silent();
        scene.del(&first);
    }
    let first = scene.add(
        "c1",
        &json!([at(HOST4), at("127.0.0.1"), tcp(8081, 80), {"hostPort": 8081, "containerPort": 81,
        "protocol": "tcp", "hostIP": HOST4}]),
    );
    let second = scene.add("c2", &json!([at(GATEWAY4), at(HOST6), udp(8080, 80)]));
    scene.answer("c2", 81);
    for (address, port, who) in [(HOST4, 8080, "c1 "), (GATEWAY4, 8080, "c2 "), (HOST6, 8080, "c2 "), (HOST4, 8081, "c1 ")] {
        assert!(scene.tcp("outside", address, port).starts_with(who), "{address} {port}");
    }
    [&first, &second].iter().for_each(|a| scene.check(a).silent());
    [&first, &second].iter().for_each(|a| scene.del(a));
    scene.expect_nothing();
}
