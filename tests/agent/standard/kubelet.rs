//! What a node's kubelet answers when it is asked which devices a pod has. It is a real gRPC server on the kubelet's socket,
//! and no kubelet: there is no device plugin on a test machine.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use prost::Message;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tower::Service;

use netloom_tests::Host;

const SOCKET: &str = "/var/lib/kubelet/pod-resources/kubelet.sock";

#[derive(Clone, PartialEq, Message)]
struct Devices {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    ids: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    devices: Vec<Devices>,
}

#[derive(Clone, PartialEq, Message)]
struct PodResources {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
    #[prost(message, repeated, tag = "3")]
    containers: Vec<Container>,
}

/// The answer to `List`, and with one element to `Get`.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<PodResources>,
}

#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
}

#[derive(Clone)]
struct Lister(Answer);

impl NamedService for Lister {
    const NAME: &'static str = "v1.PodResourcesLister";
}

struct One(Answer, String);

impl UnaryService<Question> for One {
    type Response = Answer;
    type Future = Ready<Result<tonic::Response<Answer>, Status>>;

    fn call(&mut self, _: tonic::Request<Question>) -> Self::Future {
        // As an older kubelet, which has no `Get`.
        let known = self.1 == "/v1.PodResourcesLister/List";
        ready(if known { Ok(tonic::Response::new(self.0.clone())) } else { Err(Status::unimplemented("no such method")) })
    }
}

impl Service<Request<Body>> for Lister {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let one = One(self.0.clone(), request.uri().path().to_owned());
        Box::pin(async move { Ok(Grpc::new(tonic_prost::ProstCodec::<Answer, Question>::default()).unary(one, request).await) })
    }
}

/// A kubelet that answers until this is dropped.
pub(crate) struct Kubelet(Option<oneshot::Sender<()>>);

impl Kubelet {
    /// On a node, for a pod that holds these devices: resource and ID, in the kubelet's order.
    pub(crate) fn start(host: &Host, namespace: &str, pod: &str, devices: &[(&str, &str)]) -> Self {
        let devices = devices.iter().map(|(r, id)| Devices { resource: (*r).to_owned(), ids: vec![(*id).to_owned()] }).collect();
        let containers = vec![Container { name: "c".to_owned(), devices }];
        let answer = Answer { pods: vec![PodResources { name: pod.to_owned(), namespace: namespace.to_owned(), containers }] };
        let socket = host.path(SOCKET);
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let (stop, stopped) = oneshot::channel();
        let (listening, listens) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let incoming = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
                listening.send(()).unwrap();
                let server = tonic::transport::Server::builder().add_service(Lister(answer));
                let stopped = async { drop(stopped.await) };
                server.serve_with_incoming_shutdown(incoming, stopped).await.unwrap();
            });
        });
        listens.recv().unwrap();
        Kubelet(Some(stop))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        let _ = self.0.take().map(|stop| stop.send(()));
    }
}
