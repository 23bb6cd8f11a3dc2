//! Input of every size: what is too large is refused by name, what is not costs time and memory in proportion.

use std::time::{Duration, Instant};

use netloom_tests::{Host, plugin_dir};
use serde_json::{Value, json};

use crate::hostile::{bridge, cni, limited_command, outcome, plugin, used};

/// What a call with a configuration of 10 MB may have, in MiB: it is read, kept as a value and as text, and handed on.
const LARGE: u64 = 256;

/// Ten million bytes that mean nothing to a plugin.
fn ballast() -> String {
    "x".repeat(10_000_000)
}

/// Runs something that a busy machine does in seconds, and that would take minutes if it grew faster than its input.
fn quick<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    assert!(begun.elapsed() < Duration::from_secs(150), "{what}: {:?}", begun.elapsed());
    done
}

#[test]
fn a_configuration_of_10_mb_is_read_and_handed_on() {
    let host = used();
    let before = host.traces();
    plugin(&host, "ipam", r#"[ $CNI_COMMAND = ADD ] || exit 0; wc -c >/run/count; echo '{"ips":[{"address":"10.1.0.9/24"}]}'"#);
    // Many small values cost more than one large one.
    let numbers: Vec<u32> = (0..500_000).map(|n| n % 1000).collect();
    for ballast in [json!(ballast()), json!(numbers)] {
        let config = bridge(json!({"ballast": ballast, "ipam": {"type": "ipam"}}));
        let result = quick("10 MB", || cni(&host).limited(LARGE).add(&config));
        let count: usize = std::fs::read_to_string(host.path("/run/count")).unwrap().trim().parse().unwrap();
        assert!(count >= config.to_string().len(), "{count}");
        cni(&host).limited(LARGE).del(&config, &result);
    }
    host.run("", &["rm", "-r", "/run/bin", "/run/count"]);
    host.expect_traces(&before, "10 MB");
}

/// The cache keeps a configuration in base64, beside the result: it was larger than what was read of it again, and DEL
/// did without.
#[test]
fn a_configuration_of_any_size_that_is_accepted_is_kept() {
    let host = used();
    plugin(
        &host,
        "keeps",
        "cat >/run/$CNI_COMMAND; [ $CNI_COMMAND != ADD ] || echo '{\"cniVersion\":\"1.0.0\",\"dns\":{\"domain\":\"told\"}}'",
    );
    let config = json!({"cniVersion": "1.0.0", "name": "large", "plugins": [{"type": "keeps", "ballast": "x".repeat(16_000_000)}]});
    host.write("/etc/cni/net.d/1.conflist", &config.to_string());
    for verb in ["add", "del"] {
        let done = quick(verb, || outcome(limited_command(&host, LARGE, &["cni", verb, "large", "/run/netns/c1"])));
        assert_eq!(done.code, 0, "{verb}: {}", &done.stderr[..done.stderr.len().min(500)]);
    }
    let deleted = std::fs::read_to_string(host.path("/run/DEL")).unwrap();
    assert!(deleted.contains(r#""prevResult""#) && deleted.contains("told"), "DEL was told no result");
}

/// A record keeps it for each attachment, so what one pod can make a node hold is bounded.
#[test]
fn a_definition_of_10_mb_is_refused_and_one_of_100_kb_comes_and_goes() {
    let host = Host::new();
    let before = host.traces();
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "annotations": {"k8s.v1.cni.cncf.io/networks": "net,net"}}});
    host.write("/run/x/pod.json", &pod.to_string());
    let lab = |ballast: String, commands: &[(&str, i32)]| {
        let config = bridge(json!({"ballast": ballast, "quotes": "\"".repeat(1000)}));
        let definition = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": "net"},
            "spec": {"config": config.to_string()}});
        host.write("/run/x/net.json", &definition.to_string());
        let run = |(verb, code): &(&str, i32)| {
            let args: Vec<&str> =
                ["lab", verb].into_iter().chain((*verb == "up").then_some(["--keep-going", "/run/x"]).into_iter().flatten()).collect();
            let done = quick(verb, || outcome(limited_command(&host, 2 * LARGE, &args)));
            assert_eq!(done.code, *code, "{verb}: {}", &done.stderr[..done.stderr.len().min(500)]);
            done.stderr
        };
        commands.iter().map(run).collect::<String>()
    };
    let said = lab(ballast(), &[("up", 3), ("down", 0)]);
    assert!(said.contains("bytes are too large: at most 131072 are accepted") && said.len() < 2000, "{said}");
    lab("x".repeat(100_000), &[("up", 0), ("status", 0), ("down", 0)]);
    host.run("", &["rm", "-r", "/run/x"]);
    host.expect_traces(&before, "large definitions");
}

/// The `n`-th network of four addresses.
fn quarter(n: u32) -> String {
    let [_, b, c, d] = (n * 4).to_be_bytes();
    format!("10.{b}.{c}.{d}/30")
}

fn host_local(keys: Value) -> Value {
    let mut ipam = json!({"type": "host-local"});
    ipam.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    json!({"cniVersion": "1.0.0", "name": "many", "type": "host-local", "ipam": ipam})
}

