//! Events: those of the agents' namespace, and in every namespace those that Netloom has written. An agent writes an event beside the pod that it is
//! about.

use cluster::{AGENT_CONTROLLER, Connection, OPERATOR_CONTROLLER};
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::Api;
use kube::api::ListParams;

use super::{PATIENCE, Piece, answered};
use crate::ConnectivityError;

/// The most events of one list.
const MOST: u32 = 10_000;
/// The file of Netloom's events. No namespace has a dot in its name.
const OF_NETLOOM: &str = "events/netloom.io.json";
/// The status of what the caller may not do.
const FORBIDDEN: u16 = 403;

/// Every event of a namespace.
pub(super) async fn of_namespace(connection: &Connection, namespace: &str, piece: &mut dyn FnMut(Piece)) {
    match list(connection, Some(namespace), None, piece).await {
        Ok(events) => put(&format!("events/{namespace}.json"), &events, piece),
        Err(e) => piece(Piece::Missing(e.to_string())),
    }
}

/// The events that Netloom has written, in every namespace whose events the caller may list.
pub(super) async fn of_netloom(connection: &Connection, piece: &mut dyn FnMut(Piece)) {
    let mut found = Vec::new();
    for controller in [AGENT_CONTROLLER, OPERATOR_CONTROLLER] {
        match list(connection, None, Some(controller), piece).await {
            Ok(events) => found.extend(events),
            Err(e @ ConnectivityError::Api { status: FORBIDDEN, .. }) => {
                piece(Piece::Missing(e.to_string()));
                found.extend(by_namespace(connection, controller, piece).await);
            }
            Err(e) => piece(Piece::Missing(e.to_string())),
        }
    }
    put(OF_NETLOOM, &found, piece);
}

/// The same where the caller may not list all namespaces' events at once.
async fn by_namespace(connection: &Connection, controller: &str, piece: &mut dyn FnMut(Piece)) -> Vec<Event> {
    let namespaces = Api::<Namespace>::all(connection.client());
    let namespaces = match answered("list namespaces", PATIENCE, namespaces.list(&ListParams::default())).await {
        Ok(namespaces) => namespaces.items,
        Err(e) => {
            piece(Piece::Missing(e.to_string()));
            return Vec::new();
        }
    };
    let (mut found, mut forbidden) = (Vec::new(), Vec::new());
    for namespace in namespaces.into_iter().filter_map(|namespace| namespace.metadata.name) {
        match list(connection, Some(&namespace), Some(controller), piece).await {
            Ok(events) => found.extend(events),
            Err(ConnectivityError::Api { status: FORBIDDEN, .. }) => forbidden.push(namespace),
            Err(e) => piece(Piece::Missing(e.to_string())),
        }
    }
    if !forbidden.is_empty() {
        piece(Piece::Missing(format!("events of {controller}: they may not be listed in these namespaces: {}", forbidden.join(", "))));
    }
    found
}

/// The events of a namespace, or of all of them; those of one controller, or of every program.
async fn list(
    connection: &Connection,
    namespace: Option<&str>,
    controller: Option<&str>,
    piece: &mut dyn FnMut(Piece),
) -> Result<Vec<Event>, ConnectivityError> {
    let (api, place) = match namespace {
        Some(namespace) => (Api::<Event>::namespaced(connection.client(), namespace), format!("namespace {namespace}")),
        None => (Api::all(connection.client()), "all namespaces".to_owned()),
    };
    let (what, wanted) = match controller {
        Some(controller) => {
            (format!("events of {controller} in {place}"), ListParams::default().fields(&format!("reportingComponent={controller}")))
        }
        None => (format!("events of {place}"), ListParams::default()),
    };
    let list = answered(&format!("list {what}"), PATIENCE, api.list(&wanted.limit(MOST))).await?;
    if list.metadata.continue_.is_some_and(|more| !more.is_empty()) {
        piece(Piece::Missing(format!("{what}: what is behind the first {MOST}")));
    }
    Ok(list.items)
}

