use cni::{NetworkList, Version};
use npwg::{DefinitionRef, Protocol};

use super::*;
use crate::{Case, Policy};

fn is_of_pods(source: Option<&AddressSource>) -> bool {
    source.is_some_and(|source| *source == AddressSource::Pool("pods".to_owned()))
}

/// A node at 192.168.1.20/24 with Services of 10.96.0.0/12, whose default network is 10.244.0.0/24 on `cni0`.
#[derive(Debug)]
struct Node;

impl NodeOwn for Node {
    fn moved(&self, _: &str) -> Option<String> {
        None
    }

    fn no_parent(&self, _: &str) -> Option<String> {
        None
    }

    fn uplink(&self, _: &str) -> Option<String> {
        None
    }

    fn default_route(&self) -> Option<String> {
        None
    }

    fn default_bridge(&self, _: &str) -> Option<String> {
        None
    }

    fn leases(&self, _: &std::path::Path) -> Option<String> {
        None
    }

    fn is_default_network(&self, _: &DefinitionRef) -> bool {
        false
    }

    fn lasts(&self, _: &str) -> bool {
        false
    }

    fn reserved(&self, _: &str) -> Option<String> {
        None
    }

    fn has(&self, address: IpAddr) -> bool {
        address.to_string() == "192.168.1.20"
    }

    fn leads_to_pod(&self, address: IpAddr) -> bool {
        address.to_string() != "192.168.1.78"
    }

    fn of_pod(&self, address: IpAddr) -> Option<String> {
        (address.to_string() == "10.50.0.9").then(|| "of a pod".to_owned())
    }

    fn guards(&self, _: &str) -> Vec<&'static str> {
        Vec::new()
    }

    fn address(&self, address: IpAddr) -> Option<String> {
        self.of_cluster(address)
    }

    fn of_cluster(&self, address: IpAddr) -> Option<String> {
        let services: IpNet = "10.96.0.0/12".parse().unwrap();
        services.contains(&address).then(|| "of Services".to_owned())
    }

    fn traffic(&self, run: AddressRun, bridge: Option<&str>, source: Option<&AddressSource>) -> Option<String> {
        let own = [("10.96.0.0/12", "of Services"), ("192.168.1.0/24", "of eth0"), ("10.244.0.0/24", "of cni0")];
        let mut own = own.iter().filter(|(_, whose)| bridge != Some("cni0") && !is_of_pods(source) || *whose != "of cni0");
        let (_, whose) = own.find(|(net, _)| run.overlaps(AddressRun::of(net.parse().unwrap())))?;
        Some((*whose).to_owned())
    }

    fn default_network(&self, run: AddressRun, source: Option<&AddressSource>) -> Option<String> {
        let is = !is_of_pods(source) && run.overlaps(AddressRun::of("10.244.0.0/24".parse().unwrap()));
        is.then(|| "of the default network".to_owned())
    }

    fn received(&self, address: IpAddr, parent: &Parent, source: Option<&AddressSource>) -> Option<String> {
        match parent {
            Parent::Named(name) if name == "cni0" && !is_of_pods(source) => self.traffic(AddressRun::one(address), None, None),
            Parent::Told => self.traffic(AddressRun::one(address), None, None),
            Parent::Named(_) | Parent::DefaultRoute => None,
        }
    }

    fn mac(&self, mac: &cni::Mac, _: &[&str]) -> Option<String> {
        (mac.to_string() == "02:00:00:00:00:01").then(|| "which eth0 of the node has".to_owned())
    }

    fn port(&self, _: u16, _: Protocol, _: Option<IpAddr>) -> Option<String> {
        None
    }
}