#[test]
fn ten_thousand_ranges_are_one_set() {
    let host = used();
    let before = host.traces();
    let set: Vec<Value> = (0..10_000).map(|n| json!({"subnet": quarter(n)})).collect();
    let config = host_local(json!({"ranges": [set.clone()]}));
    let one = host.cni(plugin_dir()).limited(64).at("c1", "eth0");
    let result = quick("ADD", || one.add(&config));
    assert_eq!(result["ips"][0]["address"], "10.0.0.2/30");
    assert_eq!(quick("CHECK", || one.check(&config, &result)).code, 0);
    quick("DEL", || one.del(&config, &result));
    host.run("", &["rm", "-r", "/var/lib/cni/networks/many"]);
    host.expect_traces(&before, "10,000 ranges");
    // The last one is the first again: found, and told in a line.
    let mut set = set;
    set.push(json!({"subnet": "10.0.0.0/24"}));
    let done = quick("overlap", || one.call("ADD", "host-local", host_local(json!({"ranges": [set]})).to_string()));
    assert!(done.error()["code"] == 7 && done.message().contains("overlaps") && done.message().len() < 1000, "{done:?}");
}

/// Each set yields an address: an attachment with 10,000 of them is nobody's wish, but it must not keep a node busy.
#[test]
fn ten_thousand_range_sets_are_ten_thousand_addresses() {
    let host = used();
    host.container("c2");
    let before = host.traces();
    let sets: Vec<Value> = (0..10_000).map(|n| json!([{"subnet": quarter(n)}])).collect();
    let config = host_local(json!({"ranges": sets}));
    let one = host.cni(plugin_dir()).limited(64).at("c1", "eth0");
    let result = quick("ADD", || one.add(&config));
    assert_eq!(result["ips"].as_array().unwrap().len(), 10_000);
    let done = quick("another ADD", || one.clone().at("c2", "eth0").call("ADD", "host-local", config.to_string()));
    assert!(done.error()["code"] == 11 && done.message().len() < 1000, "{done:?}");
    quick("DEL", || one.del(&config, &result));
    // All of it in one message would be half a megabyte.
    let asked = one.set("CNI_ARGS", "IP=192.0.2.1").call("ADD", "host-local", config.to_string());
    assert!(asked.error()["code"] == 7 && asked.message().len() < 2000, "{} bytes", asked.message().len());
    host.run("", &["rm", "-r", "/var/lib/cni/networks/many", "/var/lib/cni/networks/.many.index"]);
    host.expect_traces(&before, "10,000 sets");
}

/// One string of an environment has at most 128 KiB (`MAX_ARG_STRLEN`, execve(2)), so the 1 MB of a runtime that means
/// harm never arrives; the longest that does is read, refused by name, or handed on.
#[test]
fn the_longest_cni_args_are_read() {
    const MOST: usize = 128 * 1024 - "CNI_ARGS=".len() - 1;
    let host = used();
    let before = host.traces();
    let fill = |begin: &str, with: &str| begin.to_owned() + &with.repeat((MOST - begin.len()) / with.len());
    let one = cni(&host);
    let call = |args: &str| quick("ADD", || one.clone().set("CNI_ARGS", args).call("ADD", "bridge", bridge(json!({})).to_string()));
    for (args, word) in
        [(fill("IgnoreUnknown=1;", "K"), "KEY=VALUE"), (fill("X=", "x"), "IgnoreUnknown=1"), (fill("MAC=", "00:"), "CNI_ARGS MAC")]
    {
        let done = call(&args);
        assert!(
            done.error()["code"] == 4 && done.message().contains(word) && done.message().len() < 1000,
            "{word}: {} bytes",
            done.stdout.len()
        );
    }
    // As many pairs as there can be, handed on to an executable.
    plugin(
        &host,
        "ipam",
        r#"[ $CNI_COMMAND = ADD ] || exit 0; printf %s "$CNI_ARGS" >/run/args; echo '{"ips":[{"address":"10.1.0.9/24"}]}'"#,
    );
    let config = bridge(json!({"ipam": {"type": "ipam"}}));
    let args = fill("IgnoreUnknown=1;", "A=b;");
    let args = args.trim_end_matches(';');
    let one = one.set("CNI_ARGS", args);
    let result = quick("many pairs", || one.add(&config));
    assert_eq!(std::fs::read_to_string(host.path("/run/args")).unwrap(), args);
    one.del(&config, &result);
    host.run("", &["rm", "-r", "/run/bin", "/run/args"]);
    host.expect_traces(&before, "long CNI_ARGS");
    // No call of ours is needed to refuse what is longer.
    let line = format!("CNI_ARGS=$(head -c {MOST} /dev/zero | tr '\\0' x)y exec true");
    assert!(!host.try_run("", &["sh", "-c", &line]).status.success());
}

/// A length or a number of an attacker that does not fit ends the call: without the checks it would become another number, in what is
/// shipped alone, where no other test runs.
#[test]
fn sums_are_checked_in_what_is_shipped() {
    let text = include_str!("../../../Cargo.toml");
    let profile = |name: &str| {
        let (_, section) = text.split_once(&format!("\n[profile.{name}]\n")).unwrap();
        section.split("\n[").next().unwrap()
    };
    let says = |name: &str, line: &str| profile(name).lines().any(|own| own == line);
    assert!(says("release", "overflow-checks = true"));
    assert!(says("cni", "inherits = \"release\"") && !profile("cni").contains("overflow-checks"));
}