fn put(name: &str, events: &[Event], piece: &mut dyn FnMut(Piece)) {
    piece(match serde_json::to_vec(events) {
        Ok(text) => Piece::Text { name: name.to_owned(), text },
        Err(e) => Piece::Missing(format!("{name}: {e}")),
    });
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use serde_json::{Value, json};

    use super::*;

    /// What is collected from an API server that answers so.
    async fn collected(answer: fn(&str) -> (u16, Value)) -> (Vec<String>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                let mut lines = Vec::new();
                while !lines.last().is_some_and(|line: &String| line.trim().is_empty()) {
                    let mut line = String::new();
                    if stream.read_line(&mut line).unwrap() == 0 {
                        break;
                    }
                    lines.push(line);
                }
                let asked = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
                let (status, body) = answer(asked);
                let body = body.to_string();
                let head = format!("HTTP/1.1 {status} x\r\ncontent-type: application/json\r\nconnection: close\r\n");
                write!(stream.get_mut(), "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
            }
        });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}], "users": [{"name": "u", "user": {}}],
        });
        let file = std::env::temp_dir().join(format!("netloom-events-{}-{}", std::process::id(), server.rsplit(':').next().unwrap()));
        std::fs::write(&file, config.to_string()).unwrap();
        let connection = cluster::client(Some(&file)).await.unwrap();
        let (mut texts, mut missing) = (Vec::new(), Vec::new());
        let mut piece = |piece: Piece| match piece {
            Piece::Text { name, text } => texts.push(format!("{name}: {}", String::from_utf8(text).unwrap())),
            Piece::Missing(why) => missing.push(why),
            Piece::Node { .. } => {}
        };
        of_netloom(&connection, &mut piece).await;
        std::fs::remove_file(file).unwrap();
        (texts, missing)
    }

    fn events(namespace: &str) -> (u16, Value) {
        let event = json!({"metadata": {"name": "e", "namespace": namespace}, "involvedObject": {}, "message": format!("in {namespace}")});
        (200, json!({"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": [event]}))
    }

    fn forbidden() -> (u16, Value) {
        let message = "user anna cannot list it";
        (403, json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "reason": "Forbidden", "code": 403}))
    }

    /// An agent's events are beside the pods that they are about: the agents' namespace alone has none of them.
    #[tokio::test]
    async fn events_of_agents_come_from_every_namespace() {
        let (texts, missing) = collected(|asked| {
            let is_own = asked.contains("fieldSelector=reportingComponent%3Dnetloom.io%2F");
            if is_own && asked.starts_with("/api/v1/events?") { events("shop") } else { forbidden() }
        })
        .await;
        assert!(texts.len() == 1 && texts[0].starts_with("events/netloom.io.json: [") && texts[0].contains("in shop"), "{texts:?}");
        assert_eq!(missing, [""; 0]);
    }

    /// Who may list the events of some namespaces gets those, and the archive says which ones are missing.
    #[tokio::test]
    async fn namespaces_that_may_not_be_read_are_named() {
        let (texts, missing) = collected(|asked| {
            let name = |name: &str| json!({"metadata": {"name": name}});
            let namespaces = json!({"apiVersion": "v1", "kind": "NamespaceList", "metadata": {}, "items": [name("open"), name("closed")]});
            match asked.split('?').next() {
                Some("/api/v1/namespaces") => (200, namespaces),
                Some("/api/v1/namespaces/open/events") => events("open"),
                _ => forbidden(),
            }
        })
        .await;
        assert!(texts.len() == 1 && texts[0].contains("in open"), "{texts:?}");
        for words in ["list events of netloom.io/agent in all namespaces", "events of netloom.io/agent: ", "these namespaces: closed"] {
            assert!(missing.iter().any(|why| why.contains(words)), "{words}: {missing:?}");
        }
    }
}