fn list(plugins: &str) -> NetworkList {
    let text = format!(r#"{{"cniVersion":"1.0.0","name":"n","plugins":[{plugins}]}}"#);
    NetworkList::parse(text.as_bytes(), None).unwrap()
}

fn taken(plugins: &str, networks: &str) -> Vec<String> {
    let (definition, list) = (DefinitionRef::new("a", "n").unwrap(), list(plugins));
    let case = Case {
        pod_namespace: "a",
        definition: &definition,
        is_selected: true,
        uses: &Uses::of(&list, plugins::BUILTINS),
        device: None,
        granted: None,
        is_on_disk: false,
    };
    let selections = npwg::parse(networks, "a").unwrap();
    let mut taken = Policy::OPEN.taken(&case, &Node);
    taken.extend(selections.first().into_iter().flat_map(|selection| Policy::OPEN.taken_by_selection(&case, selection, &Node)));
    taken.into_iter().map(|e| e.to_string()).collect()
}

#[test]
fn routes_of_the_host_that_a_configuration_would_make() {
    for (plugins, says) in [
        // The API server's real address, or a neighbour's.
        (r#"{"type":"ptp","ipam":{"type":"static","addresses":[{"address":"192.168.1.10/32"}]}}"#, "a route to 192.168.1.10 for"),
        // A more specific route than the uplink's own.
        (
            r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"type":"static","addresses":[{"address":"192.168.1.77/25","gateway":"192.168.1.126"}]}}"#,
            "gives the host a route to 192.168.1.0/25 for \"192.168.1.77/25\" (plugins[0].ipam.addresses[0].address), of eth0",
        ),
        // Its gateway's network, whatever the address is.
        (
            r#"{"type":"bridge","bridge":"x","isDefaultGateway":true,"ipam":{"subnet":"10.1.0.0/24","gateway":"192.168.1.9"}}"#,
            "a route to 192.168.1.0/24",
        ),
        // A gateway that is computed.
        (
            r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"subnet":"10.96.0.0/11","rangeStart":"10.112.0.5"}}"#,
            "to 10.96.0.0/11",
        ),
        (r#"{"type":"ptp","ipam":{"subnet":"10.96.0.0/11","rangeStart":"10.112.0.5"}}"#, "a route to 10.96.0.1 for"),
        (
            r#"{"type":"flannel","delegate":{"bridge":"x","runtimeConfig":{"ipRanges":[[{"subnet":"192.168.1.0/30"}]]}}}"#,
            "to 192.168.1.0/30",
        ),
        (r#"{"type":"ptp","ipam":{"subnet":"10.95.255.0/24"}},{"type":"ptp","ipam":{"range":"10.95.255.9-10.96.0.2/11"}}"#, "plugins[1]"),
        (r#"{"type":"meta","delegates":[{"type":"ptp","ipam":{"subnet":"192.168.1.0/30"}}]}"#, "plugins[0].delegates[0].ipam.subnet"),
        // Other pods of the node.
        (r#"{"type":"ptp","ipam":{"addresses":[{"address":"10.244.0.7/32"}]}}"#, "of cni0"),
        (r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"subnet":"10.244.0.0/25"}}"#, "of cni0"),
        // A gateway that a pod has becomes the host's.
        (
            r#"{"type":"ptp","ipam":{"subnet":"10.9.0.0/16","gateway":"10.50.0.9"}}"#,
            "gives the host the gateway 10.50.0.9 for \"10.9.0.0/16\" (plugins[0].ipam.subnet), of a pod",
        ),
        (
            r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"addresses":[{"address":"10.50.0.7/24","gateway":"10.50.0.9"}]}}"#,
            "the gateway 10.50.0.9 for",
        ),
        // Without a route: the whole range is of Services.
        (
            r#"{"type":"macvlan","ipam":{"subnet":"10.97.0.0/24"}}"#,
            "assigns the addresses \"10.97.0.0/24\" (plugins[0].ipam.subnet), of Services",
        ),
        // Rules by the address of another pod.
        (
            r#"{"type":"bridge","ipMasq":true,"ipam":{"addresses":[{"address":"10.244.0.7/24"}]}}"#,
            "has rules of the host by the addresses \"10.244.0.7/24\" (plugins[0].ipam.addresses[0].address), of the default network",
        ),
        (r#"{"type":"bridge","isGateway":true,"ipMasq":true,"ipam":{"subnet":"10.244.0.0/24"}}"#, "rules of the host by"),
        (r#"{"type":"macvlan","ipam":{"subnet":"192.168.1.0/24"}},{"type":"firewall"}"#, "(plugins[0].ipam.subnet), of eth0"),
        // Other pods' addresses on their own segment.
        (
            r#"{"type":"bridge","bridge":"cni0","ipam":{"type":"static","addresses":[{"address":"10.244.0.2/24"}]}}"#,
            "assigns the addresses \"10.244.0.2/24\" (plugins[0].ipam.addresses[0].address), of the default network",
        ),
        (r#"{"type":"macvlan","master":"cni0","ipam":{"subnet":"10.244.0.0/25"}}"#, "of the default network"),
        (r#"{"type":"bridge","isGateway":true,"ipam":{"subnet":"10.244.0.0/24"}}"#, "of the default network"),
        (r#"{"type":"ipvlan","master":"cni0","args":{"cni":{"ips":["10.244.0.2/24"]}},"ipam":{"type":"pool"}}"#, "of the default"),
        // By any interface: the pod's own on the default network answers for it.
        (r#"{"type":"dummy","ipam":{"type":"static","addresses":[{"address":"10.244.0.7/32"}]}}"#, "of the default network"),
        (r#"{"type":"tap","ipam":{"type":"static","addresses":[{"address":"10.244.0.7/24"}]}}"#, "of the default network"),
        (r#"{"type":"theirs","ipam":{"type":"static","addresses":[{"address":"10.244.0.7/24"}]}}"#, "of the default network"),
        (r#"{"type":"macvlan","ipam":{"subnet":"10.244.0.0/24"}}"#, "of the default network"),
        // Packets that an ipvlan's parent receives.
        (
            r#"{"type":"ipvlan","master":"cni0","ipam":{"addresses":[{"address":"192.168.1.9/32"}]}}"#,
            "assigns the addresses \"192.168.1.9/32\"",
        ),
        (r#"{"type":"tuning"},{"type":"ipvlan","ipam":{"addresses":[{"address":"192.168.1.9/32"}]}}"#, "plugins[1]"),
        (r#"{"type":"ipvlan","master":"net1","linkInContainer":true,"ipam":{"addresses":[{"address":"192.168.1.9/32"}]}}"#, "of eth0"),
        (r#"{"type":"macvlan","ipam":{"subnet":"10.244.0.128/25"}},{"type":"firewall"}"#, "(plugins[0].ipam.subnet), of the default"),
    ] {
        let got = taken(plugins, "n");
        assert!(got.len() == 1 && got[0].contains(says), "{plugins}: {got:?}");
    }
    for fine in [
        r#"{"type":"macvlan","ipam":{"addresses":[{"address":"192.168.1.10/24"}]}}"#,
        r#"{"type":"macvlan","ipam":{"subnet":"10.0.0.0/8"}}"#,
        r#"{"type":"ipvlan","ipam":{"addresses":[{"address":"192.168.1.9/24"}]}}"#,
        r#"{"type":"ipvlan","master":"eth1","ipam":{"addresses":[{"address":"192.168.1.9/24"}]}}"#,
        r#"{"type":"macvlan","ipam":{"subnet":"172.30.1.0/24"}},{"type":"firewall"}"#,
        r#"{"type":"ipvlan","master":"cni0","args":{"cni":{"ips":["10.244.0.2/24"]}},"ipam":{"type":"pool","pool":"pods"}}"#,
        r#"{"type":"bridge","ipam":{"subnet":"10.9.0.0/24"}}"#,
        r#"{"type":"bridge","bridge":"x","isGateway":true,"ipMasq":true,"ipam":{"subnet":"10.9.0.0/16"}},{"type":"portmap"}"#,
        r#"{"type":"bridge","bridge":"x","ipam":{"subnet":"192.168.1.0/24"}}"#,
        r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"subnet":"10.9.0.0/16"}}"#,
        r#"{"type":"ptp","ipam":{"subnet":"10.9.0.0/16"}}"#,
        r#"{"type":"macvlan","ipam":{"subnet":"10.9.0.0/16","gateway":"10.50.0.9"}}"#,
        r#"{"type":"ptp","args":{"cni":{"ips":["10.244.0.2/24"]}},"ipam":{"type":"pool","pool":"pods"}}"#,
        r#"{"type":"ptp","ipam":{"subnet":"10.9.0.0/16","gateway":"192.168.1.20"}}"#,
        r#"{"type":"flannel","delegate":{"bridge":"x","isGateway":false,"runtimeConfig":{"ipRanges":[[{"subnet":"192.168.1.0/30"}]]}}}"#,
    ] {
        assert_eq!(taken(fine, "n"), [""; 0], "{fine}");
    }
}

#[test]
fn an_address_that_the_pod_asks_for() {
    let asks = r#"[{"name":"n","ips":["192.168.1.10/32"]}]"#;
    let got = taken(r#"{"type":"ptp","capabilities":{"ips":true},"ipam":{"type":"static"}}"#, asks);
    assert!(got.len() == 1 && got[0].starts_with("the pod asks for the address 192.168.1.10/32, of eth0"), "{got:?}");
    assert_eq!(taken(r#"{"type":"macvlan","capabilities":{"ips":true},"ipam":{"type":"static"}}"#, asks), [""; 0]);
    let asks = r#"[{"name":"n","ips":["10.244.0.7/24"]}]"#;
    let masquerading = r#"{"type":"bridge","bridge":"x","ipMasq":true,"capabilities":{"ips":true},"ipam":{"type":"static"}}"#;
    assert_eq!(taken(masquerading, asks).len(), 1);
    let on = |bridge: &str| format!(r#"{{"type":"bridge","bridge":"{bridge}","capabilities":{{"ips":true}},"ipam":{{"type":"static"}}}}"#);
    let named = taken(r#"{"type":"macvlan"}"#, r#"[{"name":"n","interface":"all"}]"#);
    assert!(named.len() == 1 && named[0].contains("calls an interface \"all\""), "{named:?}");
    let got = taken(&on("x"), asks);
    assert!(got.len() == 1 && got[0].starts_with("the pod asks for the address 10.244.0.7/24, of the default network"), "{got:?}");
}

#[test]
fn what_a_result_has() {
    let got = |plugin: &str, is_on_disk: bool, ip: &str| {
        let text = format!(r#"{{"cniVersion":"1.0.0","ips":[{ip}]}}"#);
        let result = AddResult::parse(text.as_bytes(), "1.0.0".parse::<Version>().unwrap()).unwrap().0;
        taken_by_result(&list(plugin), 0, &result, is_on_disk, plugins::BUILTINS, &Node)
    };
    let gateway = r#"{"type":"bridge","bridge":"x","isGateway":true,"ipam":{"type":"dhcp"}}"#;
    let (macvlan, ptp) = (r#"{"type":"macvlan","ipam":{"type":"dhcp"}}"#, r#"{"type":"ptp","ipam":{"type":"pool"}}"#);
    let service = r#"{"address":"10.97.0.2/24"}"#;
    for plugin in [gateway, macvlan, ptp] {
        assert_eq!(got(plugin, false, service), ["the pod got the address 10.97.0.2/24, of Services"]);
        assert_eq!(got(plugin, true, service).len(), 1, "also of a file of the node's");
    }
    let way = r#"{"address":"10.112.0.5/11","gateway":"10.96.0.1"}"#;
    assert_eq!(got(gateway, false, way), ["the pod got the gateway 10.96.0.1, of Services"]);
    assert_eq!(got(r#"{"type":"theirs"}"#, false, way).len(), 1, "nobody knows what it does with it");
    let near = r#"{"address":"192.168.1.77/25","gateway":"192.168.1.126"}"#;
    assert_eq!(got(gateway, false, near), ["the host got a route to 192.168.1.0/25, of eth0"]);
    assert_eq!(got(ptp, false, near), ["the host got a route to 192.168.1.77, of eth0"]);
    assert_eq!(got(ptp, true, near), [""; 0]);
    assert_eq!((got(macvlan, false, near), got(macvlan, false, way)), (vec![], vec![]));
    // The node's own address as a gateway takes nothing; of a bridge it brings the network's route.
    let own_gateway = r#"{"address":"10.9.0.5/32","gateway":"192.168.1.20"}"#;
    assert_eq!(got(ptp, false, own_gateway), [""; 0]);
    assert_eq!(got(ptp, false, r#"{"address":"10.9.0.5/32","gateway":"192.168.1.21"}"#).len(), 1, "another machine's");
    assert_eq!(got(gateway, false, r#"{"address":"192.168.1.77/24","gateway":"192.168.1.20"}"#).len(), 1);
    // A route that an external plugin has made.
    let theirs = r#"{"type":"theirs"}"#;
    assert_eq!(got(theirs, false, near), ["the host got a route to 192.168.1.77, of eth0"]);
    assert_eq!(got(theirs, true, near), [""; 0]);
    assert_eq!(got(theirs, false, r#"{"address":"192.168.1.78/24"}"#), [""; 0], "no route leads to the pod");
    assert_eq!(got(theirs, false, r#"{"address":"10.9.0.5/32"}"#), [""; 0]);
    let other_pods = r#"{"address":"10.244.0.7/24"}"#;
    let walled = r#"{"type":"macvlan","ipam":{"type":"dhcp"}},{"type":"firewall"}"#;
    assert_eq!(got(walled, false, other_pods), ["the pod got the address 10.244.0.7, of the default network"]);
    assert_eq!(got(walled, true, other_pods), [""; 0]);
    let on_cni0 = |ipam: &str| format!(r#"{{"type":"bridge","bridge":"cni0","ipam":{ipam}}}"#);
    let taken = ["the pod got the address 10.244.0.7, of the default network"];
    assert_eq!(got(macvlan, false, other_pods), taken);
    assert_eq!(got(r#"{"type":"theirs"}"#, false, other_pods), taken, "whatever made it");
    assert_eq!(got(&on_cni0(r#"{"type":"dhcp"}"#), false, other_pods), taken);
    assert_eq!(got(&on_cni0(r#"{"type":"pool"}"#), false, other_pods), taken);
    assert_eq!(got(&on_cni0(r#"{"type":"pool","pool":"pods"}"#), false, other_pods), [""; 0], "the default network's own lease");
    assert_eq!(got(&on_cni0(r#"{"type":"dhcp"}"#), true, other_pods), [""; 0]);
}

#[test]
fn what_a_network_hands_out() {
    let runs = |plugins: &str| handed_out(&list(plugins), plugins::BUILTINS).iter().map(AddressRun::to_string).collect::<Vec<_>>();
    assert_eq!(runs(r#"{"type":"ptp","ipam":{"type":"host-local","ranges":[[{"subnet":"10.244.0.0/24"}]]}}"#)[0], "10.244.0.0/24");
    assert_eq!(source_of(&list(r#"{"type":"bridge","ipam":{"type":"pool","pool":"pods"}}"#)), Some(AddressSource::Pool("pods".to_owned())));
    let of = |range: &str| source_of(&list(&format!(r#"{{"type":"bridge","ipam":{{"type":"whereabouts","range":"{range}"}}}}"#)));
    assert!(of("10.1.0.0/16").is_some() && of("10.1.0.0/16") == of("10.1.0.0/16") && of("10.1.0.0/16") != of("10.1.0.0/24"));
    // Addresses that come beside the ranges, or that are unique in another network.
    let with =
        |keys: &str| source_of(&list(&format!(r#"{{"type":"bridge","ipam":{{"type":"whereabouts","range":"10.1.0.0/16",{keys}}}}}"#)));
    assert_eq!(with(r#""addresses":[{"address":"10.1.0.7/16"}]"#), None);
    assert_eq!(with(r#""Addresses":{"address":"10.1.0.7/16"},"addresses":[]"#), None);
    assert_eq!(with(r#""addresses":[]"#), of("10.1.0.0/16"));
    // The file of a path may say that they are unique in another network.
    for other in [r#""enable_overlapping_ranges":false"#, r#""configuration_path":"/etc/x.conf""#, r#""Configuration_Path":"/etc/x.conf""#]
    {
        assert!(with(other).is_some_and(|source| Some(source) != of("10.1.0.0/16")), "{other}");
    }
    let of_network = AddressSource::PoolsOf(vec![r#""n""#.to_owned()]);
    assert_eq!(source_of(&list(r#"{"type":"bridge","ipam":{"type":"pool","pool":"pods","network":"n"}}"#)), Some(of_network));
    assert_eq!(source_of(&list(r#"{"type":"bridge","ipam":{"type":"host-local","pool":"pods"}}"#)), None);
}
