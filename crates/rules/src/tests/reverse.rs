//! Reverse paths: what comes by a link of pods comes from behind it.

use super::*;
use crate::{REVERSE_PATHS, forget_reverse_paths, has_reverse_paths, owned_by, repair, reverse_path, reverse_path_of_all};

const RULES: &str = r#"table inet netloom {
    comment "netloom, layout 1"
    set reverse-links { type ifname; elements = { "veth1" comment "lab/c1/eth0", "br1" }; }
    set reverse-bridged { type ifname . ifname; elements = { "br1" . "br1" }; }
    chain reverse-path {
        iifname . oifname @reverse-bridged return
        ip saddr 0.0.0.0 return
        ip saddr 169.254.0.0/16 ip daddr 224.0.0.0/24 return
        ip saddr 169.254.0.0/16 ip daddr 255.255.255.255 return
        ip6 saddr :: return
        ip6 saddr fe80::/10 return
        fib saddr . iif oif missing counter packets 0 bytes 0 drop
    }
    chain reverse-input {
        type filter hook input priority filter; policy accept;
        iifname @reverse-links jump reverse-path
    }
    chain reverse-forward {
        type filter hook forward priority filter; policy accept;
        iifname @reverse-links jump reverse-path
    }
}"#;

fn name_of(text: &str) -> IfName {
    text.parse().unwrap()
}

#[test]
fn a_table_as_nft_would_have_made_it() {
    let (ours, theirs) = (Namespace::new(), Namespace::new());
    theirs.nft_file(RULES);
    let all = [vec![reverse_path(&id("lab", "c1"), &name_of("veth1"))], reverse_path_of_all(&name_of("br1"))].concat();
    ours.nft(|s| install_and_add(s, &all).unwrap());
    assert_eq!(ours.run("nft list ruleset"), theirs.run("nft list ruleset"));
}

/// A pair's element goes with its attachment, a bridge's with the bridge, and both are put back.
#[test]
fn whose_elements_are() {
    let (ns, pair) = (Namespace::new(), reverse_path(&id("lab", "c1"), &name_of("veth1")));
    let bridge = reverse_path_of_all(&name_of("br1"));
    ns.nft(|s| {
        assert!(!has_reverse_paths(s).unwrap());
        assert_eq!(forget_reverse_paths(s, |_| false), Ok(0));
        install_and_add(s, &[vec![pair.clone()], bridge.clone()].concat()).unwrap();
        // As each pod of the bridge does.
        install_and_add(s, &bridge).unwrap();
        assert!(has_reverse_paths(s).unwrap());
        assert_eq!(owned_by(s, &REVERSE_PATHS, &id("lab", "c1")).unwrap(), std::slice::from_ref(&pair));
        assert_eq!(forget_reverse_paths(s, |link| link == "br1"), Ok(0));
        assert_eq!(forget_reverse_paths(s, |_| false), Ok(2));
        assert!(!has_reverse_paths(s).unwrap());
        check(s, &[pair]).unwrap();
    });
    ns.nft_file("flush chain inet netloom reverse-path");
    ns.nft(|s| {
        repair(s).unwrap();
        check(s, &[reverse_path(&id("lab", "c1"), &name_of("veth1"))]).unwrap();
    });
}
