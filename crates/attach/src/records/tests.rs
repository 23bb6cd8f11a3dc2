use super::*;
use npwg::DeviceInfo;

use chain::MadeBy;
use cni::{AddResult, CniArgs, NetworkList, Version};

use crate::{PodView, ReportedDevice, State, Step};

struct Dir(PathBuf);

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn records(name: &str) -> (Dir, Records) {
    let dir = std::env::temp_dir().join(format!("nlrec-{}-{name}", std::process::id()));
    (Dir(dir.clone()), Records::new(dir))
}

fn record() -> Record {
    let result = r#"{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mtu":1450,"sandbox":"/run/netns/x"}],"ips":[{"address":"10.0.0.2/24","interface":0}]}"#;
    let list = |name: &str| {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"{name}","plugins":[{{"type":"bridge","Unknown":{{"Key":null}}}}]}}"#);
        NetworkList::parse(text.as_bytes(), None).unwrap()
    };
    let step = |name: &str, default, state| Step {
        name: name.to_owned(),
        default,
        list: list("net"),
        ifname: "eth0".parse().unwrap(),
        capability_args: json::parse(br#"{"mac":"02:00:00:00:00:01"}"#).unwrap().as_object().unwrap().clone(),
        default_route: (!default).then(|| vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]),
        device: match default {
            true => ReportedDevice::Unusable("it is not JSON".to_owned()),
            false => ReportedDevice::Info(DeviceInfo::parse(br#"{"type":"cxl","version":"2.0.0","Key":[null]}"#).unwrap()),
        },
        made_by: MadeBy::read(json::parse(br#"{"madeBy":{"bridge":"/opt/cni/bin/bridge","x":"netloom 9"}}"#).unwrap().as_object().unwrap()),
        took: default.then(|| Duration::from_micros(1234)),
        state,
    };
    Record {
        sandbox: "pod-1".parse().unwrap(),
        boot: linux::boot_id().unwrap(),
        netns: "/run/netns/x".into(),
        netns_id: linux::Netns::current().unwrap().id(),
        netns_cookie: linux::Netns::current().unwrap().cookie().unwrap(),
        made_at: Some(1_700_000_000),
        pod: PodView { namespace: "a".into(), name: "b".into(), networks: Some("c".into()), ..PodView::default() },
        args: CniArgs::parse("K8S_POD_NAME=b").unwrap(),
        steps: vec![
            step("lab", true, State::Added(AddResult::parse(result.as_bytes(), Version::LATEST).unwrap().0)),
            step("a/c", false, State::Intended),
        ],
    }
}

#[test]
fn what_is_written_is_read() {
    let (_dir, records) = records("read");
    let record = record();
    assert_eq!(records.read(&record.sandbox), Ok(None));
    records.write(&record).unwrap();
    assert_eq!(records.read(&record.sandbox), Ok(Some(record.clone())));
    assert_eq!(records.sandboxes(), Ok(vec![record.sandbox.clone()]));
    records.remove(&record.sandbox).unwrap();
    records.remove(&record.sandbox).unwrap();
    assert_eq!(records.sandboxes(), Ok(vec![]));
}

/// An administrator's editor, or `jq`, writes a line for each key.
#[test]
fn a_record_in_many_lines_is_refused_with_the_reason() {
    let (dir, records) = records("lines");
    std::fs::create_dir_all(&dir.0).unwrap();
    std::fs::write(dir.0.join("pod-1.json"), "{\n  \"schema\": 1\n}\n").unwrap();
    let e = records.read(&"pod-1".parse().unwrap()).unwrap_err().to_string();
    assert!(e.contains("(a record is one line, and one more for its results)"), "{e}");
}

/// The kernel's cookie and the times came to records without a new schema.
#[test]
fn a_record_without_a_cookie_and_times_is_read() {
    let (dir, records) = records("cookie");
    let mut record = record();
    records.write(&record).unwrap();
    let path = dir.0.join("pod-1.json");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let cookie = format!("\"netnsCookie\":{},", record.netns_cookie.unwrap());
    for new in [cookie.as_str(), "\"madeAt\":1700000000,", ",\"tookMicros\":1234"] {
        assert!(text.contains(new), "{new}: {text}");
        text = text.replace(new, "");
    }
    std::fs::write(&path, text).unwrap();
    (record.netns_cookie, record.made_at, record.steps[0].took) = (None, None, None);
    assert_eq!(records.read(&record.sandbox), Ok(Some(record)));
}

#[test]
fn a_newer_and_a_torn_record_are_named_and_kept() {
    let (dir, records) = records("torn");
    let record = record();
    records.write(&record).unwrap();
    let path = dir.0.join("pod-1.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"schema\":1", "\"schema\":2")).unwrap();
    assert_eq!(records.read(&record.sandbox), Err(RecordError::Newer { path: path.clone(), found: 2 }));
    // Whatever its other lines are.
    for behind in ["", "x", "{}\n", "{\"steps\":[{},{}]}\n", "{\"steps\":[{},{}]}\n{\"new\":1}\n"] {
        std::fs::write(&path, format!("{{\"schema\":2}}\n{behind}")).unwrap();
        assert_eq!(records.read(&record.sandbox), Err(RecordError::Newer { path: path.clone(), found: 2 }), "{behind}");
    }
    for end in 0..text.len() {
        std::fs::write(&path, &text[..end]).unwrap();
        assert!(matches!(records.read(&record.sandbox), Err(RecordError::Torn { .. })), "cut at {end}");
    }
    assert!(path.exists());
}

/// An ADD that is killed while it says what came of its steps has made them, and has not answered: they count as intended, until the line is
/// whole.
#[test]
fn an_outcome_counts_when_it_is_whole() {
    let (dir, records) = records("outcome");
    let made = record();
    let mut intended = made.clone();
    for step in &mut intended.steps {
        (step.state, step.took, step.device) = (State::Intended, None, ReportedDevice::Nothing);
    }
    records.write(&intended).unwrap();
    let path = dir.0.join("pod-1.json");
    let before = std::fs::read_to_string(&path).unwrap().len();
    records.write_outcome(&made).unwrap();
    assert_eq!(records.read(&made.sandbox), Ok(Some(made.clone())));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.get(before..).unwrap().contains("\"result\"") && text.lines().count() == 2, "{text}");
    for end in before..text.len() {
        std::fs::write(&path, &text[..end]).unwrap();
        assert_eq!(records.read(&made.sandbox), Ok(Some(intended.clone())), "cut at {end}");
    }
    // A whole one that says something else is nobody's to guess at.
    for bad in ["[]", "{}", r#"{"steps":[{}]}"#, r#"{"steps":[{},7]}"#, r#"{"steps":[{},{"result":7}]}"#, r#"{"steps":[{},{"#] {
        std::fs::write(&path, format!("{}\n{bad}\n", &text[..before])).unwrap();
        assert!(matches!(records.read(&made.sandbox), Err(RecordError::Torn { .. })), "{bad}");
    }
    // With the next whole record that is over.
    records.write(&made).unwrap();
    assert_eq!(records.read(&made.sandbox), Ok(Some(made.clone())));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(records.write_outcome(&made), Err(RecordError::Io { .. })));
}
