//! Devices as the kubelet tells them. The server here is not the kubelet: it is a gRPC server on a socket, with messages
//! of its own by the kubelet's field numbers, as there is no device plugin on a test machine.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use netloom_cluster::{CHECKPOINT, Cluster, DeviceError, Digest, Phase, Pod, SOCKET};
use prost::Message;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tower::Service;

const UID: &str = "11111111-2222-3333-4444-555555555555";

/// The answer to `List`, written by the kubelet's own messages.
const LIST: &[u8] = include_bytes!("fixtures/podresources-list");

/// Any message: its bytes, as fields that nobody knows are not kept by prost.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(bytes = "vec", repeated, tag = "1")]
    pods: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
}

/// What this kubelet does with `Get`.
#[derive(Clone, Copy, PartialEq)]
enum Get {
    Answers,
    /// As a kubelet that is older than `Get`.
    Unimplemented,
    /// As one whose `Get` is disabled, or that does not know the pod.
    Refuses,
}

#[derive(Clone)]
struct Kubelet {
    get: Get,
    list: Vec<u8>,
}

impl NamedService for Kubelet {
    const NAME: &'static str = "v1.PodResourcesLister";
}

impl Kubelet {
    fn answer(&self, path: &str, question: &Question) -> Result<Answer, Status> {
        let list = Answer::decode(self.list.as_slice()).unwrap();
        match (path, self.get) {
            ("/v1.PodResourcesLister/List", _) => Ok(list),
            ("/v1.PodResourcesLister/Get", Get::Answers) => {
                let is = |pod: &Vec<u8>| {
                    let pod = Question::decode(pod.as_slice()).unwrap();
                    (pod.namespace.as_str(), pod.name.as_str()) == (question.namespace.as_str(), question.name.as_str())
                };
                list.pods.into_iter().find(is).map(|pod| Answer { pods: vec![pod] }).ok_or_else(|| Status::unknown("pod not found"))
            }
            ("/v1.PodResourcesLister/Get", Get::Refuses) => Err(Status::unknown("PodResources API Get method disabled")),
            _ => Err(Status::unimplemented("no such method")),
        }
    }
}

struct One {
    kubelet: Kubelet,
    path: String,
}

impl UnaryService<Question> for One {
    type Response = Answer;
    type Future = Ready<Result<tonic::Response<Answer>, Status>>;

    fn call(&mut self, request: tonic::Request<Question>) -> Self::Future {
        ready(self.kubelet.answer(&self.path, request.get_ref()).map(tonic::Response::new))
    }
}

impl Service<Request<Body>> for Kubelet {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let one = One { kubelet: self.clone(), path: request.uri().path().to_owned() };
        Box::pin(async move {
            let codec = tonic_prost::ProstCodec::<Answer, Question>::default();
            Ok(Grpc::new(codec).unary(one, request).await)
        })
    }
}

/// A node's root directory of its own.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Root {
        let root = std::env::temp_dir().join(format!("netloom-devices-{name}-{}", std::process::id()));
        for file in [SOCKET, CHECKPOINT] {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        }
        Root(root)
    }

    fn serve(&self, get: Get, list: Vec<u8>) {
        let listener = UnixListener::bind(self.0.join(SOCKET)).unwrap();
        let server = tonic::transport::Server::builder().add_service(Kubelet { get, list });
        tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A cluster whose server is nowhere: no question here is for it.
async fn cluster(root: &Root) -> Cluster {
    let config = root.path().join("kubeconfig");
    let text = r#"{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],
        "users":[],"contexts":[{"name":"c","context":{"cluster":"c","user":""}}]}"#;
    std::fs::write(&config, text).unwrap();
    Cluster::start(netloom_cluster::client(Some(&config)).await.unwrap(), "n1")
}

fn pod(name: &str) -> Pod {
    Pod {
        is_whole: true,
        labels: Default::default(),
        sticky: false,
        migrates: false,
        vifs: None,
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: UID.to_owned(),
        networks: None,
        default_network: None,
        status: Some(Digest::of("")),
        is_static: false,
        host_network: false,
        phase: Phase::Pending,
        deleting: false,
        claims: Vec::new(),
        requested: Vec::new(),
    }
}

fn wanted(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(r, id)| ((*r).to_owned(), (*id).to_owned())).collect()
}

#[tokio::test]
async fn podresources_are_read_in_their_order_with_get_and_without() {
    let order = wanted(&[
        ("intel.com/sriov", "0000:18:02.5"),
        ("intel.com/sriov", "0000:18:02.1"),
        ("example.com/gpu", "gpu-0"),
        ("intel.com/sriov", "0000:03:02.0"),
    ]);
    for (name, get) in [("get", Get::Answers), ("old", Get::Unimplemented), ("disabled", Get::Refuses)] {
        let root = Root::new(name);
        root.serve(get, LIST.to_vec());
        let cluster = cluster(&root).await;
        assert_eq!(cluster.devices(&pod("web-1"), root.path()).await, Ok(order.clone()), "{name}");
        assert_eq!(cluster.devices(&pod("unknown"), root.path()).await, Ok(Vec::new()), "{name}");
    }
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_refused_and_so_is_a_kubelet_that_is_none() {
    let root = Root::new("large");
    let other = Question { name: "x".repeat(17 << 20), namespace: "default".to_owned() }.encode_to_vec();
    root.serve(Get::Unimplemented, Answer { pods: vec![other] }.encode_to_vec());
    let e = cluster(&root).await.devices(&pod("web-1"), root.path()).await.unwrap_err();
    assert!(matches!(e, DeviceError::Kubelet { .. }) && e.to_string().contains("kubelet.sock"), "{e}");

    let root = Root::new("dead");
    drop(UnixListener::bind(root.path().join(SOCKET)).unwrap());
    // There is a checkpoint, but a socket that nobody answers is a kubelet that is starting: its file may be old.
    std::fs::copy(fixture(), root.path().join(CHECKPOINT)).unwrap();
    let e = cluster(&root).await.devices(&pod("web-1"), root.path()).await.unwrap_err();
    assert!(e.to_string().contains("check that the kubelet runs"), "{e}");
}

#[tokio::test]
async fn without_a_socket_the_checkpoint_is_read() {
    let root = Root::new("checkpoint");
    let cluster = cluster(&root).await;
    assert_eq!(cluster.devices(&pod("web-1"), root.path()).await, Ok(Vec::new()), "no device plugin was ever there");
    std::fs::copy(fixture(), root.path().join(CHECKPOINT)).unwrap();
    let ids = ["0000:03:02.7", "0000:18:02.5", "0000:18:02.1", "0000:03:02.0"];
    assert_eq!(cluster.devices(&pod("web-1"), root.path()).await, Ok(wanted(&ids.map(|id| ("intel.com/sriov", id)))));
    std::fs::write(root.path().join(CHECKPOINT), "{").unwrap();
    let e = cluster.devices(&pod("web-1"), root.path()).await.unwrap_err();
    assert!(matches!(e, DeviceError::Checkpoint { .. }), "{e}");
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kubelet_internal_checkpoint")
}
