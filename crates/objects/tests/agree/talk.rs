//! A conversation with a server, kept without what differs from one run to the next, so that two servers' can be compared.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Value, json};

/// How a patch is sent.
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const JSON: &str = "application/json-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// One case's conversation, in a namespace of its own.
pub(crate) struct Talk {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// What was asked and answered.
    pub(crate) said: Vec<Value>,
    known: BTreeMap<String, String>,
}

/// A watch that is open.
pub(crate) struct Watching {
    lines: futures::stream::BoxStream<'static, Vec<u8>>,
    rest: Vec<u8>,
}

impl Talk {
    pub(crate) async fn begin(client: Client, case: &str) -> Self {
        let namespace = case.replace('_', "-");
        let mut talk = Self { client, namespace: namespace.clone(), said: Vec::new(), known: BTreeMap::new() };
        talk.post(201, "/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await;
        // Without controllers nobody else makes it, and the API server admits no pod without it.
        let account = json!({"metadata": {"name": "default"}});
        let path = talk.path("/api/v1/{ns}/serviceaccounts");
        talk.send("POST", &path, "application/json", Some(&account)).await;
        talk
    }

    pub(crate) fn path(&self, path: &str) -> String {
        path.replace("{ns}", &format!("namespaces/{}", self.namespace))
    }

    pub(crate) async fn get(&mut self, code: u16, path: &str) -> Value {
        self.ask(code, "GET", path, "application/json", None).await
    }

    pub(crate) async fn post(&mut self, code: u16, path: &str, body: Value) -> Value {
        self.ask(code, "POST", path, "application/json", Some(body)).await
    }

    pub(crate) async fn put(&mut self, code: u16, path: &str, body: Value) -> Value {
        self.ask(code, "PUT", path, "application/json", Some(body)).await
    }

    pub(crate) async fn patch(&mut self, code: u16, form: &str, path: &str, body: Value) -> Value {
        self.ask(code, "PATCH", path, form, Some(body)).await
    }

    pub(crate) async fn delete(&mut self, code: u16, path: &str, body: Value) -> Value {
        self.ask(code, "DELETE", path, "application/json", Some(body)).await
    }

    /// Asks, checks the code, and keeps what was said.
    pub(crate) async fn ask(&mut self, code: u16, method: &str, path: &str, form: &str, body: Option<Value>) -> Value {
        let path = self.path(path);
        let (got, answer) = self.send(method, &path, form, body.as_ref()).await;
        assert_eq!(got, code, "{method} {path} {}\n{answer:#}", body.unwrap_or_default());
        let kept = self.kept(&answer, "");
        self.said.push(json!({"asked": format!("{method} {}", self.plain(&path)), "code": got, "answer": kept}));
        answer
    }

    /// Asks without keeping.
    pub(crate) async fn send(&self, method: &str, path: &str, form: &str, body: Option<&Value>) -> (u16, Value) {
        let bytes = body.map(|body| serde_json::to_vec(body).unwrap()).unwrap_or_default();
        let request = http::Request::builder().method(method).uri(path).header("content-type", form).header("accept", "application/json");
        let response = self.client.send(request.body(Body::from(bytes)).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let answer = serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
        (code, answer)
    }

    /// Waits until a path answers with a code: what a definition serves comes a moment after it.
    pub(crate) async fn until(&self, code: u16, path: &str) {
        let path = self.path(path);
        for _ in 0..900 {
            if self.send("GET", &path, "application/json", None).await.0 == code {
                return;
            }
            // Sleeps: between two looks.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{path} did not answer {code} in 90 s");
    }

    /// Begins a watch.
    pub(crate) async fn watch(&mut self, path: &str) -> Watching {
        let request = http::Request::get(self.path(path)).body(Body::empty()).unwrap();
        let response = self.client.send(request).await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let lines = response.into_body().into_data_stream().map(|bytes| bytes.map(|bytes| bytes.to_vec()).unwrap_or_default());
        Watching { lines: lines.boxed(), rest: Vec::new() }
    }

    /// Keeps the next events of a watch, and returns them.
    pub(crate) async fn see(&mut self, watching: &mut Watching, events: usize) -> Vec<Value> {
        let mut seen = Vec::new();
        for _ in 0..events {
            let event = watching.next().await.unwrap_or_else(|| panic!("the watch ended; seen: {seen:#?}; said: {:#?}", self.said));
            let kept = self.kept(&event, "");
            self.said.push(json!({"event": kept}));
            seen.push(event);
        }
        seen
    }

    // What differs by nature gets a name in the order of its appearance; what the store does not have is left out.
    fn kept(&mut self, value: &Value, key: &str) -> Value {
        match value {
            Value::Object(map) => {
                let is_list = map.contains_key("items");
                let mut kept = serde_json::Map::new();
                // The order of a map is the alphabet's on both sides; metadata is read first, where names come from.
                for key in ["metadata"].into_iter().chain(map.keys().map(String::as_str).filter(|key| *key != "metadata")) {
                    let Some(value) = map.get(key) else { continue };
                    let left_out = key == "managedFields"
                        || (key == "resourceVersion" && is_list)
                        || (key == "continue" && value == "")
                        || (key == "spec" && is_defaulted(map))
                        || (key == "status" && map.contains_key("spec") && is_definition(map));
                    if !left_out {
                        let value = self.kept(value, key);
                        kept.insert(key.to_owned(), value);
                    }
                }
                if is_list {
                    kept.get_mut("metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("resourceVersion"));
                }
                Value::Object(kept)
            }
            Value::Array(list) => Value::Array(list.iter().map(|value| self.kept(value, key)).collect()),
            Value::String(text) => match key {
                "uid" | "resourceVersion" if !text.is_empty() => Value::from(self.name(key, text)),
                "creationTimestamp" | "deletionTimestamp" | "lastTransitionTime" => Value::from("TIME"),
                "continue" => Value::from("TOKEN"),
                "message" => Value::from(without_versions(&self.plain(text))),
                _ => Value::from(self.plain(text)),
            },
            other => other.clone(),
        }
    }

    /// Lets a text stand for itself in neither conversation.
    pub(crate) fn name(&mut self, kind: &str, text: &str) -> String {
        let next = format!("<{kind} {}>", self.known.values().filter(|name| name.starts_with(&format!("<{kind} "))).count());
        self.known.entry(text.to_owned()).or_insert(next).clone()
    }

    fn plain(&self, text: &str) -> String {
        // Short numbers would be found in the midst of others.
        let long = self.known.iter().filter(|(known, _)| known.len() > 10);
        long.fold(text.to_owned(), |text, (known, name)| text.replace(known, name))
    }
}

impl Watching {
    /// The next event, `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let more = tokio::time::timeout(Duration::from_secs(60), self.lines.next()).await.expect("no event in 60 s");
            self.rest.extend(more?);
        }
    }
}

fn is_defaulted(map: &serde_json::Map<String, Value>) -> bool {
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
    matches!(kind, "Pod" | "Node" | "ResourceClaim")
        || map.get("spec").is_some_and(|spec| spec.get("containers").is_some())
        || is_definition(map)
}

fn is_definition(map: &serde_json::Map<String, Value>) -> bool {
    map.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition")
}

// `(296)`, `record (12)`, `current: 7`: resource versions inside of messages.
fn without_versions(message: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in message.split(' ') {
        let bare = word.trim_matches(|letter: char| "().,".contains(letter));
        let number = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
        words.push(if number { word.replace(bare, "N") } else { word.to_owned() });
    }
    words.join(" ")
}
