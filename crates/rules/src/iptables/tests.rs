//! What the programs do with our words, in namespaces of their own.

use std::time::{Duration, Instant};

use linux::Family;

use crate::iptables::{Changes, Iptables, IptablesError, Rule};
use crate::tests::Namespace;

fn both(test: impl Fn(Iptables, &Namespace) + Sync) {
    for family in [Family::V4, Family::V6] {
        let host = Namespace::new();
        let iptables = Iptables::new(family, Instant::now() + Duration::from_secs(60));
        host.netns.enter(|_| test(iptables, &host)).unwrap();
    }
}

fn saved(host: &Namespace, iptables: Iptables) -> Vec<String> {
    let text = host.run(&format!("{} -t nat", iptables.program("save")));
    text.lines().filter(|l| l.starts_with("-A") || l.starts_with(":FOO")).map(str::to_owned).collect()
}

#[test]
fn chains_and_rules_come_and_go_together() {
    both(|iptables, host| {
        let awkward = Rule::new(["-m", "comment", "--comment", "name: \"a b\" \\ 'c' id: \"\"", "-j", "RETURN"]);
        let mut changes = Changes::of("nat");
        changes.new_chain("FOO");
        changes.append("FOO", &awkward);
        changes.insert("FOO", &Rule::new(["-p", "tcp", "-m", "tcp", "--dport", "80", "-j", "ACCEPT"]));
        changes.append("OUTPUT", &Rule::new(["-j", "FOO"]));
        iptables.restore(&changes).unwrap();
        let text = saved(host, iptables);
        let wanted = [
            ":FOO - [0:0]",
            "-A OUTPUT -j FOO",
            "-A FOO -p tcp -m tcp --dport 80 -j ACCEPT",
            r#"-A FOO -m comment --comment "name: \"a b\" \\ \'c\' id: \"\"" -j RETURN"#,
        ];
        assert_eq!(text, wanted);

        let there = iptables.saved("nat").unwrap();
        assert!(there.has_chain("FOO") && !there.has_chain("BAR") && there.has("FOO", &awkward));
        assert_eq!(there.leading_to("FOO").map(|(of, rule)| (of, rule.to_string())).collect::<Vec<_>>(), [("OUTPUT", "-j FOO".to_owned())]);
        assert_eq!(iptables.missing("nat", &[("FOO".to_owned(), awkward.clone())]), Ok(None));
        let other = ("FOO".to_owned(), Rule::new(["-p", "udp", "-j", "RETURN"]));
        let asked = [("FOO".to_owned(), awkward), other.clone()];
        assert_eq!(iptables.missing("nat", &asked), Ok(Some(&other)));

        // Refused in the last line: nothing of it has happened, and the message has the line.
        let mut refused = Changes::of("nat");
        refused.empty_chain("FOO");
        refused.new_chain("BAR");
        refused.delete("OUTPUT", &other.1);
        let e = iptables.restore(&refused).unwrap_err();
        assert!(matches!(&e, IptablesError::Refused { line: Some(4), code: Some(1), .. }), "{e}");
        assert!(e.to_string().contains("-D OUTPUT -p udp -j RETURN"), "{e}");
        assert_eq!(saved(host, iptables), wanted);

        iptables
            .change("nat", |there| {
                let mut gone = Changes::of("nat");
                for (chain, rule) in there.leading_to("FOO") {
                    gone.delete(chain, rule);
                }
                gone.remove_chain("FOO");
                gone
            })
            .unwrap();
        assert_eq!(saved(host, iptables), Vec::<String>::new());
    });
}

#[test]
fn what_was_overtaken_is_done_anew() {
    both(|iptables, host| {
        let program = if iptables.program("save").starts_with("ip6") { "ip6tables" } else { "iptables" };
        let overtake = std::sync::Once::new();
        iptables
            .change("nat", |there| {
                // Between the look and the change another program makes the same chain.
                overtake.call_once(|| drop(host.run(&format!("{program} -t nat -N FOO"))));
                let mut changes = Changes::of("nat");
                if !there.has_chain("FOO") {
                    changes.new_chain("FOO");
                }
                changes.append("OUTPUT", &Rule::new(["-j", "FOO"]));
                changes
            })
            .unwrap();
        assert_eq!(saved(host, iptables), [":FOO - [0:0]", "-A OUTPUT -j FOO"]);
    });
}

#[test]
fn a_line_break_is_no_second_rule() {
    let mut changes = Changes::of("nat");
    changes.append("OUTPUT", &Rule::new(["-d", "192.0.2.1\n-A INPUT -j ACCEPT"]));
    let e = Iptables::new(Family::V4, Instant::now()).restore(&changes).unwrap_err();
    assert!(matches!(e, IptablesError::ControlCharacter { .. }));
}
