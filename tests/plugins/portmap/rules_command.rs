//! `netloom rules`: what is installed, in words and for programs.

use netloom_tests::netloom;
use serde_json::{Value, json};

use crate::portmap::scene::{HOST4, Scene, tcp};

#[test]
fn rules_are_told_in_words_and_for_programs() {
    let scene = Scene::new();
    let at_one = json!({"hostPort": 53, "containerPort": 5353, "protocol": "udp", "hostIP": HOST4});
    let of_c2 = || scene.add_with("c2", &json!([tcp(9090, 90)]), &json!({"masqAll": true}));
    // Its chain stays.
    scene.del(&of_c2());
    let before = scene.host.traces();
    let (c1, c2) = (scene.add("c1", &json!([tcp(8080, 80), at_one])), of_c2());
    let address = |attached: &Value, v4: bool| {
        let ips = attached["ips"].as_array().unwrap().iter().map(|ip| ip["address"].as_str().unwrap());
        ips.map(|ip| ip.split('/').next().unwrap().to_owned()).find(|ip| ip.contains('.') == v4).unwrap()
    };
    let (first, second) = (address(&c1.result, true), address(&c2.result, true));
    let rules = |args: &[&str]| {
        let program = netloom().to_str().unwrap();
        scene.host.run("", &[&[program, "rules", "--socket", "/nowhere"], args].concat())
    };
    let text = rules(&[]);
    for wanted in [
        format!("  tcp/8080   of any address of the host leads to {first}:80"),
        format!("  udp/53     of {HOST4} leads to {first}:5353"),
        format!("  hairpin    connections from 10.88.0.0/24 and 127.0.0.0/8 to its host ports reach {first} with the host's address"),
        format!("  tcp/9090   of any address of the host leads to {second}:90"),
        format!("  hairpin    connections from anywhere to its host ports reach {second} with the host's address"),
    ] {
        assert!(text.lines().any(|line| line == wanted), "{wanted}\n{text}");
    }
    let told: Value = serde_json::from_str(&rules(&["-o", "json"])).unwrap();
    let published: Vec<_> =
        told.as_array().unwrap().iter().filter(|rule| rule["kind"] == "hostPort" && rule.get("hostIP").is_some()).collect();
    assert_eq!(published.len(), 1, "{told}");
    let expected =
        json!({"protocol": "udp", "hostIP": HOST4, "hostPort": 53, "address": first, "containerPort": 5353, "interface": "eth0"});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&published[0][key], value, "{key}: {told}");
    }
    scene.del(&c1);
    assert!(!rules(&[]).contains(&first), "what is gone is not told");
    scene.del(&c2);
    assert!(rules(&[]).starts_with("no attachment has firewall entries here"));
    scene.host.expect_traces(&before, "DEL of both");
}
