//! The connection to an API server: where it is, who we are, how long we wait.
//!
//! A token's file is read again for each request (a kilobyte from memory; the kubelet replaces it before it expires), so
//! there is no moment in which an old one is used. What stands in a kubeconfig itself, a token or a client certificate,
//! is read again when the server has refused it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use tower::{BoxError, Layer, ServiceExt};

use crate::error::chain;

/// How long a TCP connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// A server that is cut off is noticed after this time: idle, then three probes.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// How far probes are apart.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// A kubeconfig is not read more often than this, however many requests are refused.
const REREAD: Duration = Duration::from_secs(1);

/// A client of an API server, and the server's address for messages. A clone is the same connection.
#[derive(Clone)]
pub struct Connection {
    client: kube::Client,
    server: Arc<str>,
}

/// No connection could be prepared. Nothing was sent yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The kubeconfig is missing or unusable.
    #[error("kubeconfig {}: {cause}: check the file, and the files that it names", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// There is no service account here.
    #[error("no service account in this container: {cause}: give the pod one, or name a kubeconfig")]
    InCluster {
        /// Why.
        cause: String,
    },
    /// Certificates, keys or the way to a token are unusable.
    #[error("credentials for {server}: {cause}: check certificate authority, client certificate and token")]
    Credentials {
        /// The server's address.
        server: String,
        /// Why.
        cause: String,
    },
}

/// Prepares a connection: by the kubeconfig (its current context), or as the service account of the pod that this process
/// runs in. Connects directly, whatever proxy the environment names. Needs a tokio runtime with I/O and time.
///
/// # Errors
/// [`ConnectError`]; no request is sent, so an unreachable server is no error here.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Connection, ConnectError> {
    let config = load(kubeconfig).await?;
    let server = address(&config);
    let namespace = config.default_namespace.clone();
    let first = plain(config)?;
    let Some(path) = kubeconfig else { return Ok(Connection { client: first, server: server.into() }) };
    let current = Arc::new(Current { path: path.to_owned(), client: Mutex::new((first, Instant::now())) });
    let service = tower::service_fn(move |request: Request<Body>| {
        let current = Arc::clone(&current);
        async move { current.send(request).await }
    });
    Ok(Connection { client: kube::Client::new(service, namespace), server: server.into() })
}

/// The client that a kubeconfig gave when it was last read, and when that was.
struct Current {
    path: PathBuf,
    client: Mutex<(kube::Client, Instant)>,
}

// === impl Connection ===

impl Connection {
    /// The client, for requests of one's own.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// The server's address, for messages.
    pub fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn server_shared(&self) -> Arc<str> {
        Arc::clone(&self.server)
    }
}

impl From<kube::Client> for Connection {
    /// A client whose server has no address: an embedded store.
    fn from(client: kube::Client) -> Self {
        Connection { client, server: "the API server".into() }
    }
}

// === impl Current ===

impl Current {
    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        let response = client.send(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.read_again().await;
        }
        Ok(response)
    }

    /// For the next request. A file that cannot be read now leaves everything as it is: the refusal itself is reported.
    async fn read_again(&self) {
        {
            let mut now = self.client.lock().unwrap_or_else(PoisonError::into_inner);
            if now.1.elapsed() < REREAD {
                return;
            }
            now.1 = Instant::now();
        }
        if let Ok(client) = load(Some(&self.path)).await.and_then(plain) {
            self.client.lock().unwrap_or_else(PoisonError::into_inner).0 = client;
        }
    }
}

async fn load(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let Some(path) = kubeconfig else {
        return Config::incluster().map_err(|e| ConnectError::InCluster { cause: chain(&e) });
    };
    let refused = |e: KubeconfigError| ConnectError::Kubeconfig {
        path: path.to_owned(),
        // The parser quotes lines of the file, and they may hold a token.
        cause: match e {
            KubeconfigError::Parse(_) => "it is not the YAML of a kubeconfig".to_owned(),
            e => chain(&e),
        },
    };
    let file = Kubeconfig::read_from(path).map_err(refused)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(refused)
}

/// `https://10.0.0.1:6443`, without a user or a path.
fn address(config: &Config) -> String {
    let url = &config.cluster_url;
    let port = url.port().map(|p| format!(":{p}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme_str().unwrap_or("https"), url.host().unwrap_or_default())
}

fn plain(config: Config) -> Result<kube::Client, ConnectError> {
    let refused = |e: kube::Error| ConnectError::Credentials { server: address(&config), cause: chain(&e) };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(3));
    let tls = config.rustls_https_connector_with_connector(tcp).map_err(refused)?;
    let http = Http::builder(TokioExecutor::new()).build(tls);
    let http = config.extra_headers_layer().map_err(refused)?.layer(http);
    let namespace = config.default_namespace.clone();
    let auth = &config.auth_info;
    let file = auth.token_file.clone().filter(|_| auth.token.is_none() && auth.username.is_none() && auth.auth_provider.is_none());
    if let Some(file) = file {
        let mut last = None;
        let named = http.map_request(move |request| with_token(request, Path::new(&file), &mut last));
        return Ok(kube::Client::new(config.base_uri_layer().layer(named), namespace));
    }
    match config.auth_layer().map_err(refused)? {
        Some(auth) => {
            let named = auth.layer(http.map_err(BoxError::from));
            Ok(kube::Client::new(config.base_uri_layer().layer(named), namespace))
        }
        None => Ok(kube::Client::new(config.base_uri_layer().layer(http), namespace)),
    }
}

/// If the file cannot be read, the token that was read last is used: there are set-ups that remove the file after the
/// start (Kubernetes issue 68164).
fn with_token<B>(mut request: Request<B>, file: &Path, last: &mut Option<HeaderValue>) -> Request<B> {
    if let Some(read) = read_token(file) {
        *last = Some(read);
    }
    if let Some(token) = last {
        request.headers_mut().insert(AUTHORIZATION, token.clone());
    }
    request
}

fn read_token(file: &Path) -> Option<HeaderValue> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim())).ok()?;
    value.set_sensitive(true);
    Some(value)
}
