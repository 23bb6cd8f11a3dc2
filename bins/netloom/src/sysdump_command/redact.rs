//! Secrets: what is behind a key with such a name, or looks like one, does not get into an archive.
//!
//! ```text
//!   JSON --> by its keys, also one object in each line; a text in it is JSON again, or is looked at as other texts are
//!   text --> private keys in PEM, then line by line: JSON in a line; `key: value` and what is indented below it; tokens by their form
//! ```
//!
//! What is not text cannot be looked at.

use std::borrow::Cow;

use json::{Object, Value};
use regex_lite::{Captures, Regex};

/// What stands in the place of a secret.
const REDACTED: &str = "REDACTED";
/// Parts of keys, in small letters without separators.
const WORDS: [&str; 17] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "privatekey",
    "presharedkey",
    "apikey",
    "accesskey",
    "authkey",
    "encryptionkey",
    "credential",
    "psk",
    "clientkeydata",
    "authorization",
    "cookie",
    "kubeconfig",
];
/// The most of a text that is looked at as one JSON, in bytes: in memory it is many times as much.
const MOST_OF_JSON: usize = 1 << 20;
/// How deep JSON is looked for in the texts of JSON.
const DEEPEST: usize = 8;
/// PEM blocks with these labels are no secrets.
const PUBLIC: [&str; 4] = ["CERTIFICATE", "CERTIFICATE REQUEST", "PUBLIC KEY", "X509 CRL"];
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// Forms of secrets that have no key, what a line has at the least where there is one, and what stands for them.
const FORMS: [(&str, &str, &str); 9] = [
    ("eyJ", r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*)*", REDACTED),
    ("earer", r"([Bb]earer) +\S.*", "$1 REDACTED"),
    ("EARER", r"(BEARER) +\S.*", "$1 REDACTED"),
    // Up to the last @ before the path: a password may have one, and a message bus several hosts, each with a password.
    ("://", r#"(://[^/\s:@"'\[]*):[^/\s"']+@"#, "$1:REDACTED@"),
    // A password with a slash in it: what is before that is no port. Up to the last @, as the password may have one behind the slash.
    ("://", r#"(://[^/\s:@"'\[]*):[^\s"'@/]*[^\s"'@/0-9][^\s"'@/]*/[^\s"']*@"#, "$1:REDACTED@"),
    // The same where what is before the slash may be a port. Of http and https that it most often is, with an @ in the path.
    ("://", r#"((?i:[^ps]|[^t]p|[^t]tp|[^h]ttp|[^p]s|[^t]ps|[^t]tps|[^h]ttps)://[^/\s:@"'\[]*):[0-9]*/[^\s"']*@"#, "$1:REDACTED@"),
    // A token in the place of a user. Names of users are shorter.
    ("://", r#"://[^/\s:@"']{20,}@"#, "://REDACTED@"),
    // A token by which a node joins a cluster.
    (".", r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", REDACTED),
    // Of a command line.
    (
        "--",
        r#"(--[A-Za-z0-9-]*(?:password|passwd|passphrase|secret|token|credential|-psk|-key))["']?(?:, *|[ =]+)["']?[^-\s"',]\S*"#,
        "$1 REDACTED",
    ),
];
/// PEM in base64, as kubeconfigs have it: `-----BEGIN`, and `-----BEGIN CERT`.
const ENCODED: (&str, &str) = ("LS0tLS1CRUdJTi", "LS0tLS1CRUdJTiBDRVJU");

/// Bytes that are not text: nobody can say whether there are secrets in them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotText;

/// Takes secrets out of texts.
pub(crate) struct Redactor {
    forms: Vec<(&'static str, Regex, &'static str)>,
    encoded: Option<Regex>,
}

/// What a line says of those behind it.
#[derive(Default)]
struct Behind {
    hidden: Hidden,
    /// The value of a variable for a secret comes next.
    is_named: bool,
    /// The word behind an option for a secret comes next.
    is_option: bool,
}

/// A line of a container's log, as a runtime writes it: `2026-11-26T18:45:03.123Z stdout F said`.
struct ContainerLine<'a> {
    /// What is before what was said.
    prefix: &'a str,
    /// 1 or 2.
    stream: usize,
    /// The line goes on in the next one of its stream.
    is_part: bool,
    said: &'a str,
}

/// What is left out behind a line with a secret.
#[derive(Default)]
enum Hidden {
    #[default]
    Nothing,
    /// Lines that are indented deeper. If nothing was behind the key, the value may be the next line, or a list.
    Deeper { indent: usize, is_open: bool },
    /// Up to the end of a text in quotes.
    Quoted(char),
}

// === impl Redactor ===

impl Redactor {
    pub(crate) fn new() -> Self {
        let forms = FORMS.iter().filter_map(|(has, form, stands)| Some((*has, Regex::new(form).ok()?, *stands)));
        Redactor { forms: forms.collect(), encoded: Regex::new(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=_-]*").ok() }
    }

    /// A file's bytes without secrets.
    ///
    /// # Errors
    /// [`NotText`]
    pub(super) fn bytes(&self, bytes: &[u8]) -> Result<Vec<u8>, NotText> {
        if bytes.contains(&0) {
            return Err(NotText);
        }
        if bytes.len() <= MOST_OF_JSON
            && let Ok(value) = json::parse(bytes)
        {
            return Ok(format!("{}\n", json::compact(&self.value(value, DEEPEST))).into_bytes());
        }
        if let Some(lines) = self.json_lines(bytes) {
            return Ok(lines.into_bytes());
        }
        // A byte that is no text is shown as such; what is around it is looked at.
        let text = self.text(&String::from_utf8_lossy(bytes));
        Ok((text + "\n").into_bytes())
    }

    /// Objects of JSON, one in each line, as records have them; `None`: that is not what it is.
    fn json_lines(&self, bytes: &[u8]) -> Option<String> {
        let mut shown = String::new();
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            let Ok(value @ Value::Object(_)) = json::parse_at_most(line, MOST_OF_JSON) else { return None };
            shown.push_str(&json::compact(&self.value(value, DEEPEST)));
            shown.push('\n');
        }
        (!shown.is_empty()).then_some(shown)
    }

    /// A text without secrets.
    pub(super) fn text(&self, text: &str) -> String {
        let text = without_keys(&whole_lines(text));
        let mut lines = Vec::new();
        // What is said on each stream of a container is a text of its own.
        let mut behind: [Behind; 3] = Default::default();
        for line in text.lines() {
            let (prefix, stream, said) = match container_line(line) {
                Some(of) => (of.prefix, of.stream, of.said),
                None => ("", 0, line),
            };
            let shown = behind.get_mut(stream).and_then(|behind| self.line(said, behind));
            lines.extend(shown.map(|shown| format!("{prefix}{shown}")));
        }
        lines.join("\n")
    }

    /// One line; `None`: it belongs to the secret of a line before it.
    fn line(&self, line: &str, behind: &mut Behind) -> Option<String> {
        if behind.hidden.hides(line) {
            return None;
        }
        behind.hidden = Hidden::Nothing;
        let (was_named, was_option) = (std::mem::take(&mut behind.is_named), std::mem::take(&mut behind.is_option));
        if let Some(item) = item_of(line) {
            behind.is_option = is_option_of_a_secret(item);
            if was_option && !behind.is_option {
                return Some(format!("{}- {REDACTED}", " ".repeat(indent(line))));
            }
        }
        if let Some(json) = self.json_in(line) {
            return Some(json);
        }
        let own = if was_named { secret_in(line, |key| key.eq_ignore_ascii_case("value")) } else { None };
        let Some(at) = own.or_else(|| secret_in(line, is_secret)) else {
            // The name of a variable, whose value is the next line.
            behind.is_named = names_a_secret(line);
            return Some(self.forms(line));
        };
        let (key, value) = (line.get(..=at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default());
        behind.hidden = Hidden::behind(line, value);
        Some(format!("{} {REDACTED}", self.forms(key)))
    }

    /// A line that ends with JSON, as logs have them, if no secret is announced before that.
    fn json_in(&self, line: &str) -> Option<String> {
        let (before, rest) = line.split_at(line.find('{')?);
        if rest.len() > MOST_OF_JSON || secret_in(before, is_secret).is_some() {
            return None;
        }
        let value = json::parse(rest.as_bytes()).ok()?;
        Some(self.forms(before) + &json::compact(&self.value(value, DEEPEST)))
    }

    /// What looks like a secret.
    fn forms(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for (has, form, stands) in &self.forms {
            if line.contains(has) {
                line = form.replace_all(&line, *stands).into_owned();
            }
        }
        let (any, public) = ENCODED;
        if let Some(encoded) = self.encoded.as_ref().filter(|_| line.contains(any)) {
            let shown = |found: &Captures<'_>| {
                let found = found.get(0).map_or("", |found| found.as_str());
                if found.starts_with(public) { found.to_owned() } else { REDACTED.to_owned() }
            };
            line = encoded.replace_all(&line, shown).into_owned();
        }
        line
    }

    fn value(&self, value: Value, deeper: usize) -> Value {
        match value {
            Value::Object(object) => {
                // As a container's variables: the name is one value, the secret another.
                let of = |key: &str| object.iter().find(|(own, _)| own.eq_ignore_ascii_case(key)).and_then(|(_, value)| value.as_str());
                let is_named = ["name", "key"].iter().any(|key| of(key).is_some_and(is_secret));
                let below = |(key, value): (&str, &Value)| {
                    let is_value = is_named && ["value", "data"].iter().any(|own| key.eq_ignore_ascii_case(own));
                    (self.text(key), self.below(key, value, is_value, deeper))
                };
                Value::Object(object.iter().map(below).collect::<Object>())
            }
            Value::Array(list) => Value::Array(self.list(list, deeper)),
            Value::String(text) => Value::String(self.string(&text, deeper)),
            other => other,
        }
    }

    /// The words of a command line among them: the one behind an option for a secret is one.
    fn list(&self, list: Vec<Value>, deeper: usize) -> Vec<Value> {
        let mut is_next = false;
        let value = |value: Value| {
            let is_secret = std::mem::replace(&mut is_next, value.as_str().is_some_and(is_option_of_a_secret));
            if is_secret && !is_next { Value::String(REDACTED.to_owned()) } else { self.value(value, deeper) }
        };
        list.into_iter().map(value).collect()
    }

    fn below(&self, key: &str, value: &Value, is_secret_value: bool, deeper: usize) -> Value {
        match value {
            Value::Null | Value::Bool(_) => value.clone(),
            _ if is_secret_value || is_secret(key) => Value::String(REDACTED.to_owned()),
            value => self.value(value.clone(), deeper),
        }
    }

    /// A configuration may be a text in a configuration, and that again.
    fn string(&self, text: &str, deeper: usize) -> String {
        let is_json = text.trim_start().starts_with(['{', '[', '"']);
        match deeper.checked_sub(1).filter(|_| is_json).zip(json::parse(text.as_bytes()).ok()) {
            Some((deeper, value)) => json::compact(&self.value(value, deeper)),
            None => self.text(text),
        }
    }
}

// === impl Hidden ===

impl Hidden {
    /// Behind a line with a secret, of which `value` is what is behind the key.
    fn behind(line: &str, value: &str) -> Self {
        let value = value.trim().trim_start_matches('\\');
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        match quote {
            Some(quote) if !closes(value.get(1..).unwrap_or_default(), quote) => Hidden::Quoted(quote),
            _ => Hidden::Deeper { indent: indent(line), is_open: value.is_empty() || value.ends_with(['{', '[']) },
        }
    }

    /// Whether a line belongs to the secret.
    fn hides(&mut self, line: &str) -> bool {
        match self {
            Hidden::Nothing => false,
            Hidden::Quoted(quote) => {
                if closes(line, *quote) {
                    *self = Hidden::Nothing;
                }
                true
            }
            Hidden::Deeper { indent: own, is_open } => {
                let text = line.trim_start();
                let is_item = *is_open && indent(line) == *own && (text.starts_with("- ") || text == "-");
                // What has no key of its own is the value of the one before it.
                let is_value = *is_open && !text.is_empty() && !text.contains([':', '=']) && !text.starts_with(['}', ']', '-']);
                text.is_empty() || indent(line) > *own || is_item || is_value
            }
        }
    }
}

/// A line of a container's log, if it is one.
fn container_line(line: &str) -> Option<ContainerLine<'_>> {
    let mut words = line.splitn(4, ' ');
    let (time, stream, tag) = (words.next()?, words.next()?, words.next()?);
    let is_time =
        time.len() > "2026-11-26T".len() && time.as_bytes().get(10) == Some(&b'T') && time.starts_with(|c: char| c.is_ascii_digit());
    let stream = match stream {
        "stdout" => 1,
        "stderr" => 2,
        _ => return None,
    };
    let said = words.next().unwrap_or_default();
    let prefix = line.get(..line.len() - said.len())?;
    // A tag may have more parts, behind a colon.
    let is_part = tag == "P" || tag.starts_with("P:");
    let is_whole = tag == "F" || tag.starts_with("F:");
    (is_time && (is_part || is_whole)).then_some(ContainerLine { prefix, stream, is_part, said })
}

/// A text in which the lines of containers that a runtime has cut are whole again: a secret may be on both sides of a cut.
fn whole_lines(text: &str) -> Cow<'_, str> {
    if !text.lines().any(|line| container_line(line).is_some_and(|of| of.is_part)) {
        return Cow::Borrowed(text);
    }
    let mut lines: Vec<String> = Vec::new();
    let mut begun: [String; 3] = Default::default();
    for line in text.lines() {
        match container_line(line).and_then(|of| Some((begun.get_mut(of.stream)?, of))) {
            Some((begun, of)) => {
                if begun.is_empty() {
                    begun.push_str(of.prefix);
                }
                begun.push_str(of.said);
                if !of.is_part {
                    lines.push(std::mem::take(begun));
                }
            }
            None => lines.push(line.to_owned()),
        }
    }
    // The end of a log may be in the middle of a line.
    lines.extend(begun.into_iter().filter(|begun| !begun.is_empty()));
    Cow::Owned(lines.join("\n"))
}

/// `- ITEM`, without quotes.
fn item_of(line: &str) -> Option<&str> {
    let item = line.trim().strip_prefix("- ")?;
    Some(item.trim().trim_matches(['"', '\'']))
}

/// `--admin-token`: what comes next on the command line is a secret.
fn is_option_of_a_secret(word: &str) -> bool {
    word.starts_with('-') && !word.contains(['=', ' ', ':']) && is_secret(word)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether a quote is in a text that no backslash is before.
fn closes(text: &str, quote: char) -> bool {
    let mut before = ' ';
    for c in text.chars() {
        if c == quote && before != '\\' {
            return true;
        }
        before = if before == '\\' && c == '\\' { ' ' } else { c };
    }
    false
}

/// Whether a key names a secret. A path of a file with one is none.
fn is_secret(key: &str) -> bool {
    let plain: String = key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    WORDS.iter().any(|word| plain.contains(word)) && !["file", "path", "dir"].iter().any(|end| plain.ends_with(end))
}

/// Where `:` or `=` is behind a key that is meant: `key: value`, `key=value`, `"key": "value"`, and the same in a text in a text.
fn secret_in(line: &str, is_meant: impl Fn(&str) -> bool) -> Option<usize> {
    let ends = line.char_indices().filter(|(_, c)| matches!(c, ':' | '=')).map(|(at, _)| at);
    ends.into_iter().find(|at| {
        let before = line.get(..*at).unwrap_or_default().trim_end().trim_end_matches(['"', '\'', '\\', ']']);
        let mut words = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
        let last = words.next().unwrap_or_default();
        // Two words, as `private key: ...` has them.
        let two = format!("{}{last}", words.next().unwrap_or_default());
        is_meant(last) || (last.eq_ignore_ascii_case("key") && is_meant(&two))
    })
}

/// `name: VARIABLE`, or `- name: VARIABLE`.
fn names_a_secret(line: &str) -> bool {
    let Some((key, name)) = line.split_once(':') else { return false };
    let key = key.trim().trim_start_matches("- ").trim_matches(['"', '\'']);
    matches!(key, "name" | "key") && is_secret(name)
}

/// Without private keys in PEM: everything but what is public. A block without an end goes to the end of the text.
fn without_keys(text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, block)) = rest.split_once(BEGIN) {
        out.push_str(before);
        out.push_str(BEGIN);
        rest = block;
        let label = block.split_once(DASHES).map(|(label, _)| label);
        if label.is_some_and(|label| PUBLIC.contains(&label)) {
            continue;
        }
        out.push_str(REDACTED);
        rest = block.split_once(END).and_then(|(_, end)| end.split_once(DASHES)).map_or("", |(_, behind)| behind);
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(input: &str) -> String {
        String::from_utf8(Redactor::new().bytes(input.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn secrets_of_json() {
        let input = r#"{"name": "x", "etcd_password": "p", "auth": {"clientSecret": {"a": 1}, "tokenFile": "/t"},
            "config": "{\"apiToken\":\"t\",\"mtu\":1500}", "list": [{"private-key": "k"}], "passwords": null}"#;
        let expected = r#"{"name":"x","etcd_password":"REDACTED","auth":{"clientSecret":"REDACTED","tokenFile":"/t"},"config":"{\"apiToken\":\"REDACTED\",\"mtu\":1500}","list":[{"private-key":"REDACTED"}],"passwords":null}"#;
        assert_eq!(text(input).trim_end(), expected);
    }

    /// What is intended, and what came of it: a key without an end that a definition has in it ends there, not with the file.
    #[test]
    fn secrets_of_a_record_with_two_lines() {
        let intended = r#"{"sandbox":"pod-1","steps":[{"list":"{\"name\":\"a\",\"note\":\"x -----BEGIN X\"}"}],"token":"hunter2"}"#;
        let outcome = r#"{"steps":[{"result":{"beside":1,"password":"hunter2"}}]}"#;
        let expected = [intended, outcome].map(|line| line.replace("hunter2", "REDACTED").replace("BEGIN X", "BEGIN REDACTED"));
        assert_eq!(text(&format!("{intended}\n{outcome}\n")), format!("{}\n", expected.join("\n")));
    }

    #[test]
    fn secrets_of_other_texts() {
        let input = "mtu: 1500\n  password: hunter2 and more\nTOKEN=abc\nAuthorization: Bearer abc\nsaid Bearer abc\nlast: 1\n{\"secret\": \"x\", oops";
        let expected = "mtu: 1500\n  password: REDACTED\nTOKEN= REDACTED\nAuthorization: REDACTED\nsaid Bearer REDACTED\nlast: 1\n{\"secret\": REDACTED\n";
        assert_eq!(text(input), expected);
    }

    /// Wherever it is, it is not found again; what is beside it is.
    #[test]
    fn secrets_in_every_place() {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let inner = r#"{"type":"bridge","token":"hunter2","mtu":1500}"#;
        let pem = "-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE KEY-----";
        for input in [
            format!(r#"{{"a":{},"beside":1}}"#, quoted(inner)),
            format!(r#"{{"a":{},"beside":1}}"#, quoted(&format!(r#"{{"b":{}}}"#, quoted(inner)))),
            format!(r#"{{"a":{},"beside":1}}"#, quoted(&format!("cannot read {inner}"))),
            format!("beside\ntime=1 msg={}\nlast", quoted(&format!("conf {inner}"))),
            format!("beside\n2026-11-26T18:45:03Z stdout F {{\"conf\":{}}}", quoted(inner)),
            format!("beside\n{{\"conf\":{}, cut", quoted(&quoted(inner))),
            r#"{"env":[{"name":"DB_PASSWORD","value":"hunter2"}],"beside":1}"#.to_owned(),
            r#"{"env":[{"value":"hunter2","name":"DB_PASSWORD"}],"beside":1}"#.to_owned(),
            "env:\n- name: DB_PASSWORD\n  value: hunter2\nbeside: 1".to_owned(),
            "password: |\n  line\n\n  hunter2\nbeside: 1".to_owned(),
            "a:\n  secret: >-\n    hunter2\n  beside: 1".to_owned(),
            "tokens:\n- hunter2\nbeside: 1".to_owned(),
            "secret:\n  deep:\n    hunter2: 1\nbeside: 1".to_owned(),
            "secret: \"a\nhunter2\"\nbeside: 1".to_owned(),
            "\"token\":\nhunter2\nbeside: 1".to_owned(),
            format!("key: |\n  {}\nbeside: 1", pem.replace('\n', "\n  ")),
            format!("log {}\nbeside", pem.replace('\n', "\\n")),
            format!(r#"{{"pem":{},"beside":1}}"#, quoted(pem)),
            "beside\n-----BEGIN PRIVATE KEY-----\nhunter2".to_owned(),
            "wg: private key: hunter2\nbeside".to_owned(),
            "psql postgres://me:hunter2@db/x beside".to_owned(),
            "run --admin-token hunter2 beside".to_owned(),
            "got eyJhbGciOi.eyJhunter2.hunter2 beside".to_owned(),
            "join abcdef.hunter2hunter2ab beside".to_owned(),
            "k LS0tLS1CRUdJTiBQUklWQVRFhunter2== beside".to_owned(),
            "X-Auth-Token: hunter2\nbeside".to_owned(),
            // Logs as a runtime writes them: what is indented, what the runtime has cut, what the other stream says in between.
            "2026-11-26T18:45:03.1Z stdout F password: |\n2026-11-26T18:45:03.2Z stdout F   hunter2\n2026-11-26T18:45:03.3Z stdout F beside: 1"
                .to_owned(),
            "2026-11-26T18:45:03.1Z stdout P passw\n2026-11-26T18:45:03.2Z stderr F beside\n2026-11-26T18:45:03.3Z stdout F ord: hunter2".to_owned(),
            "2026-11-26T18:45:03.1Z stdout P token: abc\n2026-11-26T18:45:03.2Z stdout P hunter2\n2026-11-26T18:45:03.3Z stdout F hunter2\nbeside"
                .to_owned(),
            "2026-11-26T18:45:03.1Z stdout F secret:\n2026-11-26T18:45:03.2Z stderr F beside\n2026-11-26T18:45:03.3Z stdout F - hunter2".to_owned(),
            "beside\n2026-11-26T18:45:03.1Z stdout P {\"password\": \"hunter2".to_owned(),
            // Passwords of URLs, with what does not belong there.
            "rabbit://me:hunter2@h1:5672,me:hunter2@h2:5672/ beside".to_owned(),
            "mysql://me:a@hunter2@h/x beside".to_owned(),
            "mysql://me:a/hunter2@h/x beside".to_owned(),
            "mysql://me:1/hunter2@h/x beside".to_owned(),
            "mysql://me:2024/a/hunter2@h beside".to_owned(),
            "mysql://me:/hunter2@h beside".to_owned(),
            "mysql://me:a/b@hunter2@h/x beside".to_owned(),
            "amqps://me:1/b@hunter2@h/x beside".to_owned(),
            "https://me:a/b@hunter2@h/x beside".to_owned(),
            r#"{"url":"mysql://me:hunter2@h/x","beside":1}"#.to_owned(),
            "https://hunter2hunter2hunter2@h/x beside".to_owned(),
            // Lists of words, and lists of secrets.
            r#"{"args":["run","--admin-token","hunter2","beside"]}"#.to_owned(),
            r#"{"beside":["--token=hunter2"],"tokens":["hunter2",{"a":"hunter2"}]}"#.to_owned(),
            "args: [\"--token\", \"hunter2\"]\nbeside: 1".to_owned(),
            "args:\n- --token\n- hunter2\n- beside".to_owned(),
            "args:\n  - \"-password\"\n  - \"hunter2\"\n  - beside".to_owned(),
            "passwords: [\n  hunter2,\n  hunter2 ]\nbeside: 1".to_owned(),
        ] {
            let shown = text(&input);
            assert!(!shown.contains("hunter2"), "{input}\n=> {shown}");
            assert!(shown.contains("beside"), "{input}\n=> {shown}");
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for kept in [
            "mtu: 1500\nname: web\nvalue: 7\n",
            "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
            "tokenFile: /run/token\nurl: http://10.0.0.1:80/x\n",
            "ca: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0t\n",
            "ssh://git@h/x http://10.0.0.1:80/a@b http://[fd00::1]:80/a@b\n",
            "args:\n- --token-file\n- /run/token\n- --mtu\n- 1500\n",
            "2026-11-26T18:45:03.1Z stdout F one\n2026-11-26T18:45:03.2Z stderr F   two\n",
        ] {
            assert_eq!(text(kept), kept);
        }
    }

    #[test]
    fn bytes_that_are_no_text() {
        let mut bytes = b"\xff\xfe password: hunter2\nbeside \xc3".to_vec();
        let shown = String::from_utf8(Redactor::new().bytes(&bytes).unwrap()).unwrap();
        assert!(!shown.contains("hunter2") && shown.contains("beside"), "{shown}");
        bytes.push(0);
        assert_eq!(Redactor::new().bytes(&bytes), Err(NotText));
    }
}
