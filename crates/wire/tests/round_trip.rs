//! Messages come back as they were sent, and what is none is refused with its reason.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStringExt;

use json::{Object, Value};
use netloom_wire::{
    AdminReply, Answer, Ask, Call, MAX_MESSAGE, Message, PROTOCOL, Ran, Run, ToAgent, ToShim, WireError, parse, print, receive, send,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn back<M: Message>(message: &M) -> M {
    let mut sent = Vec::new();
    send(&mut sent, message).unwrap();
    receive(&mut sent.as_slice()).unwrap().unwrap()
}

fn call() -> impl Strategy<Value = Call> {
    let text = any::<String>;
    let texts = (text(), text(), text(), text(), text(), text(), text(), (text(), text()));
    (any::<u32>(), texts, any::<bool>(), vec(any::<u8>(), 0..200), any::<u64>()).prop_map(
        |(protocol, texts, netns_override, config, millis)| {
            let (program, verb, container_id, netns, ifname, args, path, conflict) = texts;
            Call { protocol, program, verb, container_id, netns, ifname, args, path, netns_override, config, millis, conflict }
        },
    )
}

fn run() -> impl Strategy<Value = Run> {
    let os = || vec(1..=255u8, 0..20).prop_map(OsString::from_vec);
    (os(), vec((os(), os()), 0..5), vec(any::<u8>(), 0..200), any::<u64>()).prop_map(|(path, env, stdin, millis)| Run {
        path: path.into(),
        env,
        stdin,
        millis,
    })
}

fn ran() -> impl Strategy<Value = Ran> {
    let bytes = || vec(any::<u8>(), 0..200);
    let done = (any::<bool>(), any::<String>(), bytes(), bytes());
    prop_oneof![
        done.prop_map(|(success, ended, stdout, stderr)| Ran::Done { success, ended, stdout, stderr }),
        (any::<bool>(), any::<String>()).prop_map(|(try_again, reason)| Ran::Failed { try_again, reason }),
    ]
}

proptest! {
    #[test]
    fn every_message_survives(call in call(), run in run(), ran in ran(), exit in any::<u8>(), stdout in vec(any::<u8>(), 0..200)) {
        prop_assert_eq!(&back(&call), &call);
        prop_assert_eq!(back(&ToAgent::Call(call.clone())), ToAgent::Call(call));
        prop_assert_eq!(back(&ToAgent::Ran(ran.clone())), ToAgent::Ran(ran));
        prop_assert_eq!(back(&ToShim::Run(run.clone())), ToShim::Run(run));
        let answer = Answer { exit, stdout, again: exit == 0, probe: exit == 1 };
        prop_assert_eq!(back(&ToShim::Answer(answer.clone())), ToShim::Answer(answer));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in vec(any::<u8>(), 0..300)) {
        let _ = parse::<ToAgent>(&bytes);
        let _ = receive::<ToShim>(&mut bytes.as_slice());
        let _ = parse::<AdminReply>(&bytes);
    }

    /// Whatever is cut off, it is no message; and nothing is read beyond one.
    #[test]
    fn a_part_is_no_message(call in call(), keep in 0.0..1.0f64) {
        let mut sent = Vec::new();
        send(&mut sent, &call).unwrap();
        let keep = (sent.len() as f64 * keep) as usize;
        match receive::<Call>(&mut sent.as_slice().take(keep as u64)) {
            Ok(None) => prop_assert_eq!(keep, 0),
            other => prop_assert!(matches!(other, Err(WireError::Cut { .. })), "{:?}", other),
        }
        sent.extend_from_slice(b"next");
        let mut rest = sent.as_slice();
        prop_assert_eq!(receive::<Call>(&mut rest).unwrap(), Some(call));
        prop_assert_eq!(rest, b"next");
    }
}

#[test]
fn questions_and_answers_survive() {
    let Ok(Value::Object(args)) = json::parse(br#"{"pod":"default/a","limit":[1,{"x":null}]}"#) else { panic!("no object") };
    let ask = Ask { what: "explain".to_owned(), args };
    assert_eq!(back(&ask), ask);
    let deep = json::parse(br#"[{"a":[1.5,true,"b"]}]"#).unwrap();
    for told in [AdminReply::Value(deep), AdminReply::Value(Value::Null), AdminReply::Refused("no such pod".to_owned())] {
        assert_eq!(back(&told), told);
    }
}

/// An agent and an executable of different versions understand each other.
#[test]
fn unknown_keys_are_passed_over_and_missing_ones_are_empty() {
    let text = br#"{"CALL":{"protocol":7,"verb":"DEL","containerID":"c1","netns":null,"new":{"a":[1]}},"trace":"x"}"#;
    let call: Call = parse(text).unwrap();
    assert_eq!(call, Call { protocol: 7, verb: "DEL".to_owned(), container_id: "c1".to_owned(), ..Call::default() });
    assert_ne!(call.protocol, PROTOCOL);
}

#[test]
fn what_is_no_text_is_base64_and_what_is_costly_as_text_too() {
    let answer = |stdout: &[u8]| String::from_utf8(print(&Answer { exit: 1, stdout: stdout.to_vec(), ..Answer::default() })).unwrap();
    assert_eq!(answer("\"äöü\"".as_bytes()), r#"{"answer":{"exit":1,"stdout":"\"äöü\""}}"#);
    assert_eq!(answer(b"\xff\xfe"), r#"{"answer":{"exit":1,"stdout":{"base64":"//4="}}}"#);
    assert!(answer(&[1; 3000]).len() < 4100);
}

#[test]
fn refusals_say_what_and_where() {
    let refused = |text: &str| parse::<ToShim>(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(refused("[]"), "a message is not a JSON object: found a list; check that the peer uses this protocol");
    let unexpected = r#"a message has the keys ["call"] where one of ["run", "answer"] is expected; the peer may be a newer version"#;
    assert_eq!(refused(r#"{"call":{}}"#), unexpected);
    assert_eq!(refused(r#"{"answer":3}"#), r#"message "answer": answer: expected an object, found a number"#);
    assert_eq!(refused(r#"{"answer":{"exit":256}}"#), r#"message "answer": exit: expected a number in its range, found a number"#);
    assert_eq!(refused(r#"{"answer":{}}"#), r#"message "answer": exit: expected a number in its range, found nothing"#);
    let stdout = r#"message "answer": stdout: expected a string, or {"base64": ...}, found an object"#;
    assert_eq!(refused(r#"{"answer":{"exit":1,"stdout":{"base64":"?"}}}"#), stdout);
    assert!(refused(r#"{"run":{"millis":1,"env":[["a"]]}}"#).contains("env: expected a list of pairs"));
    assert!(refused(&"[".repeat(1000)).contains("recursion limit"));
}

/// Who only announces bytes costs no memory, and more than the limit is refused before anything of it is read or sent.
#[test]
fn lengths_are_limited_both_ways() {
    let announced = u32::try_from(MAX_MESSAGE + 1).unwrap().to_be_bytes();
    let mut bytes = announced.as_slice().chain(std::io::repeat(b' '));
    assert_eq!(receive::<ToShim>(&mut bytes), Err(WireError::TooLarge { length: MAX_MESSAGE + 1, limit: MAX_MESSAGE }));
    let mut sent = Vec::new();
    let huge = Answer { exit: 0, stdout: vec![b'a'; MAX_MESSAGE], ..Answer::default() };
    assert!(matches!(send(&mut sent, &huge), Err(WireError::TooLarge { .. })));
    assert!(sent.is_empty());
    let largest = Answer { exit: 0, stdout: vec![0; json::MAX_INPUT], ..Answer::default() };
    assert_eq!(back(&largest), largest);
}

#[test]
fn a_broken_connection_is_told_by_its_kind() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(ErrorKind::ConnectionReset.into())
        }
    }
    let e = receive::<ToShim>(&mut Broken).unwrap_err();
    assert_eq!(e, WireError::Connection { step: "receive a message", kind: ErrorKind::ConnectionReset });
    assert_eq!(Object::new(), Ask::default().args);
}
