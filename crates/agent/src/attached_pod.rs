//! What a pod's record promises of its networks: who verifies a lab, or what was recorded of a node, expects that.

use json::{Object, Value};
use npwg::StatusIps;

use attach::{Record, Step, network_status};
use verify::{Attachment, LimitedPod, Limits, Place, Protocol, Publication, Reach, SitePod, promise};

/// The pod of a record on a node, and its interfaces on networks that limit its bandwidth. What is missing in the record has no place in it: an
/// attachment that was not made has no address.
///
/// `mtu`: that of a link of a place, as it is now. `reach`: whom the pod reaches on a network.
pub fn attached_pod(
    record: &Record,
    node: &str,
    mtu: &dyn Fn(&Place, &str) -> Option<u32>,
    reach: &dyn Fn(&Step) -> Reach,
) -> (SitePod, Vec<LimitedPod>) {
    let name = format!("{}/{}", record.pod.namespace, record.pod.name);
    let (place, home) = (Place::Pod(name.clone()), Place::Node(node.to_owned()));
    let statuses = network_status(record, StatusIps::Bare);
    let attachment = |step: &Step| {
        let ifname = step.ifname.as_str();
        let own: Vec<_> = statuses.iter().filter(|status| status.interface.as_deref() == Some(ifname)).collect();
        let addresses = own.iter().flat_map(|status| &status.ips).filter_map(|ip| ip.parse().ok()).collect();
        // What it was made with is what it promises; a link that is gone still belongs to the pod.
        let made = promise::mtu(&step.list).or_else(|| own.iter().find_map(|status| status.mtu));
        let made = made.or_else(|| mtu(&home, parent(step)?)).or_else(|| mtu(&place, ifname));
        Attachment { network: step.name.clone(), is_default: step.default, addresses, mtu: made, reach: reach(step), zone: None }
    };
    let attachments: Vec<Attachment> = record.steps.iter().map(attachment).collect();
    let limited = record.steps.iter().zip(&attachments).filter_map(|(step, attachment)| {
        let limits = promise::limits(&step.list, &step.capability_args);
        let (network, addresses) = ((!step.default).then(|| step.name.clone()), attachment.addresses.clone());
        let limited = LimitedPod { name: name.clone(), node: node.to_owned(), network, addresses, limits };
        (limits != Limits::default()).then_some(limited)
    });
    let limited = limited.collect();
    let ports = record.steps.iter().filter(|step| step.default).flat_map(publications).collect();
    (SitePod { name, node: node.to_owned(), attachments, ports }, limited)
}

/// What a network's pods are connected to on their node: without another MTU in the configuration, they get its.
fn parent(step: &Step) -> Option<&str> {
    let raw = step.list.plugins.first()?.raw();
    raw.str("bridge").or_else(|| raw.str("master"))
}

/// What is to be published of a pod. A default network of others may do so by itself, where no rule shows it: of one without `portmap` whose first plugin is
/// none of the standard's nothing is expected.
fn publications(step: &Step) -> Vec<Publication> {
    let publishes = step.list.plugins.iter().any(|plugin| matches!(plugin.kind.as_str(), "portmap" | "bridge" | "ptp"));
    let mappings = step.capability_args.get("portMappings").and_then(Value::as_array).filter(|_| publishes);
    mappings.into_iter().flatten().filter_map(|mapping| publication(mapping.as_object()?)).collect()
}

fn publication(mapping: &Object) -> Option<Publication> {
    let port = |key: &str| match mapping.get(key)? {
        Value::Number(number) => number.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0),
        _ => None,
    };
    let protocol = match mapping.str("protocol").unwrap_or("tcp").to_ascii_lowercase().as_str() {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        "sctp" => Protocol::Sctp,
        _ => return None,
    };
    // Empty as well as 0.0.0.0 and ::, it is every address.
    let at = mapping.str("hostIP").and_then(|text| text.parse().ok()).filter(|at: &std::net::IpAddr| !at.is_unspecified());
    Some(Publication { protocol, at, host_port: port("hostPort")?, pod_port: port("containerPort")? })
}
