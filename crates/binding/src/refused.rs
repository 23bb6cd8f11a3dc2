//! Why a pod does not get its ports now.

/// What is in the way. It is the pod's own: no other one waits for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The subnet does not exist, or nobody may see it.
    #[error("subnet {0} does not exist in Neutron, or the credentials cannot see it")]
    NoSubnet(String),
    /// The network does not exist, or nobody may see it.
    #[error("network {0} does not exist in Neutron, or the credentials cannot see it")]
    NoNetwork(String),
    /// The port that the definition names does not exist, or nobody may see it.
    #[error("port {0} does not exist in Neutron, or the credentials cannot see it")]
    NoPort(String),
    /// Somebody else has it.
    #[error(
        "port {port} is in use by {by}: name a port without device_id and device_owner, which no other pod has, or delete the other pod"
    )]
    PortInUse {
        /// The port.
        port: String,
        /// Who has it.
        by: String,
    },
    /// The selection asks for something that the port has not.
    #[error("port {port} does not have {wanted}: remove it from the pod's annotation, or name another port")]
    PortWithout {
        /// The port.
        port: String,
        /// What is asked for.
        wanted: String,
    },
    /// Which card it is on is not known.
    #[error(
        "port {port} is a virtual function's, and its network {network} has no provider:physical_network that the credentials can see: use another network"
    )]
    NoPhysicalNetwork {
        /// The port.
        port: String,
        /// Its network.
        network: String,
    },
    /// An address lies in no subnet that the definition names: Neutron would take it of any subnet of the network.
    #[error("address {0} lies in none of the definition's subnets: ask for one of theirs, or for none")]
    AddressOutside(std::net::IpAddr),
    /// No subnet is known of which it could be.
    #[error(
        "address {0} is asked for in a network without named subnets: name the subnet in the definition (subnetId), or ask for no address"
    )]
    AddressWithoutSubnet(std::net::IpAddr),
    /// A port that has it receives what others send to the router.
    #[error("address {0} is the gateway of subnet {1}: ask for another one")]
    AddressOfGateway(std::net::IpAddr, String),
    /// Others than Neutron give such addresses away.
    #[error(
        "address {0} lies in no allocation pool of subnet {1}: ask for another one, or let a policy rule allow it (allow.neutron.outsideAllocationPools)"
    )]
    AddressOutsidePools(std::net::IpAddr, String),
    /// A port has one network.
    #[error("subnets {0} and {1} are of two networks, and a port is of one: select one definition for each network")]
    TwoNetworks(String, String),
    /// Neutron refused the port: see its own message, which who called has.
    #[error("Neutron refuses the port of {interface} in {place}")]
    Port {
        /// Which of the pod's networks it is.
        number: usize,
        /// The interface's name.
        interface: String,
        /// The subnet or network.
        place: String,
    },
    /// No mechanism driver serves the node.
    #[error("Neutron cannot bind the port of {interface} on {host}: no mechanism driver serves this host; check that its agent is alive")]
    Binding {
        /// The port.
        port: String,
        /// The interface's name; the port's ID as long as that is not known.
        interface: String,
        /// The host that it was to be bound to.
        host: String,
    },
    /// The node may have plugged it, and no mechanism driver serves it any more.
    #[error(
        "Neutron has lost the binding of port {port} on {host}, which the pod may be running with: check Neutron's agent there; if it stays so, \
             delete the pod"
    )]
    Unbound {
        /// The port.
        port: String,
        /// The host.
        host: String,
    },
    /// The node has plugged it, and somebody has deleted it.
    #[error("port {port} of {interface} is gone from Neutron, and the pod may be running with it: delete the pod to give it another one")]
    Gone {
        /// The port.
        port: String,
        /// The interface's name.
        interface: String,
    },
    /// Two KuryrPorts say that they have it.
    #[error(
        "port {port} of {interface} is that of another pod as well, and this pod may be running with it: delete the pod to give it another one"
    )]
    Shared {
        /// The port.
        port: String,
        /// The interface's name.
        interface: String,
    },
    /// The kubelet's address is no port's.
    #[error(
        "no Neutron port in the subnets of [pod_vif_nested] worker_nodes_subnets has the node's address {0}: add the subnet of the nodes' ports there"
    )]
    NoNodePort(String),
    /// Two subnets of nodes have the same addresses.
    #[error(
        "several Neutron ports in the subnets of [pod_vif_nested] worker_nodes_subnets have the node's address {0}: name fewer subnets there"
    )]
    SeveralNodePorts(String),
    /// The node's port carries nothing.
    #[error("the node's port {0} has no trunk: create one (openstack network trunk create), or use driverType nested-macvlan")]
    NodeWithoutTrunk(String),
    /// A macvlan is in the network of what it stands on.
    #[error(
        "a nested-macvlan port is one of the node's own network {node}, and the definition's network is {pod}: use nested-vlan, or the other network"
    )]
    NodeInOtherNetwork {
        /// That of the node's port.
        node: String,
        /// That of the definition.
        pod: String,
    },
    /// The trunk that the port was made for.
    #[error("trunk {0} does not exist in Neutron, or the credentials cannot see it: delete the pod to give it another port")]
    NoTrunk(String),
    /// The node's port that the port was made for.
    #[error(
        "the node's port {0} does not exist in Neutron any more, or the credentials cannot see it: delete the pod to give it another port"
    )]
    NodePortGone(String),
    /// Each VLAN ID of it is taken.
    #[error("trunk {0} has no VLAN ID left: a node has at most 4094 subports; delete pods of the node")]
    TrunkFull(String),
    /// The pods of a namespace have as many addresses as they may.
    #[error(
        "the Neutron ports of namespace {namespace} have {used} addresses, the pod needs {more}, and portsPerNamespace is {max}: delete pods, or \
             raise it"
    )]
    TooMany {
        /// The namespace.
        namespace: String,
        /// How many addresses it has.
        used: usize,
        /// How many more the pod needs.
        more: usize,
        /// How many it may have.
        max: usize,
    },
    /// A kind of binding that nobody here can plug.
    #[error("port {port} has vif_type {vif_type:?}, which is not supported: use an Open vSwitch mechanism driver")]
    VifType {
        /// The port.
        port: String,
        /// How it is bound.
        vif_type: String,
    },
    /// Neutron does not say into which bridge.
    #[error("port {0} has no bridge_name, and the setting [neutron_defaults] ovs_bridge is missing")]
    NoBridge(String),
    /// Another controller has made it.
    #[error("KuryrPort {0} was made by another controller: delete it, or stop that controller")]
    ForeignKuryrPort(String),
    /// Nobody knows what it says.
    #[error("KuryrPort {0} cannot be read: {1}; delete the pod to get another one")]
    UnreadableKuryrPort(String, String),
    /// The agents read no larger one.
    #[error("the pod's KuryrPort would take {bytes} bytes of memory, and {most} are read at the most: select fewer networks", most = osvif::MAX_KURYR_PORT)]
    TooLarge {
        /// What it would take.
        bytes: usize,
    },
    /// Neutron says something that means nothing.
    #[error("{what} of Neutron is {text:?}, which cannot be read")]
    Unreadable {
        /// Which value.
        what: &'static str,
        /// What it is.
        text: String,
    },
}
