//! The kubelet's podresources service, version 1: what is needed of its messages, by their numbers in
//! `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status};
use trust::chain;

use super::DeviceError;

/// How long the kubelet may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The longest answer that is taken, in bytes.
const MAX_ANSWER: usize = 16 << 20;

#[derive(Clone, PartialEq, Message)]
struct ListRequest {}

#[derive(Clone, PartialEq, Message)]
struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pods: Vec<PodResources>,
}

#[derive(Clone, PartialEq, Message)]
struct GetRequest {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct GetResponse {
    #[prost(message, optional, tag = "1")]
    pod: Option<PodResources>,
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

#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(message, repeated, tag = "2")]
    devices: Vec<Devices>,
}

#[derive(Clone, PartialEq, Message)]
struct Devices {
    #[prost(string, tag = "1")]
    resource: String,
    #[prost(string, repeated, tag = "2")]
    ids: Vec<String>,
}

/// What the kubelet knows of the pod; nothing if it does not know the pod.
pub(super) async fn devices(socket: &Path, namespace: &str, name: &str) -> Result<Vec<(String, String)>, DeviceError> {
    match timeout(LIMIT, ask(socket, namespace, name)).await {
        Ok(pod) => Ok(pod?.into_iter().flat_map(pairs).collect()),
        Err(_) => Err(DeviceError::TimedOut { socket: socket.to_owned(), after: LIMIT }),
    }
}

async fn ask(socket: &Path, namespace: &str, name: &str) -> Result<Option<PodResources>, DeviceError> {
    let failed = |cause| DeviceError::Kubelet { socket: socket.to_owned(), cause };
    let mut kubelet = connect(socket).await.map_err(|e| failed(chain(&e)))?;
    let wanted = GetRequest { name: name.to_owned(), namespace: namespace.to_owned() };
    let get = PathAndQuery::from_static("/v1.PodResourcesLister/Get");
    match call::<_, GetResponse>(&mut kubelet, wanted, get).await {
        Ok(GetResponse { pod }) => return Ok(pod),
        Err(e) if matches!(e.code(), Code::Unavailable | Code::DeadlineExceeded | Code::PermissionDenied) => return Err(failed(said(&e))),
        // An older kubelet has no Get, or has it disabled, and says so in several ways: List is always there.
        Err(_) => {}
    }
    let list = PathAndQuery::from_static("/v1.PodResourcesLister/List");
    let all: ListResponse = call(&mut kubelet, ListRequest {}, list).await.map_err(|e| failed(said(&e)))?;
    Ok(all.pods.into_iter().find(|pod| pod.namespace == namespace && pod.name == name))
}

async fn connect(socket: &Path) -> Result<Grpc<Channel>, tonic::transport::Error> {
    let path: PathBuf = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    // The name goes into the request's header only.
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connector).await?;
    Ok(Grpc::new(channel).max_decoding_message_size(MAX_ANSWER))
}

async fn call<Q, A>(kubelet: &mut Grpc<Channel>, question: Q, path: PathAndQuery) -> Result<A, Status>
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    kubelet.ready().await.map_err(|e| Status::unavailable(chain(&e)))?;
    let codec = tonic_prost::ProstCodec::<Q, A>::default();
    Ok(kubelet.unary(Request::new(question), path, codec).await?.into_inner())
}

fn said(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

fn pairs(pod: PodResources) -> impl Iterator<Item = (String, String)> {
    let devices = pod.containers.into_iter().flat_map(|container| container.devices);
    devices.flat_map(|Devices { resource, ids }| ids.into_iter().map(move |id| (resource.clone(), id)))
}

#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    let pod = GetResponse::decode(bytes).ok().and_then(|answer| answer.pod);
    let pods = ListResponse::decode(bytes).map(|answer| answer.pods).unwrap_or_default();
    pod.into_iter().chain(pods).flat_map(pairs).for_each(drop);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by the kubelet's own messages (k8s.io/kubelet v0.35.4), with every field that they have.
    const LIST: &[u8] = include_bytes!("../../tests/fixtures/podresources-list");

    #[test]
    fn the_kubelets_bytes_are_read_in_their_order() {
        let list = ListResponse::decode(LIST).unwrap();
        let names: Vec<_> = list.pods.iter().map(|p| format!("{}/{}", p.namespace, p.name)).collect();
        assert_eq!(names, ["default/other", "default/web-1"]);
        let found: Vec<_> = list.pods.into_iter().flat_map(pairs).collect();
        let wanted = [("intel.com/sriov", "0000:18:02.5"), ("intel.com/sriov", "0000:18:02.1"), ("example.com/gpu", "gpu-0")];
        let wanted = wanted.iter().chain(&[("intel.com/sriov", "0000:03:02.0")]);
        assert_eq!(found, wanted.map(|(r, id)| ((*r).to_owned(), (*id).to_owned())).collect::<Vec<_>>());
    }
}
