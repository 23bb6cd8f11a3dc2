//! Rules of policy routing added, read, deleted.

use linux::{Errno, Family, Rule, RuleAction, rule};
use serde_json::json;

use crate::space::{Space, done};

#[test]
fn a_rule_is_read_as_it_was_written() {
    let space = Space::new();
    let whole = Rule {
        from: Some("fd00::/64".parse().unwrap()),
        to: Some("fd00:9::/64".parse().unwrap()),
        iif: Some("lo".to_owned()),
        priority: 77,
        ..Rule::to_table(Family::V6, 1000)
    };
    let bare = Rule::from_address("10.1.0.2".parse().unwrap(), 100);
    space.run(|_, netlink| {
        done(netlink, rule::add(&whole));
        done(netlink, rule::add(&bare));
        let error = netlink.send_one(rule::add(&whole)).unwrap_err();
        assert_eq!(error.to_string(), "ip -6 rule add from fd00::/64 to fd00:9::/64 iif lo priority 77 table 1000: EEXIST: File exists");
        let six = netlink.rules(Some(Family::V6)).unwrap();
        assert_eq!(six.iter().find(|r| r.table == 1000), Some(&whole));
        let all = netlink.rules(None).unwrap();
        let read = all.iter().find(|r| r.table == 100).unwrap();
        assert_eq!((read.only_from(), read.priority), ("10.1.0.2".parse().ok(), 32765), "before the main table's, which is 32766");
        assert!(all.iter().filter(|r| r.family == Family::V4).count() == 4 && all.iter().all(|r| !r.has_more));
    });
    let told = space.ip("rule show table 100");
    assert_eq!((&told[0]["src"], &told[0]["priority"]), (&json!("10.1.0.2"), &json!(32765)));
    let told = space.ip("-6 rule show table 1000");
    assert_eq!((&told[0]["dst"], &told[0]["iif"], &told[0]["priority"]), (&json!("fd00:9::"), &json!("lo"), &json!(77)));
    space.run(|_, netlink| {
        done(netlink, rule::delete(&whole));
        done(netlink, rule::delete(&bare));
        assert_eq!(netlink.send_one(rule::delete(&bare)).unwrap_err().errno(), Errno::ENOENT);
    });
    assert_eq!(space.ip("rule show table 100"), json!([]));
}

#[test]
fn what_others_made_is_told_from_ours() {
    let space = Space::new();
    for line in [
        "rule add from 10.1.0.2 fwmark 7 table 100",
        "rule add not from 10.1.0.2 table 101",
        "rule add from 10.1.0.2 table main suppress_prefixlength 0",
        "rule add from 10.1.0.2 blackhole",
        "rule add from 10.1.0.2 ipproto tcp dport 80 table 102",
        "rule add from 10.1.0.2 table 103",
    ] {
        space.ip_do(line);
    }
    space.run(|_, netlink| {
        let rules = netlink.rules(None).unwrap();
        let ours: Vec<u32> = rules.iter().filter(|r| r.only_from().is_some()).map(|r| r.table).collect();
        assert_eq!(ours, [103]);
        assert!(rules.iter().any(|r| r.action == RuleAction::Other(6)));
    });
}
