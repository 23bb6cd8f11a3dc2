//! The connection to an API server: where it is, who we are, how long we wait.
//!
//! A token's file is read again for each request (a kilobyte from memory; the kubelet replaces it before it expires), so
//! there is no moment in which an old one is used. All else, a token or a client certificate in a kubeconfig, the
//! certificate authority, is read again when the server has refused it, when we have refused the server, and when what a
//! program told of us expires.

mod credentials;
mod kubeconfig;
mod tls;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ConfigExt};
use kube::config::KubeConfigOptions;
use tower::{Layer, ServiceExt};
use trust::chain;

use self::credentials::{Authorization, Credentials};

/// By what an API server's audit log knows us.
const PROGRAM: &str = concat!("netloom/", env!("CARGO_PKG_VERSION"));
/// How long a TCP connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// A server that is cut off is noticed after this time: idle, then three probes.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// How far probes are apart.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Files are not read more often than this, however many requests are refused.
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
    #[error("kubeconfig {}: {cause}: check this file and the files that it names", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// There is no service account here.
    #[error("no service account in this container: {cause}: give the pod one, or set \"kubeconfig\"")]
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
    let (client, until) = plain(config).await?;
    let last = Last { client, until, read: Instant::now() };
    let current = Arc::new(Current { kubeconfig: kubeconfig.map(Path::to_owned), last: Mutex::new(last) });
    let service = tower::service_fn(move |request: Request<Body>| {
        let current = Arc::clone(&current);
        async move { current.send(request).await }
    });
    Ok(Connection { client: kube::Client::new(service, namespace), server: server.into() })
}

/// The client that files gave when they were last read.
struct Current {
    kubeconfig: Option<PathBuf>,
    last: Mutex<Last>,
}

struct Last {
    client: kube::Client,
    /// From when on it is of no use.
    until: Option<SystemTime>,
    /// When the files were read.
    read: Instant,
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

    /// The same, where it is an IP address that its URL names.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        let (_, rest) = self.server.split_once("://")?;
        let host = rest.split('/').next()?;
        match host.strip_prefix('[') {
            Some(v6) => v6.split(']').next()?.parse().ok(),
            None => host.split(':').next()?.parse().ok(),
        }
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
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(PROGRAM));
        if self.last(|last| last.until.is_some_and(|until| until <= SystemTime::now())) {
            self.read_again().await;
        }
        let client = self.last(|last| last.client.clone());
        let result = client.send(request).await;
        let is_over = match &result {
            Ok(response) => response.status() == StatusCode::UNAUTHORIZED,
            Err(e) => tls::is_distrust(e),
        };
        if is_over {
            self.read_again().await;
        }
        result
    }

    /// For the next request. What cannot be read now leaves everything as it is: the refusal itself is reported.
    async fn read_again(&self) {
        let is_early = self.last(|last| {
            let is_early = last.read.elapsed() < REREAD;
            if !is_early {
                last.read = Instant::now();
            }
            is_early
        });
        if is_early {
            return;
        }
        let Ok(config) = load(self.kubeconfig.as_deref()).await else { return };
        if let Ok((client, until)) = plain(config).await {
            self.last(|last| (last.client, last.until) = (client, until));
        }
    }

    fn last<T>(&self, work: impl FnOnce(&mut Last) -> T) -> T {
        work(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn load(kubeconfig: Option<&Path>) -> Result<Config, ConnectError> {
    let Some(path) = kubeconfig else {
        return Config::incluster().map_err(|e| ConnectError::InCluster { cause: chain(&e) });
    };
    let refused = |cause| ConnectError::Kubeconfig { path: path.to_owned(), cause };
    let file = kubeconfig::read(path).map_err(refused)?;
    Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(|e| refused(chain(&e)))
}

/// `https://10.0.0.1:6443`, without a user or a path.
fn address(config: &Config) -> String {
    let url = &config.cluster_url;
    let port = url.port().map(|p| format!(":{p}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme_str().unwrap_or("https"), url.host().unwrap_or_default())
}

/// A client, and from when on it is of no use.
async fn plain(config: Config) -> Result<(kube::Client, Option<SystemTime>), ConnectError> {
    let refused = |cause| ConnectError::Credentials { server: address(&config), cause };
    let user = config.auth_info.clone();
    let known = match user.exec {
        None => credentials::credentials(&user),
        // A program takes its time.
        Some(_) => tokio::task::spawn_blocking(move || credentials::credentials(&user)).await.unwrap_or_else(|e| Err(e.to_string())),
    };
    let Credentials { authorization, identity, until } = known.map_err(refused)?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(3));
    let tls = tls::config(&config, identity.as_deref()).map_err(refused)?;
    let mut https = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|_| refused(format!("tls-server-name {name}: not a valid server name")))?;
        https = https.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let http = Http::builder(TokioExecutor::new()).build(https.enable_http1().wrap_connector(tcp));
    let http = config.extra_headers_layer().map_err(|e| refused(chain(&e)))?.layer(http);
    let mut last = None;
    let named = http.map_request(move |request| with_authorization(request, &authorization, &mut last));
    Ok((kube::Client::new(config.base_uri_layer().layer(named), config.default_namespace.clone()), until))
}

/// If the file cannot be read, the token that was read last is used: there are set-ups that remove the file after the
/// start (Kubernetes issue 68164).
fn with_authorization<B>(mut request: Request<B>, authorization: &Authorization, last: &mut Option<HeaderValue>) -> Request<B> {
    let value = match authorization {
        Authorization::None => None,
        Authorization::Value(value) => Some(value),
        Authorization::File(file) => {
            if let Some(read) = read_token(file) {
                *last = Some(read);
            }
            last.as_ref()
        }
    };
    if let Some(value) = value {
        request.headers_mut().insert(AUTHORIZATION, value.clone());
    }
    request
}

fn read_token(file: &str) -> Option<HeaderValue> {
    credentials::bearer(&std::fs::read_to_string(file).ok()?).ok()
}
