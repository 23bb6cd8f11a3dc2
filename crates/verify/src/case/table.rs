//! The cases. The words of 1 to 56 are those of the matrix (kubernetes/community#692), with its typing errors corrected.

use super::{Backend, By, Case, Client, Limited, On, Quality, Rule, Service, ServiceOwner, Target};

const fn case(id: &'static str, words: &'static str, from: Client, to: Target) -> Case {
    Case { id, words, from, to, not_ipv4: None, not_ipv6: None }
}

const fn service(by: By, of: ServiceOwner, backend: Option<Backend>) -> Service {
    Service { by, of, backend, remaps: false, is_local: false }
}

impl Service {
    const fn remapped(self) -> Self {
        Service { remaps: true, ..self }
    }

    const fn local(self) -> Self {
        Service { is_local: true, ..self }
    }
}

/// Every case, in the order in which they are shown.
pub static CASES: &[Case] = &[
    case("1", "pod to pod, same VM", Client::Pod, Target::Pod(On::SameNode)),
    case("2", "pod to pod, other VM", Client::Pod, Target::Pod(On::OtherNode)),
    case("3", "pod to own VM, own hostPort", Client::Pod, Target::HostPort(On::SameNode, ServiceOwner::Itself)),
    case("4", "pod to own VM, other hostPort", Client::Pod, Target::HostPort(On::SameNode, ServiceOwner::Another)),
    case("5", "pod to other VM, other hostPort", Client::Pod, Target::HostPort(On::OtherNode, ServiceOwner::Another)),
    case("6", "pod to own VM", Client::Pod, Target::Node(On::SameNode)),
    case("7", "pod to other VM", Client::Pod, Target::Node(On::OtherNode)),
    case("8", "pod to internet", Client::Pod, Target::Internet),
    Case {
        not_ipv6: Some("the metadata service has the address 169.254.169.254 alone"),
        ..case("9", "pod to http://metadata", Client::Pod, Target::Metadata)
    },
    case("10", "VM to pod, same VM", Client::Node, Target::Pod(On::SameNode)),
    case("11", "VM to pod, other VM", Client::Node, Target::Pod(On::OtherNode)),
    case("12", "VM to same VM hostPort", Client::Node, Target::HostPort(On::SameNode, ServiceOwner::Another)),
    case("13", "VM to other VM hostPort", Client::Node, Target::HostPort(On::OtherNode, ServiceOwner::Another)),
    case(
        "14",
        "pod to own clusterIP, hairpin",
        Client::Pod,
        Target::Service(service(By::ClusterIp, ServiceOwner::Itself, Some(Backend::Itself))),
    ),
    case(
        "15",
        "pod to own clusterIP, same VM, other pod, no port remap",
        Client::Pod,
        Target::Service(service(By::ClusterIp, ServiceOwner::Itself, Some(Backend::Pod(On::SameNode)))),
    ),
    case(
        "16",
        "pod to own clusterIP, same VM, other pod, port remap",
        Client::Pod,
        Target::Service(service(By::ClusterIp, ServiceOwner::Itself, Some(Backend::Pod(On::SameNode))).remapped()),
    ),
    case(
        "17",
        "pod to own clusterIP, other VM, other pod, no port remap",
        Client::Pod,
        Target::Service(service(By::ClusterIp, ServiceOwner::Itself, Some(Backend::Pod(On::OtherNode)))),
    ),
    case(
        "18",
        "pod to own clusterIP, other VM, other pod, port remap",
        Client::Pod,
        Target::Service(service(By::ClusterIp, ServiceOwner::Itself, Some(Backend::Pod(On::OtherNode))).remapped()),
    ),
    case(
        "19",
        "pod to other clusterIP, same VM, no port remap",
        Client::Pod,
        Target::Service(service(By::ClusterIp, ServiceOwner::Another, Some(Backend::Pod(On::SameNode)))),
    ),
    case(
        "20",
        "pod to other clusterIP, same VM, port remap",
        Client::Pod,
        Target::Service(service(By::ClusterIp, ServiceOwner::Another, Some(Backend::Pod(On::SameNode))).remapped()),
    ),
    case(
        "21",
        "pod to other clusterIP, other VM, no port remap",
        Client::Pod,
        Target::Service(service(By::ClusterIp, ServiceOwner::Another, Some(Backend::Pod(On::OtherNode)))),
    ),
    case(
        "22",
        "pod to other clusterIP, other VM, port remap",
        Client::Pod,
        Target::Service(service(By::ClusterIp, ServiceOwner::Another, Some(Backend::Pod(On::OtherNode))).remapped()),
    ),
    case(
        "23",
        "pod to own node, own nodePort, hairpin",
        Client::Pod,
        Target::Service(service(By::NodePort(On::SameNode), ServiceOwner::Itself, Some(Backend::Itself))),
    ),
    case(
        "24",
        "pod to own node, own nodePort, policy=local",
        Client::Pod,
        Target::Service(service(By::NodePort(On::SameNode), ServiceOwner::Itself, None).local()),
    ),
    case(
        "25",
        "pod to own node, own nodePort, same VM",
        Client::Pod,
        Target::Service(service(By::NodePort(On::SameNode), ServiceOwner::Itself, Some(Backend::Pod(On::SameNode)))),
    ),
    case(
        "26",
        "pod to own node, own nodePort, other VM",
        Client::Pod,
        Target::Service(service(By::NodePort(On::SameNode), ServiceOwner::Itself, Some(Backend::Pod(On::OtherNode)))),
    ),
    case(
        "27",
        "pod to own node, other nodePort, policy=local",
        Client::Pod,
        Target::Service(service(By::NodePort(On::SameNode), ServiceOwner::Another, None).local()),
    ),
    case(
        "28",
        "pod to own node, other nodePort, same VM",
        Client::Pod,
        Target::Service(service(By::NodePort(On::SameNode), ServiceOwner::Another, Some(Backend::Pod(On::SameNode)))),
    ),
    case(
        "29",
        "pod to own node, other nodePort, other VM",
        Client::Pod,
        Target::Service(service(By::NodePort(On::SameNode), ServiceOwner::Another, Some(Backend::Pod(On::OtherNode)))),
    ),
    case(
        "30",
        "pod to other node, own nodePort, policy=local",
        Client::Pod,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Itself, None).local()),
    ),
    case(
        "31",
        "pod to other node, own nodePort, same VM",
        Client::Pod,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Itself, Some(Backend::Pod(On::SameNode)))),
    ),
    case(
        "32",
        "pod to other node, own nodePort, other VM",
        Client::Pod,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Itself, Some(Backend::Pod(On::OtherNode)))),
    ),
    case(
        "33",
        "pod to other node, other nodePort, policy=local",
        Client::Pod,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Another, None).local()),
    ),
    case(
        "34",
        "pod to other node, other nodePort, same VM",
        Client::Pod,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Another, Some(Backend::Pod(On::SameNode)))),
    ),
    case(
        "35",
        "pod to other node, other nodePort, other VM",
        Client::Pod,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Another, Some(Backend::Pod(On::OtherNode)))),
    ),
    case(
        "36",
        "pod to own external LB, no remap, policy=local",
        Client::Pod,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Itself, None).local()),
    ),
    case(
        "37",
        "pod to own external LB, no remap, same VM",
        Client::Pod,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Itself, Some(Backend::Pod(On::SameNode)))),
    ),
    case(
        "38",
        "pod to own external LB, no remap, other VM",
        Client::Pod,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Itself, Some(Backend::Pod(On::OtherNode)))),
    ),
    case(
        "39",
        "pod to own external LB, remap, policy=local",
        Client::Pod,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Itself, None).remapped().local()),
    ),
    case(
        "40",
        "pod to own external LB, remap, same VM",
        Client::Pod,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Itself, Some(Backend::Pod(On::SameNode))).remapped()),
    ),
    case(
        "41",
        "pod to own external LB, remap, other VM",
        Client::Pod,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Itself, Some(Backend::Pod(On::OtherNode))).remapped()),
    ),
    case(
        "42",
        "VM to same VM nodePort, policy=local",
        Client::Node,
        Target::Service(service(By::NodePort(On::SameNode), ServiceOwner::Another, None).local()),
    ),
    case(
        "43",
        "VM to same VM nodePort, same VM",
        Client::Node,
        Target::Service(service(By::NodePort(On::SameNode), ServiceOwner::Another, Some(Backend::Pod(On::SameNode)))),
    ),
    case(
        "44",
        "VM to same VM nodePort, other VM",
        Client::Node,
        Target::Service(service(By::NodePort(On::SameNode), ServiceOwner::Another, Some(Backend::Pod(On::OtherNode)))),
    ),
    case(
        "45",
        "VM to other VM nodePort, policy=local",
        Client::Node,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Another, None).local()),
    ),
    case(
        "46",
        "VM to other VM nodePort, same VM",
        Client::Node,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Another, Some(Backend::Pod(On::SameNode)))),
    ),
    case(
        "47",
        "VM to other VM nodePort, other VM",
        Client::Node,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Another, Some(Backend::Pod(On::OtherNode)))),
    ),
    case("48", "VM to external LB", Client::Node, Target::Service(service(By::LoadBalancer, ServiceOwner::Another, None))),
    case(
        "49",
        "public to nodePort, policy=local",
        Client::Public,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Another, None).local()),
    ),
    case(
        "50",
        "public to nodePort, policy=global",
        Client::Public,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Another, None)),
    ),
    case(
        "51",
        "public to external LB, no remap, policy=local",
        Client::Public,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Another, None).local()),
    ),
    case(
        "52",
        "public to external LB, no remap, policy=global",
        Client::Public,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Another, None)),
    ),
    case(
        "53",
        "public to external LB, remap, policy=local",
        Client::Public,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Another, None).remapped().local()),
    ),
    case(
        "54",
        "public to external LB, remap, policy=global",
        Client::Public,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Another, None).remapped()),
    ),
    case(
        "55",
        "public to nodePort, manual backend",
        Client::Public,
        Target::Service(service(By::NodePort(On::OtherNode), ServiceOwner::Another, Some(Backend::Manual))),
    ),
    case(
        "56",
        "public to external LB, manual backend",
        Client::Public,
        Target::Service(service(By::LoadBalancer, ServiceOwner::Another, Some(Backend::Manual))),
    ),
    case("model-1", "pods reach pods without NAT", Client::Pod, Target::Model(Rule::PodsWithPods)),
    case("model-2", "nodes and pods reach each other without NAT", Client::Node, Target::Model(Rule::NodesWithPods)),
    case("model-3", "a pod has the address that others see", Client::Pod, Target::Model(Rule::OneAddress)),
    case("network-1", "pods of a network reach each other, same node", Client::Pod, Target::Network(Quality::Reach(On::SameNode))),
    case("network-2", "pods of a network reach each other, other node", Client::Pod, Target::Network(Quality::Reach(On::OtherNode))),
    case("network-3", "a packet of exactly the MTU passes", Client::Pod, Target::Network(Quality::FitsMtu)),
    case("network-4", "a packet of one byte more does not", Client::Pod, Target::Network(Quality::ExceedsMtu)),
    case("network-5", "pods that a network keeps apart do not reach each other", Client::Pod, Target::Network(Quality::Isolation)),
    case("bandwidth-1", "a pod receives no faster than its limit", Client::Pod, Target::Bandwidth(Limited::Receives)),
    case("bandwidth-2", "a pod sends no faster than its limit", Client::Pod, Target::Bandwidth(Limited::Sends)),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole matrix is there, in order, each with the words that the documents have.
    #[test]
    fn each_case_is_documented() {
        let numbers: Vec<&str> = CASES.iter().map(|case| case.id).take(56).collect();
        assert_eq!(numbers, (1..=56).map(|number| number.to_string()).collect::<Vec<_>>());
        let page = include_str!("../../../../docs/use/verify.md");
        for case in CASES {
            assert!(
                page.contains(&format!("| {} | {} |", case.id, case.words)),
                "docs/use/verify.md lacks a row: | {} | {} |",
                case.id,
                case.words
            );
        }
    }

    /// Cases 1 to 13 need no service proxy, and all others of the matrix do.
    #[test]
    fn thirteen_cases_need_no_service_proxy() {
        let without = CASES.iter().take(56).filter(|case| !case.needs().contains(&super::super::Need::ServiceProxy));
        assert_eq!(without.map(|case| case.id).collect::<Vec<_>>(), ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13"]);
    }
}
