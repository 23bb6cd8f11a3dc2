//! `netloom nodes`

use json::{Object, Value};

use super::super::nodes::render;
use super::{PIPED, plain, value};

const NODES: &str = r#"[
    {"name": "a", "own": true, "addresses": ["192.0.2.11"], "ranges": ["10.1.1.0/24"], "problems": []},
    {"name": "b", "own": false, "addresses": ["192.0.2.12"], "ranges": ["10.1.2.0/24", "fd00:1:2::/64"], "reached": true, "problems": [], "ways": [
        {"range": "10.1.2.0/24", "way": "direct", "link": "eth0", "to": "192.0.2.12", "answers": true, "microseconds": 210},
        {"range": "fd00:1:2::/64", "way": "vxlan", "link": "nl6-1000-12b5", "to": "2001:db8::12", "answers": false}]},
    {"name": "c", "own": false, "addresses": [], "ranges": ["10.1.3.0/24"], "reached": false, "problems": ["node c has no usable InternalIP"], "ways": []},
    {"name": "d", "own": false, "addresses": ["192.0.2.14"], "ranges": [], "reached": true, "problems": [], "ways": []}]"#;

#[test]
fn a_row_for_each_range_and_what_is_wrong_below() {
    let nodes = value(NODES);
    let nodes: Vec<&Object> = nodes.as_array().unwrap().iter().filter_map(Value::as_object).collect();
    let text = render(&nodes, PIPED);
    let expected = "\
NODE  POD RANGES     WAY                    TO            ANSWERS
a     10.1.1.0/24    this node              192.0.2.11
b     10.1.2.0/24    direct by eth0         192.0.2.12    0.21 ms
      fd00:1:2::/64  vxlan by nl6-1000-12b5 2001:db8::12  no
c     10.1.3.0/24    not reached            -
  node c has no usable InternalIP
d     -              -                      192.0.2.14
";
    let lines = |text: &str| text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>();
    assert_eq!(lines(&plain(&text)), lines(expected));
    assert!(text.contains("\u{1b}[31m"), "what is not reached is red: {text:?}");
}

#[test]
fn a_tunnel_of_wireguard_shows_its_handshake_and_its_traffic() {
    let nodes = r#"[
    {"name": "a", "own": true, "addresses": ["192.0.2.11"], "ranges": ["10.1.1.0/24"], "problems": []},
    {"name": "b", "own": false, "ranges": ["10.1.2.0/24"], "reached": true, "problems": [], "ways": [
        {"range": "10.1.2.0/24", "way": "wireguard", "link": "nlw-ca6c", "to": "192.0.2.12:51820", "answers": true, "microseconds": 210,
         "handshakeSeconds": 7, "received": 9999, "sent": 123456}]},
    {"name": "c", "own": false, "ranges": ["10.1.3.0/24"], "reached": true, "problems": [], "ways": [
        {"range": "10.1.3.0/24", "way": "wireguard", "link": "nlw-ca6c", "to": "192.0.2.13:51820", "answers": false}]}]"#;
    let nodes = value(nodes);
    let nodes: Vec<&Object> = nodes.as_array().unwrap().iter().filter_map(Value::as_object).collect();
    let text = plain(&render(&nodes, PIPED));
    let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "NODE POD RANGES WAY TO ANSWERS HANDSHAKE RECEIVED SENT",
            "a 10.1.1.0/24 this node 192.0.2.11",
            "b 10.1.2.0/24 wireguard by nlw-ca6c 192.0.2.12:51820 0.21 ms 7 s ago 9999 B 120 KiB",
            "c 10.1.3.0/24 wireguard by nlw-ca6c 192.0.2.13:51820 no none yet - -",
        ]
    );
}
