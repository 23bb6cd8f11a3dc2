//! The API server that the tests of one executable share: the embedded object store, or a real one.
//!
//! ```text
//!   NETLOOM_TEST_API=store (or nothing)   objects::Store over HTTP, in this process
//!   NETLOOM_TEST_API=kubernetes           etcd and the API server of `tests/peers/kubernetes`
//! ```
//!
//! A test that needs what only the real one has (tokens, schemas, kubectl) asks for [`Api::plane`] and is `#[ignore]`d with the
//! reason "needs Kubernetes: ...": it runs where the other one is chosen.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use objects::Store;
use serde_json::{Value, json};
use testbed::ControlPlane;
use tokio::runtime::{Builder, Runtime};

/// An API server that knows network-attachment-definitions. It ends with the last test that has it.
pub struct Api {
    server: Server,
    url: String,
    ca: Option<String>,
}

/// What answers.
enum Server {
    /// etcd and an API server, processes of their own.
    Kubernetes(Box<Mutex<ControlPlane>>),
    /// The object store on a socket of this process.
    Store(Mutex<StoreServer>),
}

/// The object store, and what answers for it; nothing as long as it is stopped.
struct StoreServer {
    store: Store,
    port: u16,
    running: Option<Runtime>,
}

/// What patches an object.
const PATCH: &str = "application/merge-patch+json";

// === impl StoreServer ===

impl StoreServer {
    fn new() -> Self {
        let store = Store::new();
        store.install_network_attachment_definitions();
        let mut server = StoreServer { store, port: 0, running: None };
        server.start();
        server
    }

