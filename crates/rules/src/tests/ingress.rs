//! Policies of ingress, where containers come and go at the same time.

use super::*;
use crate::ingress::forgotten;
use crate::{Policy, forget_idle_bridges, policed};

/// A container that comes while the last one of its bridge goes has its policy, and what is there of the bridge goes with the last one.
#[test]
fn no_container_stands_without_its_policy() {
    const EACH: u32 = 60;
    let ns = Namespace::new();
    let bridge: IfName = "br0".parse().unwrap();
    let of = |n: u8| {
        let policy = if n.is_multiple_of(2) { Policy::SameBridge } else { Policy::Isolated };
        policed(&id("lab", &format!("c{n}")), &[IpAddr::from([10, 1, 0, n])], &bridge, policy)
    };
    come_and_go(&ns, 4, EACH, of, forget_idle_bridges);
    let left = ns.run("nft list ruleset");
    assert!(left.contains("from-bridges") && !left.contains("br0"), "{left}");
    // What one policy needs the other has brought.
    ns.nft(|s| {
        let both = [of(0), of(1)].concat();
        install_and_add(s, &both).unwrap();
        check(s, &both).unwrap();
        s.delete_missing_ok(&of(0)).unwrap();
        forget_idle_bridges(s).unwrap();
        check(s, &of(1)).unwrap();
    });
    // The kernel itself refuses to take anything of a bridge whose container has come meanwhile.
    let refused = ns.nft(|s| s.commit(&forgotten("br0").into_iter().collect())).unwrap_err();
    assert!(refused.refusals().iter().any(|refusal| refusal.errno == linux::Errno::EBUSY), "{refused}");
    ns.nft(|s| check(s, &of(1)).unwrap());
    ns.nft_file("delete element inet netloom bridges-with-policy { br0 }");
    let missing = ns.nft(|s| check(s, &of(1))).unwrap_err();
    assert!(matches!(&missing, CheckError::Missing { what } if what.contains("br0")), "{missing}");
}
