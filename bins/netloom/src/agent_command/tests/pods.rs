//! `netloom pods`

use json::Object;

use super::super::pods::{in_namespace, render};
use super::{PIPED, object, plain, terminal, value, widest};

const PODS: &str = r#"[
  {"namespace": "default", "name": "web-0", "uid": "u1", "container": "0123456789abcdef0123", "state": "Attached",
   "at": "2026-11-21T16:04:05Z", "networks": [
    {"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.5"], "mac": "0a:58:0a:f4:00:05", "default": true, "gateway": ["10.244.0.1"]},
    {"name": "infra/backbone", "interface": "net1", "ips": ["192.168.77.5", "fd00:1234:5678:9abc:def0:1234:5678:9ab5"], "mtu": 9000}]},
  {"namespace": "default", "name": "web-1", "container": "1123456789abcdef0123", "state": "Changed",
   "reasons": ["net1: address 192.168.77.6/24 is gone", "eth0: is down"],
   "networks": [{"name": "cbr0", "interface": "eth0", "ips": ["10.244.0.6"]}]},
  {"namespace": "shop", "name": "db-0", "container": "2123456789abcdef0123", "state": "Failed", "networks": [],
   "reasons": ["plugin type=\"macvlan\" failed (add): master: link eth7 does not exist in the namespace of the node; correct the definition infra/backbone, or add the link"]},
  {"namespace": "shop", "name": "job", "container": "3123456789abcdef0123", "state": "Removing", "networks": [{"name": "cbr0", "interface": "eth0"}]},
  {"container": "4123456789abcdef0123", "state": "Unreadable", "reasons": ["sandboxes/4123.json: line 1 column 4: expected value"]}
]"#;

fn rendered(wide: bool, look: super::Look) -> String {
    let all = value(PODS);
    let pods: Vec<&Object> = all.as_array().unwrap().iter().filter_map(json::Value::as_object).collect();
    render(&pods, wide, look)
}

#[test]
fn a_row_for_each_attachment_and_below_them_what_is_wrong() {
    let expected = r#"POD                      STATE       NETWORK         INTERFACE  ADDRESSES
default/web-0            Attached    cbr0            eth0       10.244.0.5
                                     infra/backbone  net1       192.168.77.5, fd00:1234:5678:9abc:def0:1234:5678:9ab5
default/web-1            Changed     cbr0            eth0       10.244.0.6
  net1: address 192.168.77.6/24 is gone
  eth0: is down
shop/db-0                Failed      -               -          -
  plugin type="macvlan" failed (add): master: link eth7 does not exist in the namespace of the node; correct the definition infra/backbone, or add the link
shop/job                 Removing    cbr0            eth0       -
container 4123456789abc  Unreadable  -               -          -
  sandboxes/4123.json: line 1 column 4: expected value
"#;
    let text = rendered(false, PIPED);
    assert_eq!(plain(&text), expected);
    for (line, colour) in [("shop/db-0", "31"), ("  plugin", "31"), ("container", "31"), ("default/web-1", "33"), ("  eth0: is", "33")] {
        let painted = text.lines().find(|own| plain(own).starts_with(line)).unwrap();
        assert!(painted.contains(&format!("\u{1b}[{colour}m")), "{painted:?}");
    }
    let good = text.lines().find(|line| line.contains("web-0")).unwrap();
    assert_eq!(good, plain(good), "what is well has no colour");
}

#[test]
fn wide_has_every_column() {
    let text = plain(&rendered(true, terminal(80)));
    let lines: Vec<&str> = text.lines().collect();
    let header: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(header, ["POD", "STATE", "NETWORK", "INTERFACE", "ADDRESSES", "MAC", "GATEWAY", "CONTAINER", "SINCE"]);
    let row: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(row[5..], ["0a:58:0a:f4:00:05", "10.244.0.1", "0123456789abc", "2026-11-21T16:04:05Z"]);
}

#[test]
fn a_narrow_terminal_gets_less() {
    for (columns, network) in [(120, true), (110, true), (90, false), (80, false)] {
        let text = rendered(false, terminal(columns));
        assert!(widest(&text) <= columns, "{columns}:\n{text}");
        assert_eq!(text.contains("NETWORK"), network, "{columns}:\n{text}");
        assert!(text.contains("fd00:1234:5678:9abc:def0:1234:5678:9ab5"), "an address is never cut:\n{text}");
    }
    // Where nothing fits, the smallest table is shown whole.
    let text = plain(&rendered(false, terminal(30)));
    assert!(text.lines().any(|line| line.ends_with("fd00:1234:5678:9abc:def0:1234:5678:9ab5")), "{text}");
}

#[test]
fn what_is_missing_or_unknown_does_no_harm() {
    let odd =
        object(r#"{"name": "x", "state": "Dancing", "networks": [7, {"interface": ["eth0"], "ips": "10.0.0.1"}], "reasons": "none"}"#);
    let empty = object("{}");
    let text = plain(&render(&[&odd, &empty], true, PIPED));
    assert!(text.contains("-/x") && text.contains("Dancing"), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
    let line_break = object(r#"{"namespace": "a", "name": "x\ny\u001b[2J", "state": "Failed", "reasons": ["one\ntwo"]}"#);
    let text = plain(&render(&[&line_break], false, PIPED));
    assert_eq!(text.lines().nth(1).unwrap().split_whitespace().collect::<Vec<_>>(), ["a/x", "y\\u{1b}[2J", "Failed", "-", "-", "-"]);
    assert!(text.ends_with("\n  one\n  two\n"), "{text}");
}

#[test]
fn a_record_that_cannot_be_read_may_be_of_any_namespace() {
    assert!(in_namespace(&object(r#"{"namespace": "a"}"#), "a"));
    assert!(!in_namespace(&object(r#"{"namespace": "b"}"#), "a"));
    assert!(in_namespace(&object(r#"{"container": "x", "state": "Unreadable"}"#), "a"));
}