    fn start(&mut self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).expect("the store's port is free");
        self.port = listener.local_addr().unwrap().port();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(self.store.clone().serve(listener));
        self.running = Some(runtime);
    }

    /// Connections end, and new ones are refused.
    fn stop(&mut self) {
        if let Some(runtime) = self.running.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Api ===

impl Api {
    /// The one that is shared. Who stops it takes [`Api::own`].
    ///
    /// # Panics
    /// If it does not start.
    pub fn shared() -> Arc<Api> {
        static SHARED: Mutex<Weak<Api>> = Mutex::new(Weak::new());
        let mut shared = lock(&SHARED);
        if let Some(api) = shared.upgrade() {
            return api;
        }
        let api = Api::own();
        *shared = Arc::downgrade(&api);
        api
    }

    /// One that nobody else has.
    ///
    /// # Panics
    /// If it does not start.
    pub fn own() -> Arc<Api> {
        match std::env::var("NETLOOM_TEST_API").as_deref() {
            Ok("kubernetes") => Api::kubernetes(),
            Ok("store" | "") | Err(_) => {
                let server = StoreServer::new();
                let url = format!("http://127.0.0.1:{}", server.port);
                Arc::new(Api { server: Server::Store(Mutex::new(server)), url, ca: None })
            }
            Ok(other) => panic!("NETLOOM_TEST_API is \"{other}\": it can be store or kubernetes"),
        }
    }

    /// A real one that nobody else has.
    ///
    /// # Panics
    /// If it does not start.
    pub fn kubernetes() -> Arc<Api> {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}-agent-{}", std::process::id(), ASKED.fetch_add(1, Ordering::Relaxed));
        let plane = ControlPlane::named(&name).expect("a control plane starts");
        plane.define_networks().expect("the custom resource");
        let (url, ca) = (plane.url(), Some(plane.ca().display().to_string()));
        Arc::new(Api { server: Server::Kubernetes(Box::new(Mutex::new(plane))), url, ca })
    }

    /// Whether it is a real one.
    pub fn is_kubernetes(&self) -> bool {
        matches!(self.server, Server::Kubernetes(_))
    }

    /// The control plane: to ask it for a token, say.
    ///
    /// # Panics
    /// If it is not a real one.
    pub fn plane(&self) -> MutexGuard<'_, ControlPlane> {
        match &self.server {
            Server::Kubernetes(plane) => lock(plane),
            Server::Store(_) => panic!("this test needs a real API server: run it with NETLOOM_TEST_API=kubernetes"),
        }
    }

    /// Ends the API server; its objects stay.
    ///
    /// # Panics
    /// If it does not end.
    pub fn stop(&self) {
        match &self.server {
            Server::Kubernetes(plane) => lock(plane).stop_api().unwrap(),
            Server::Store(server) => lock(server).stop(),
        }
    }

    /// Starts it again, at the same address and with the same objects.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&self) {
        match &self.server {
            Server::Kubernetes(plane) => lock(plane).start_api().unwrap(),
            Server::Store(server) => lock(server).start(),
        }
    }

    /// Applies the resource definitions of a file in `deploy/`, and waits until they are served. Those that are there stay.
    ///
    /// # Panics
    /// If one is refused.
    pub fn define(&self, file: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("deploy").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let documents = text.split("\n---\n").map(|one| serde_saphyr::from_str::<Value>(one).unwrap());
        match &self.server {
            Server::Kubernetes(plane) => {
                let plane = lock(plane);
                plane.apply(&text).unwrap();
                documents.for_each(|one| plane.served(one["metadata"]["name"].as_str().unwrap()).unwrap());
            }
            Server::Store(server) => documents.for_each(|one| {
                // A definition that is there is the same one.
                drop(lock(server).store.put(&one));
            }),
        }
    }

    /// `127.0.0.1:PORT`, on the machine's own network.
    pub fn address(&self) -> &str {
        self.url.split_once("://").map_or(self.url.as_str(), |(_, address)| address)
    }

    /// A kubeconfig that needs no other file, for whoever has the token.
    pub fn kubeconfig(&self, token: &str) -> String {
        let mut cluster = json!({"server": self.url});
        if let Some(ca) = &self.ca {
            cluster["certificate-authority-data"] = json!(base64(&std::fs::read(ca).unwrap()));
        }
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "t",
            "clusters": [{"name": "t", "cluster": cluster}],
            "users": [{"name": "t", "user": {"token": token}}],
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
        });
        config.to_string()
    }

    /// Asks it as the administrator, with curl: the answer's code and object.
    ///
    /// # Panics
    /// If nobody answers.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = if method == "PATCH" { PATCH } else { "application/json" };
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "60", "-X", method, "-w", "\n%{http_code}"]);
        command.args(self.ca.iter().flat_map(|ca| ["--cacert", ca.as_str()]));
        command.args(["-H", "Authorization: Bearer admin", "-H", &format!("Content-Type: {kind}")]);
        if !body.is_null() {
            command.args(["--data-binary", "@-"]);
        }
        command.arg(format!("{}{path}", self.url)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("curl starts");
        let mut stdin = child.stdin.take().unwrap();
        // It need not read what it does not send.
        drop(if body.is_null() { Ok(()) } else { stdin.write_all(body.to_string().as_bytes()) });
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let why = || format!("{method} {path}: {}{text}", String::from_utf8_lossy(&output.stderr));
        let (object, code) = text.rsplit_once('\n').unwrap_or_else(|| panic!("{}", why()));
        let code: u16 = code.parse().unwrap_or_else(|_| panic!("{}", why()));
        assert!(code > 0, "{}", why());
        (code, serde_json::from_str(object).unwrap_or(Value::Null))
    }

    /// Asks for very many things as the administrator, with curl, 32 at a time: the codes of the answers, in order; 0 where nobody
    /// has answered within a minute.
    ///
    /// # Panics
    /// If curl does not start.
    pub fn every(&self, requests: &[(&str, String, Value)]) -> Vec<u16> {
        let mut codes = vec![0; requests.len()];
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
        let request = |(n, (method, path, body)): (usize, &(&str, String, Value))| {
            let kind = if *method == "PATCH" { PATCH } else { "application/json" };
            let mut lines = vec![
                format!("url = {}", quoted(&format!("{}{path}", self.url))),
                format!("request = {method}"),
                "header = \"Authorization: Bearer admin\"".to_owned(),
                format!("header = \"Content-Type: {kind}\""),
                "max-time = 60\nsilent\noutput = /dev/null".to_owned(),
                format!("write-out = \"{n} %{{http_code}}\\n\""),
            ];
            lines.extend(self.ca.iter().map(|ca| format!("cacert = {}", quoted(ca))));
            lines.extend((!body.is_null()).then(|| format!("data-binary = {}", quoted(&body.to_string()))));
            lines.join("\n")
        };
        // A command line of curl has no end, but its memory does.
        for (part, some) in requests.chunks(1000).enumerate() {
            let config: Vec<String> = some.iter().enumerate().map(|(n, one)| (part * 1000 + n, one)).map(request).collect();
            let mut command = Command::new("curl");
            command.args(["--parallel", "--parallel-max", "32", "--config", "-"]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("curl starts");
            // It reads all before it asks.
            drop(child.stdin.take().unwrap().write_all(config.join("\nnext\n").as_bytes()));
            let told = child.wait_with_output().unwrap();
            for (n, code) in String::from_utf8_lossy(&told.stdout).lines().filter_map(|line| line.split_once(' ')) {
                codes[n.parse::<usize>().unwrap()] = code.parse().unwrap();
            }
        }
        codes
    }

    /// As [`Api::ask`], and it succeeds.
    ///
    /// # Panics
    /// If it does not.
    pub fn must(&self, method: &str, path: &str, body: &Value) -> Value {
        let (code, object) = self.ask(method, path, body);
        assert!((200..300).contains(&code), "{method} {path}: {code}: {object:#}");
        object
    }

    /// Makes a namespace in which pods can be made.
    ///
    /// # Panics
    /// If it cannot.
    pub fn namespace(&self, name: &str) {
        let object = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        for (path, object) in [
            ("/api/v1/namespaces".to_owned(), object("Namespace", name)),
            (format!("/api/v1/namespaces/{name}/serviceaccounts"), object("ServiceAccount", "default")),
        ] {
            let (code, said) = self.ask("POST", &path, &object);
            assert!(code == 201 || code == 409, "{path}: {said:#}");
        }
    }

    /// Makes a network-attachment-definition, or replaces its configuration.
    ///
    /// # Panics
    /// If it cannot.
    pub fn definition(&self, namespace: &str, name: &str, config: &str) {
        let path = format!("/apis/k8s.cni.cncf.io/v1/namespaces/{namespace}/network-attachment-definitions");
        let object = json!({"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": namespace}, "spec": {"config": config}});
        let (code, said) = self.ask("POST", &path, &object);
        if code == 409 {
            self.must("PATCH", &format!("{path}/{name}"), &json!({"spec": {"config": config}}));
        } else {
            assert_eq!(code, 201, "{path}: {said:#}");
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let sign = move |at: usize| if at > chunk.len() { '=' } else { char::from(SIGNS[(bits >> (18 - 6 * at) & 63) as usize]) };
        [0, 1, 2, 3].map(sign)
    };
    bytes.chunks(3).flat_map(group).collect()
}
