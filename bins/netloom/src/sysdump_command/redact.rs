//! Secrets: what is behind a key with such a name does not get into an archive.

use json::{Object, Value};

/// What stands in the place of a secret.
const REDACTED: &str = "REDACTED";
/// Parts of keys, in small letters without separators.
const WORDS: [&str; 10] =
    ["password", "passwd", "passphrase", "secret", "token", "privatekey", "credential", "psk", "clientkeydata", "authorization"];

/// A file's bytes without secrets: JSON by its keys, other text line by line.
pub(super) fn redacted(bytes: Vec<u8>) -> Vec<u8> {
    if let Ok(value) = json::parse(&bytes) {
        return format!("{}\n", json::compact(&without(value))).into_bytes();
    }
    match String::from_utf8(bytes) {
        Ok(text) => text.lines().map(|line| line_without(line) + "\n").collect::<String>().into_bytes(),
        Err(e) => e.into_bytes(),
    }
}

/// Whether a key names a secret. A path of a file with one is none.
fn is_secret(key: &str) -> bool {
    let plain: String = key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    WORDS.iter().any(|word| plain.contains(word)) && !plain.ends_with("file") && !plain.ends_with("path") && !plain.ends_with("dir")
}

fn without(value: Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(object.iter().map(|(key, value)| (key.to_owned(), below(key, value))).collect::<Object>()),
        Value::Array(list) => Value::Array(list.into_iter().map(without).collect()),
        // A configuration may be a text in a configuration.
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => match json::parse(text.as_bytes()) {
            Ok(inner) => Value::String(json::compact(&without(inner))),
            Err(_) => Value::String(text.lines().map(line_without).collect::<Vec<_>>().join("\n")),
        },
        other => other,
    }
}

fn below(key: &str, value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) => value.clone(),
        _ if is_secret(key) => Value::String(REDACTED.to_owned()),
        value => without(value.clone()),
    }
}

/// `key: value`, `key=value` and `"key": "value"`, each up to the end of the line; and what follows `Bearer`.
fn line_without(line: &str) -> String {
    let cut = line.char_indices().filter(|(_, c)| matches!(c, ':' | '=')).map(|(at, _)| at).find(|at| {
        let key = line.get(..*at).unwrap_or_default().trim_end().trim_end_matches(['"', '\'']);
        is_secret(key.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '-').next().unwrap_or_default())
    });
    match (cut, line.find("Bearer ")) {
        (Some(at), _) => format!("{} {REDACTED}", line.get(..=at).unwrap_or_default()),
        (None, Some(at)) => format!("{}Bearer {REDACTED}", line.get(..at).unwrap_or_default()),
        (None, None) => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(input: &str) -> String {
        String::from_utf8(redacted(input.as_bytes().to_vec())).unwrap()
    }

    #[test]
    fn secrets_of_json() {
        let input = r#"{"name": "x", "etcd_password": "p", "auth": {"clientSecret": {"a": 1}, "tokenFile": "/t"},
            "config": "{\"apiToken\":\"t\",\"mtu\":1500}", "list": [{"private-key": "k"}], "passwords": null}"#;
        let expected = r#"{"name":"x","etcd_password":"REDACTED","auth":{"clientSecret":"REDACTED","tokenFile":"/t"},"config":"{\"apiToken\":\"REDACTED\",\"mtu\":1500}","list":[{"private-key":"REDACTED"}],"passwords":null}"#;
        assert_eq!(text(input).trim_end(), expected);
    }

    #[test]
    fn secrets_of_other_texts() {
        let input = "mtu: 1500\n  password: hunter2 and more\nTOKEN=abc\nAuthorization: Bearer abc\nsaid Bearer abc\nlast: 1\n{\"secret\": \"x\", oops";
        let expected = "mtu: 1500\n  password: REDACTED\nTOKEN= REDACTED\nAuthorization: REDACTED\nsaid Bearer REDACTED\nlast: 1\n{\"secret\": REDACTED\n";
        assert_eq!(text(input), expected);
    }
}
