use std::sync::Arc;

use linux::{Inside, Netns};

use super::*;

/// A node with these links, in a namespace of its own.
fn node_with(links: &str, services: &[&str], f: impl FnOnce(&ThisNode<'_>) + Send) {
    let services: Vec<IpNet> = services.iter().map(|range| range.parse().unwrap()).collect();
    let here = |_: &Inside| {
        let done = std::process::Command::new("sh").args(["-ec", links]).output().unwrap();
        assert!(done.status.success(), "{links}: {done:?}");
        let mut host = Host::here(plugin::Dirs::default());
        f(&ThisNode::new(&mut host, &[], ClusterOwn { ranges: services, ..ClusterOwn::default() }));
    };
    Netns::unnamed().unwrap().enter(here).unwrap();
}

/// What cannot be looked up is not taken for nobody's.
#[test]
fn what_cannot_be_read_counts_as_the_nodes_own() {
    let mut host = Host::here(plugin::Dirs::default());
    let mut node = ThisNode::new(&mut host, &[], ClusterOwn::default());
    node.given.push(GivenNetwork { what: "the node's default network", bridge: Some("cni0".to_owned()), ..GivenNetwork::default() });
    node.kernel.set(Err("ip link show: EMFILE".to_owned())).unwrap();
    assert_eq!(node.uplink("eth1").as_deref(), Some("eth1, which may be the node's uplink (ip link show: EMFILE)"));
    let bridge = "br1, which may be the bridge of the node's default network (ip link show: EMFILE)";
    assert_eq!(node.default_bridge("br1").as_deref(), Some(bridge));
    assert_eq!(node.default_bridge("cni0").as_deref(), Some("cni0, the bridge of the node's default network"));
}

#[test]
fn whose_an_address_is() {
    let mut host = Host::here(plugin::Dirs::default());
    let (ranges, servers) = (vec!["10.96.0.0/12".parse().unwrap()], vec!["192.0.2.99".parse().unwrap()]);
    let node = ThisNode::new(&mut host, &[], ClusterOwn { ranges, servers, ..ClusterOwn::default() });
    let whose = |address: &str| node.address(address.parse().unwrap());
    for service in ["10.96.0.1", "::ffff:10.96.0.1"] {
        assert_eq!(whose(service).as_deref(), Some("which is in the cluster's Service range 10.96.0.0/12"), "{service}");
    }
    assert_eq!(node.of_cluster("192.0.2.99".parse().unwrap()).as_deref(), Some("which is the API server's"));
    for (address, whose) in [("169.254.169.254", "metadata"), ("fd00:ec2::254", "metadata")] {
        assert!(node.of_cluster(address.parse().unwrap()).is_some_and(|told| told.contains(whose)), "{address}");
    }
    assert!(whose("127.0.0.1").is_some() && whose("::ffff:127.0.0.1").is_some() && whose("192.0.2.7").is_none());
}

/// Nobody listens on a NodePort that IPVS takes, and kube-proxy's link has the addresses of load balancers besides.
#[test]
fn ports_that_ipvs_takes_for_services() {
    let mut host = Host::here(plugin::Dirs::default());
    let node = ThisNode::new(&mut host, &[], ClusterOwn::default());
    node.kernel.set(Ok(Snapshot::default())).unwrap();
    node.virtual_servers.set(Ok(VirtualServer::of_line("TCP  C0A80114:7A31 rr").into_iter().collect())).unwrap();
    let published =
        |port, protocol, ip: &str| node.published(port, protocol, Some(ip).filter(|ip| !ip.is_empty()).map(|ip| ip.parse().unwrap()));
    for ip in ["", "0.0.0.0", "192.168.1.20", "::ffff:192.168.1.20"] {
        let says = "at 192.168.1.20, where IPVS takes it for a Service: choose another port";
        assert_eq!(published(31281, Protocol::Tcp, ip).as_deref(), Some(says), "{ip}");
    }
    assert_eq!(published(31281, Protocol::Tcp, "192.168.1.21"), None);
    assert_eq!(published(31281, Protocol::Udp, ""), None);
    assert_eq!(published(31282, Protocol::Tcp, ""), None);
}

/// Who has it answers for every router of the network. A network of two addresses has none, and those of a link are nobody's alone.
#[test]
fn the_address_of_a_networks_routers_is_the_nodes_own() {
    let links = "ip tuntap add up0 mode tap; ip link set up0 up; ip link add pods0 type bridge; ip link set pods0 up
        ip addr add 2001:db8:1::10/64 dev up0 nodad; ip addr add 2001:db8:2::1/127 dev up0 nodad; ip addr add 2001:db8:3::7/128 dev up0 nodad
        ip addr add fd00:5::1/64 dev pods0 nodad; ip addr add 192.168.1.20/24 dev up0";
    node_with(links, &[], |node| {
        let whose = |address: &str| node.address(address.parse().unwrap());
        let says = |net: &str| Some(format!("which means the routers of {net}, a network of the node"));
        assert_eq!((whose("2001:db8:1::"), whose("fd00:5::")), (says("2001:db8:1::/64"), says("fd00:5::/64")));
        assert_eq!(whose("2001:db8:1::10").as_deref(), Some("which is the node's own"));
        for nobodys in ["2001:db8:2::", "2001:db8:3::", "2001:db8:1::9", "2001:db8:4::", "fe80::", "192.168.1.21"] {
            assert_eq!(whose(nobodys), None, "{nobodys}");
        }
    });
}

/// What a program of the node is reached at, and what an interface gave itself.
#[test]
fn link_local_addresses_of_the_node_are_its_own() {
    let links = "ip tuntap add dns0 mode tap; ip link set dns0 up; ip addr add 169.254.20.10/32 dev dns0
        ip tuntap add auto0 mode tap; ip link set auto0 up; ip addr add 169.254.7.9/16 dev auto0";
    node_with(links, &[], |node| {
        let whose = |address: &str| node.address(address.parse().unwrap());
        for own in ["169.254.20.10", "::ffff:169.254.20.10", "169.254.7.9"] {
            assert_eq!(whose(own).as_deref(), Some("which is the node's own"), "{own}");
        }
        assert_eq!((whose("169.254.20.11"), whose("169.254.7.10")), (None, None));
    });
}

/// What pods of a network send to others arrives at their bridge: an ipvlan on it took all to a DNS server elsewhere, or to a Service.
#[test]
fn an_ipvlan_takes_no_packets_from_the_bridge_of_another_network() {
    let links = "ip tuntap add nic0 mode tap; ip link set nic0 up; ip addr add 192.168.1.20/24 dev nic0; ip route add default via 192.168.1.1 dev nic0
        ip link add br1 type bridge; ip link set br1 up; ip addr add 10.50.0.1/24 dev br1; ip link add on-br1 link br1 type macvlan
        ip link add br2 type bridge; ip link set br2 up
        ip link add gw1 type veth peer name br2.5; ip link set gw1 master br2; ip addr add 10.55.0.1/24 dev br2.5
        ip link add br3 type bridge; ip link set br3 up; ip addr add 10.70.0.1/24 dev br3; ip route add default via 10.70.0.9 dev br3 metric 900";
    node_with(links, &["10.96.0.0/12"], |node| {
        let taken = |parent: &str, address: &str| node.received(address.parse().unwrap(), &Parent::Named(parent.to_owned()), None);
        for parent in ["br1", "on-br1", "br2.5"] {
            for address in ["198.41.0.4", "10.96.0.10", "192.168.1.7"] {
                assert!(taken(parent, address).is_some(), "{address} on {parent}");
            }
            assert_eq!(taken(parent, "10.200.0.7"), None, "{parent}: what the node reaches over its default route alone, within a site");
        }
        assert_eq!(taken("br1", "10.50.0.7"), None, "its own network");
        let says = "which redirects traffic for addresses outside of private ranges, such as 10.0.0.0/8 and fd00::/8";
        assert_eq!(taken("br1", "198.41.0.4").as_deref(), Some(says));
        // Nobody's gateway, and uplinks, on which the node is a machine among others.
        for parent in ["br2", "br3", "nic0"] {
            assert_eq!(taken(parent, "198.41.0.4"), None, "{parent}");
        }
    });
}

/// A macvlan in mode `passthru` receives all that pods send to their gateway.
#[test]
fn a_bridge_with_an_address_is_given_to_no_pod_alone() {
    node_with("ip link add br1 type bridge; ip addr add 10.50.0.1/24 dev br1; ip link add br2 type bridge", &[], |node| {
        assert_eq!(node.moved("br1").as_deref(), Some("br1, which has the node's address 10.50.0.1"));
        let link = |name: &str| node.links().unwrap().iter().find(|link| link.name == name).unwrap();
        let says = "the pod would take br1, which has the node's address 10.50.0.1, away from the node";
        assert_eq!(node.taken_by_use(PlannedChange::Moved(link("br1"))).as_deref(), Some(says));
        assert_eq!((node.moved("br2"), node.taken_by_use(PlannedChange::Moved(link("br2")))), (None, None));
    });
}

/// A pod that gets a device of the node, and asks for the address which that has.
#[test]
fn a_device_that_leaves_has_its_hardware_address_for_itself() {
    let links = "ip tuntap add nic0 mode tap; ip link set nic0 address 02:00:00:00:00:07; ip tuntap add nic1 mode tap; ip link set nic1 address 02:00:00:00:00:08
        ip link property add dev nic0 altname enp7s0";
    node_with(links, &[], |node| {
        let whose = |mac: &str, taken: &[&str]| node.mac(&mac.parse().unwrap(), taken);
        for taken in ["nic0", "enp7s0", "02-00-00-00-00-07"] {
            assert_eq!(whose("02:00:00:00:00:07", &[taken]), None, "{taken}");
            assert_eq!(whose("02:00:00:00:00:08", &[taken]).as_deref(), Some("which nic1 of the node has"), "{taken}");
        }
        assert_eq!(whose("02:00:00:00:00:07", &[]).as_deref(), Some("which nic0 of the node has"));
    });
}

/// Addresses of load balancers are in no range of Services, and in any mode but IPVS of kube-proxy the node has none of them.
#[test]
fn addresses_and_ports_of_services_are_nobodys() {
    let mut host = Host::here(plugin::Dirs::default());
    let addresses = ["203.0.113.7", "10.200.0.7"].map(|text| text.parse().unwrap());
    let services = cluster::Services::reached(addresses, [(Protocol::Tcp, 80)], [(Protocol::Tcp, 30080)]);
    let node = ThisNode::new(&mut host, &[], ClusterOwn { services: Some(&services), ..ClusterOwn::default() });
    for own in ["203.0.113.7", "::ffff:203.0.113.7", "10.200.0.7"] {
        let address: IpAddr = own.parse().unwrap();
        assert_eq!(node.address(address).as_deref(), Some("which is an address of a Service"), "{own}");
        assert!(node.of_cluster(address).is_some(), "{own}");
    }
    let range: IpNet = "10.200.0.0/24".parse().unwrap();
    assert_eq!(node.traffic(AddressRun::of(range), None, None).as_deref(), Some("which redirects traffic for a Service (10.200.0.7)"));
    assert_eq!(node.of_cluster("203.0.113.8".parse().unwrap()), None);
    let says = "which is a Service's NodePort: choose another port";
    assert_eq!(node.port(30080, Protocol::Tcp, Some("192.0.2.1".parse().unwrap())).as_deref(), Some(says));
    assert_eq!(node.port(30080, Protocol::Udp, None), None);
}

/// A cluster's network whose nodes have a tunnel at port 4789.
struct Tunnels;

impl crate::provided::PodNetwork for Tunnels {
    fn range_of_pods(&self, _: AddressRun) -> Option<IpNet> {
        None
    }

    fn node_in(&self, _: AddressRun) -> Option<(IpAddr, String)> {
        None
    }

    fn has_tunnel_at(&self, port: u16) -> bool {
        port == 4789
    }
}

/// Also before there is a tunnel: nobody listens there then.
#[test]
fn the_port_of_the_nodes_tunnel_is_nobodys() {
    let mut host = Host::here(plugin::Dirs::default());
    let node = ThisNode::new(&mut host, &[], ClusterOwn { pods: Some(&Tunnels), ..ClusterOwn::default() });
    let says = "the port of the cluster network's tunnel between nodes: choose another one";
    for ip in [None, Some("192.0.2.1".parse().unwrap())] {
        assert_eq!(node.port(4789, Protocol::Udp, ip).as_deref(), Some(says));
        assert_eq!((node.port(4789, Protocol::Tcp, ip), node.port(4790, Protocol::Udp, ip)), (None, None));
    }
}

/// A pod on the uplink's network that had the address of another node got what is sent to that one's pods.
#[test]
fn a_next_hop_of_the_nodes_routes_is_its_own_unless_it_is_a_pod() {
    let links = "ip tuntap add nic0 mode tap; ip link set nic0 up; ip addr add 192.168.1.20/24 dev nic0; ip -6 addr add 2001:db8:1::20/64 dev nic0 nodad
        ip route add default via 192.168.1.1 dev nic0; ip route add 10.244.7.0/24 via 192.168.1.12
        ip route add 10.30.0.0/16 nexthop via 192.168.1.13 dev nic0 nexthop via 192.168.1.14 dev nic0
        ip -6 route add fd00:7::/64 via 2001:db8:1::12; ip -6 route add fd00:8::/64 via fe80::12 dev nic0
        ip link add br1 type bridge; ip link set br1 up; ip addr add 10.50.0.1/24 dev br1; ip route add 10.60.0.0/16 via 10.50.0.9";
    node_with(links, &[], |node| {
        let whose = |address: &str| node.address(address.parse().unwrap());
        for (hop, dst) in [
            ("192.168.1.12", "10.244.7.0/24"),
            ("192.168.1.13", "10.30.0.0/16"),
            ("192.168.1.14", "10.30.0.0/16"),
            ("2001:db8:1::12", "fd00:7::/64"),
            ("fe80::12", "fd00:8::/64"),
        ] {
            assert_eq!(whose(hop), Some(format!("over which the node reaches {dst}")), "{hop}");
        }
        assert_eq!(whose("192.168.1.1").as_deref(), Some("which is the node's router"));
        // A pod that is a router comes back with its address, be it on its bridge or, with the bridge's whole network, by the bridge's own gateway.
        for nobodys in ["10.50.0.9", "192.168.1.15", "10.60.0.7", "2001:db8:1::13"] {
            assert_eq!(whose(nobodys), None, "{nobodys}");
        }
        let traffic = |text: &str, bridge| node.traffic(AddressRun::of(text.parse().unwrap()), bridge, None);
        assert_eq!(traffic("10.50.0.0/24", Some("br1")), None, "its own network");
        let says = "which redirects traffic to 10.60.0.0/16, which the node reaches over 10.50.0.9";
        assert_eq!(traffic("10.60.7.0/24", None).as_deref(), Some(says));
    });
}

/// A bridge of that name was another program's to make.
#[test]
fn names_that_programs_give_their_links() {
    node_with("ip link add virbr0 type bridge; ip link add docker7 type bridge", &[], |node| {
        assert_eq!(node.reserved("kube-ipvs0").as_deref(), Some("which is a name for a link of kube-proxy"));
        for own in ["flannel.1", "flannel.4096", "flannel-v6.1", "vxlan.calico", "cali0123456789a", "cilium_host", "nodelocaldns", "virbr1"]
        {
            assert!(node.reserved(own).is_some(), "{own}");
        }
        for free in ["virbr0", "cni0", "br0", "kube-ipvs", "flannel", "docker7", "mybridge"] {
            assert_eq!(node.reserved(free), None, "{free}");
        }
    });
}

/// A network card, or a link of another program, that came later found a definition's bridge in its place.
#[test]
fn names_of_links_that_come_later() {
    let links = "ip link add bond0 type veth peer name eth9; ip link add eth7 type bridge";
    node_with(links, &[], |node| {
        for later in [
            "eth0",
            "eno1np0",
            "enp3s0f1",
            "enP4p1s0",
            "ens160",
            "enx0200c0ffee01",
            "wlan0",
            "wlp2s0",
            "bond1",
            "tun0",
            "tap3",
            "wg0",
            "wg-home",
            "tailscale0",
            "eni0123456789a",
            "azv0123456789a",
            "gke0123456789a",
        ] {
            assert!(
                node.reserved(later).is_some_and(|told| told.contains("which is a name for a link of ")),
                "{later}: {:?}",
                node.reserved(later)
            );
        }
        for free in ["eth7", "ether", "ensemble", "enough", "enp", "wlan", "bonded", "tunnels", "tap", "wgs", "net0", "br-eth1"] {
            assert_eq!(node.reserved(free), None, "{free}");
        }
        // What is there is an administrator's, who may give it to pods.
        assert_eq!((node.no_parent("bond0"), node.no_parent("eth9"), node.moved("eth9")), (None, None, None));
    });
}

/// A pod on a bridge that somebody else has made gave the host a default route and an address, with a router advertisement.
#[test]
fn bridges_where_the_host_accepts_router_advertisements() {
    let set = |link: &str, key: &str, value: &str| format!("echo {value} > /proc/sys/net/ipv6/conf/{link}/{key}\n");
    let mut links: String = ["takes", "never", "router", "always", "off"]
        .map(|link| format!("ip link add {link} type bridge\n{}{}", set(link, "accept_ra", "1"), set(link, "forwarding", "0")))
        .concat();
    links.push_str("ip link property add dev takes altname other; ip tuntap add port0 mode tap; ip link set port0 master never\n");
    let settings =
        [("never", "accept_ra", "0"), ("router", "forwarding", "1"), ("always", "accept_ra", "2"), ("always", "forwarding", "1")];
    links.extend(settings.iter().map(|(link, key, value)| set(link, key, value)));
    links.push_str(&set("off", "disable_ipv6", "1"));
    // What a plugin of ours makes comes up as the last step; until then another pod's ADD may find it.
    for (link, up) in [("begun", ""), ("ended", "up")] {
        let group = linux::link::TRANSIENT;
        links.push_str(&format!("ip link add {link} type bridge; ip link set {link} group {group} {up}\n{}", set(link, "accept_ra", "1")));
        links.push_str(&set(link, "forwarding", "0"));
    }
    node_with(&links, &[], |node| {
        assert!(node.configured_by_pods("ended").is_some());
        let says = "takes, where the host accepts router advertisements: set net.ipv6.conf.takes.accept_ra to 0 on the node";
        assert_eq!(node.configured_by_pods("takes").as_deref(), Some(says));
        assert_eq!(node.configured_by_pods("other").as_deref(), Some(says));
        assert!(node.configured_by_pods("always").is_some());
        for free in ["never", "router", "off", "port0", "missing", "begun"] {
            assert_eq!(node.configured_by_pods(free), None, "{free}");
        }
    });
}

/// What Neutron's agents, the kernel or Netloom itself would have made, a definition had made first; and a port of the bridge between a port of
/// Neutron and its pod was that port's.
#[test]
fn names_of_neutron_the_kernel_and_our_own() {
    let links = "ip link add qbr1a2b3c4d-5e type bridge; ip link add br-ex type bridge; ip tuntap add tap0 mode tap
        ip link property add dev qbr1a2b3c4d-5e altname hybrid";
    node_with(links, &[], |node| {
        for (own, whose) in [
            ("br-int", "a bridge of Open vSwitch"),
            ("br-tun", "a bridge of Open vSwitch"),
            ("qbr0123", "Neutron"),
            ("qvo1a2b3c4d-5f", "Neutron"),
            ("tap1a2b3c4d-5f", "Neutron"),
            ("gw0123456789a", "Netloom"),
            ("gre0", "the kernel"),
            ("sit0", "the kernel"),
            ("ip6tnl0", "the kernel"),
            ("ip_vti0", "the kernel"),
            ("erspan0", "the kernel"),
            // Also if it is there, by whatever name.
            ("qbr1a2b3c4d-5e", "Neutron"),
            ("hybrid", "Neutron"),
        ] {
            assert!(node.reserved(own).is_some_and(|told| told.contains(whose)), "{own}: {:?}", node.reserved(own));
        }
        for free in ["br-ex", "br-data", "tapestry", "tap0", "tapa1b2c3d4", "gw", "gwnet", "gw0123456789z", "gre1", "sit", "br-int0"] {
            assert_eq!(node.reserved(free), None, "{free}");
        }
        assert!(node.no_parent("hybrid").is_some_and(|told| told.contains("Neutron")), "{:?}", node.no_parent("hybrid"));
        assert_eq!(node.no_parent("br-ex"), None);
    });
    let bridges = [IfName::parse("br-data").unwrap()];
    let mut host = Host::here(plugin::Dirs::default());
    let node = ThisNode::new(&mut host, &[], ClusterOwn::default()).with_openstack(&bridges);
    assert_eq!(node.reserved("br-data").as_deref(), Some("which is a name for a bridge of Open vSwitch"));
    assert_eq!(node.reserved("br-dat"), None);
}

/// A port of another program's switch looks like any other interface.
#[test]
fn no_interface_stands_on_a_link_of_another_program() {
    let links = "ip tuntap add antrea-gw0 mode tap; ip tuntap add nic0 mode tap; ip link add cilium_net type veth peer name cilium_host
        ip link add virbr0 type bridge; ip tuntap add ovn0 mode tap; ip link set ovn0 up; ip route add default dev ovn0";
    node_with(links, &[], |node| {
        assert_eq!(node.no_parent("antrea-gw0").as_deref(), Some("antrea-gw0, which is a link of Antrea"));
        assert_eq!(node.no_parent("cilium_net").as_deref(), Some("cilium_net, which is a link of Cilium"));
        assert_eq!(node.moved("cilium_host").as_deref(), Some("cilium_host, which is a link of Cilium"));
        for free in ["nic0", "virbr0", "ovn0"] {
            assert_eq!(node.no_parent(free), None, "{free}");
        }
        assert_eq!(node.moved("virbr0"), None);
    });
}

/// What an external plugin has made, only the kernel tells of.
#[test]
fn a_route_of_the_host_to_a_pod_is_known_whoever_made_it() {
    let other = Netns::unnamed().unwrap();
    let pid = std::process::id();
    let links = format!("ip tuntap add nic0 mode tap; ip link set nic0 up; ip addr add 192.168.1.20/24 dev nic0
        ip link add cali1 type veth peer name eth0 netns /proc/{pid}/fd/{}; ip link set cali1 up; ip route add 192.168.1.77 dev cali1; ip route add 10.9.0.0/24 dev cali1
        ip link add br1 type bridge; ip link set br1 up; ip addr add 10.50.0.1/24 dev br1", std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&other)));
    node_with(&links, &[], |node| {
        let leads = |address: &str| node.leads_to_pod(address.parse().unwrap());
        assert!(leads("192.168.1.77") && leads("10.9.0.7") && leads("::ffff:192.168.1.77"));
        for elsewhere in ["192.168.1.78", "192.168.1.20", "10.50.0.7", "10.99.0.1"] {
            assert!(!leads(elsewhere), "{elsewhere}");
        }
        let says = "which redirects traffic for 192.168.1.0/24, the network of nic0, which has the node's address 192.168.1.20";
        assert_eq!(node.traffic(AddressRun::one("192.168.1.77".parse().unwrap()), None, None).as_deref(), Some(says));
        assert!(node.has("192.168.1.20".parse().unwrap()) && !node.has("192.168.1.77".parse().unwrap()));
    });
}

/// An administrator's VLAN on a bridge has the pods' gateway after the first pod: the second one of the same network was refused.
#[test]
fn a_gateway_in_an_administrators_vlan_is_not_the_nodes_own() {
    // Not every kernel has VLANs: what stands on the bridge is taken for one below.
    let lines =
        "ip tuntap add nic0 mode tap; ip link set nic0 up; ip addr add 192.168.1.20/24 dev nic0; ip route add default via 192.168.1.1
        ip link add br0 type bridge; ip link set br0 up; ip link add link br0 name br0.7 type macvlan; ip link set br0.7 up
        ip link add br1 type bridge; ip link set br1 up; ip link add link br1 name br1.8 type macvlan; ip link set br1.8 up
        ip addr add 10.8.0.5/24 dev br1.8";
    let here = |_: &Inside| {
        let done = std::process::Command::new("sh").args(["-ec", lines]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let mut host = Host::here(plugin::Dirs::default());
        let netlink = host.netlink().unwrap();
        let vlan = netlink.link("br0.7").unwrap().unwrap().index;
        let gateway = linux::addr::add_of(linux::addr::TRANSIENT, vlan, "10.7.0.1/24".parse().unwrap(), linux::AddrFlags::NONE);
        netlink.send_one(gateway).unwrap();
        let mut kernel = Snapshot::read(netlink).unwrap();
        Arc::make_mut(&mut kernel.links).iter_mut().filter(|link| link.is("macvlan")).for_each(|link| link.kind = Some("vlan".into()));
        let node = ThisNode::new(&mut host, &[], ClusterOwn::default());
        node.kernel.set(Ok(kernel)).unwrap();
        let traffic = |net: &str, bridge| node.traffic(AddressRun::of(net.parse().unwrap()), Some(bridge), None);
        assert_eq!((node.uplink("br0"), traffic("10.7.0.0/24", "br0")), (None, None));
        let says = "which redirects traffic for 10.8.0.0/24, the network of br1.8, which has the node's address 10.8.0.5";
        assert_eq!(traffic("10.8.0.0/24", "br1").as_deref(), Some(says));
        assert!(node.uplink("br1").is_some(), "the address is the administrator's own");
    };
    Netns::unnamed().unwrap().enter(here).unwrap();
}

/// The kernel reports no altname of a link that is down: a definition would reach the node's link by a name that the view does not have.
#[test]
fn a_link_that_is_down_is_known_by_each_name() {
    let run = |line: &str| {
        let done = std::process::Command::new("sh").args(["-ec", line]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    let here = |inside: &Inside| {
        let view = Mutex::new(View::open(inside).unwrap());
        run("ip link add br0 type bridge; ip tuntap add nic0 mode tap; ip addr add 192.168.1.20/24 dev nic0");
        let before = lock(&view).look().unwrap();
        run("ip link property add dev br0 altname lan; ip link property add dev nic0 altname enp1s0");
        let kept = lock(&view).look().unwrap();
        assert_eq!(kept.links, before.links, "the kernel tells it now: asking for the name is not needed any more");
        let mut host = Host::here(plugin::Dirs::default());
        let mut node = ThisNode { view: Some(&view), ..ThisNode::new(&mut host, &[], ClusterOwn::default()) };
        node.given.push(GivenNetwork { what: "the node's default network", bridge: Some("br0".to_owned()), ..GivenNetwork::default() });
        assert_eq!(node.default_bridge("lan").as_deref(), Some("br0, the bridge of the node's default network"));
        assert_eq!(node.default_bridge("wan"), None);
        assert_eq!(node.uplink("enp1s0").as_deref(), Some("nic0, which has the node's address 192.168.1.20"));
        assert!(node.moved("enp1s0").is_some_and(|why| why.starts_with("nic0, ")));
    };
    Netns::unnamed().unwrap().enter(here).unwrap();
}
