//! What a network uses of the host, as far as its configuration tells.

use std::net::IpAddr;
use std::path::Path;

use cni::{NetworkList, PluginEntry};
use ipam::DEFAULT_DATA_DIR;
use json::{Object, Value, same_key};
use npwg::Selection;
use plugin::{Builtins, ITSELF, Key, Names};
use rules::iptables::{Outside, names_outside};

use super::keys::{Keys, all, kinds_of, kinds_or, together, with_gateway};
use super::routed::{HostSide, Routed};

/// What is used, and where the configuration says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) what: String,
    /// As `plugins[1].ipam.type`.
    pub(crate) place: String,
}

impl Use {
    /// The letters of a place at the most that a refusal has.
    pub(crate) const MAX_PLACE: usize = 200;
}

/// Everything that a network uses: a policy judges a network by it. It is read once for all rules.
#[derive(Debug, Default)]
pub struct Uses {
    pub(crate) plugins: Vec<Use>,
    pub(crate) devices: Vec<Use>,
    pub(crate) sysctls: Vec<Use>,
    /// Plugins of which nobody knows what they use.
    pub(crate) opaque: Vec<Use>,
    /// Paths of the host that are not the usual ones; and all others in an entry of which a plugin is not built in.
    pub(crate) paths: Vec<Use>,
    /// Whether a plugin of it is not built in: of it nobody knows what becomes of a text.
    pub(crate) is_foreign: bool,
    /// Paths of the host that the pod's selection names to plugins that are not built in.
    pub(crate) asked_paths: Vec<Use>,
    /// Chains and marks of the host's firewall that are not the usual ones.
    pub(crate) firewall: Vec<Use>,
    /// Names in matches of the host's firewall that are looked up elsewhere, with the option: `--dport http`; and whether the number is not.
    pub(crate) looked_up: Vec<(Use, bool)>,
    /// Matches of the host's firewall that count, remember or change something for the whole node.
    pub(crate) shared: Vec<Use>,
    /// Options of DHCP by which a server may know another machine.
    pub(crate) identities: Vec<Use>,
    /// IDs by which Neutron or OVN gives a port of Open vSwitch the VLAN, addresses and security groups of that port.
    pub(crate) port_ids: Vec<Use>,
    /// Links that the host gets if it has none of the name.
    pub(crate) made: Vec<Use>,
    /// Plugins that are this program itself.
    pub(crate) itself: Vec<Use>,
    /// Devices that the host does not have any more: moved into the pod, or given up to it alone.
    pub(crate) taken: Vec<Use>,
    /// Devices on which interfaces of pods stand.
    pub(crate) parents: Vec<Use>,
    /// Bridges that lose an address for another one.
    pub(crate) readdressed: Vec<Use>,
    /// Bridges that get the pods' gateway as an address.
    pub(crate) gateways: Vec<Use>,
    /// Bridges of which something else changes, with one of [`CHANGES`], or [`INGRESS`].
    pub(crate) changed: Vec<(Use, Changed)>,
    /// Bridges that pods are ports of.
    pub(crate) bridges: Vec<Use>,
    /// A plugin of the list decides who may send to its pods: what comes in by their bridge is held against that, also what is for others.
    pub(crate) has_ingress: bool,
    /// Directories in which the addresses of pods are kept.
    pub(crate) leases: Vec<Use>,
    /// Addresses that pods are to get.
    pub(crate) addresses: Vec<Use>,
    /// Gateways of pods, which bridges get as their addresses.
    pub(crate) ways: Vec<Use>,
    /// Ports of the host that lead to a pod: number and protocol, as `80/tcp`, with the address of the host at which they do.
    pub(crate) ports: Vec<(Use, Option<IpAddr>)>,
    /// Addresses of the host at which ports lead to a pod.
    pub(crate) published: Vec<Use>,
    /// Zones of firewalld, which are the node's, but for the one that is usual.
    pub(crate) zones: Vec<Use>,
    /// Addresses that pods get, with what the host gets of them.
    pub(crate) routed: Vec<Routed>,
    /// What plugins make of pods' addresses on the host.
    pub(crate) sides: Vec<HostSide>,
    /// Hardware addresses that pods are to get.
    pub(crate) macs: Vec<Use>,
    /// How many ranges of addresses, and how many routes of pods, there are.
    pub(crate) ranges: usize,
    pub(crate) routes: usize,
}

/// What a plugin type's configuration can name.
struct DeviceKeys {
    kind: &'static str,
    /// Keys whose value is a device of the host.
    devices: &'static [&'static str],
    /// The device that is used where none of the keys is given.
    default: Option<&'static str>,
    /// Whether `linkInContainer` means that the device is none of the host's.
    may_be_inside: bool,
    /// Whether `sysctl`, also below `args.cni`, names sysctls.
    sysctls: bool,
}

/// What a macvlan without a `master` is upon.
pub(crate) const DEFAULT_ROUTE: &str = "<interface of the default route>";

/// Plugins that move a device of the host into the pod.
pub(crate) const TAKERS: &[&str] = &["host-device", "sriov-vf", "dpdk-device", "sriov", "ib-sriov"];

/// What is known of plugin types. One that is not here is refused by a rule about devices or sysctls, unless that rule
/// lists its type.
const KNOWN: &[DeviceKeys] = &[
    devices("bridge", &["bridge"], Some("cni0")),
    DeviceKeys { may_be_inside: true, ..devices("macvlan", &["master"], Some(DEFAULT_ROUTE)) },
    DeviceKeys { may_be_inside: true, ..devices("ipvlan", &["master"], Some(DEFAULT_ROUTE)) },
    DeviceKeys { may_be_inside: true, ..devices("vlan", &["master"], None) },
    devices("host-device", &["device", "hwaddr", "kernelpath", "pciBusID", "deviceID"], None),
    devices("sriov-vf", &["pciBusID", "deviceID"], None),
    devices("dpdk-device", &["pciBusID", "hwaddr", "deviceID"], None),
    devices("sriov", &["deviceID", "pciBusID"], None),
    devices("ib-sriov", &["deviceID", "pciBusID"], None),
    DeviceKeys { sysctls: true, ..devices("tuning", &[], None) },
    // What it delegates to is walked like any other plugin.
    devices("flannel", &[], None),
    devices("ovs", &["bridge", "deviceID"], None),
    devices("ovs-hybrid", &["bridge"], None),
    devices("ovs-vhost-user", &["bridge"], None),
    devices("ptp", &[], None),
    devices("loopback", &[], None),
    devices("dummy", &[], None),
    devices("tap", &[], None),
    devices("vrf", &[], None),
    devices("sbr", &[], None),
    devices("portmap", &[], None),
    devices("bandwidth", &[], None),
    devices("firewall", &[], None),
    devices("passthru", &[], None),
    devices("route-override", &[], None),
    devices("host-local", &[], None),
    devices("pool", &[], None),
    devices("static", &[], None),
    devices("dhcp", &[], None),
    devices("whereabouts", &[], None),
];

/// What is looked at of a plugin that nobody here knows: the keys by which the usual ones name a bridge or a parent.
const UNKNOWN: DeviceKeys = DeviceKeys { may_be_inside: true, ..devices("", &["bridge", "master"], None) };

const fn devices(kind: &'static str, devices: &'static [&'static str], default: Option<&'static str>) -> DeviceKeys {
    DeviceKeys { kind, devices, default, may_be_inside: false, sysctls: false }
}

/// A key of `bridge` or `ovs`, and what of the bridge itself it changes.
pub(crate) type Changed = (&'static str, &'static str);

/// Beside its address. The kernel gives a bridge the smallest MTU of its ports; the others stay set after DEL.
const CHANGES: &[Changed] = &[("mtu", "the MTU"), ("promiscMode", "the promiscuous mode"), ("macspoofchk", "the learning of addresses")];

/// What `firewall` changes of the bridge that its pods are ports of: what comes by it is held against policies.
const INGRESS: Changed = ("ingressPolicy", "who may send by way");

/// The plugin for addresses that flannel takes where it is told no other.
const HOST_LOCAL: &str = "host-local";

/// The zone of firewalld that `firewall` takes where it is told no other.
const USUAL_ZONE: &str = "trusted";

/// Paths that definitions for plugins of others have in those plugins' own manifests, each with the keys under which they do: sockets of
/// switches, files that the plugin's installer has written for root alone, and logs. Only these very texts, and only under these keys: a
/// log that is written to a kubeconfig destroys it.
const USUAL_PATHS: &[(&[&str], &[&str])] = &[
    // OVS-CNI, Kube-OVN.
    (
        &["socket_file", "server_socket", "socket"],
        &[
            "/run/openvswitch/db.sock",
            "/var/run/openvswitch/db.sock",
            "unix:/run/openvswitch/db.sock",
            "unix:/var/run/openvswitch/db.sock",
            "/run/openvswitch/kube-ovn-daemon.sock",
            "/var/run/openvswitch/kube-ovn-daemon.sock",
        ],
    ),
    // whereabouts, also as OpenShift has it; Calico, Multus.
    (
        &["kubeconfig"],
        &[
            "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig",
            "/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.kubeconfig",
            "/etc/cni/net.d/calico-kubeconfig",
            "/etc/cni/net.d/multus.d/multus.kubeconfig",
        ],
    ),
    // whereabouts, Calico, Cilium, Multus.
    (
        &["log_file", "log_file_path", "log-file", "logFile"],
        &[
            "/var/log/whereabouts.log",
            "/tmp/whereabouts.log",
            "/var/log/calico/cni/cni.log",
            "/var/run/cilium/cilium-cni.log",
            "/var/log/multus.log",
        ],
    ),
];

/// The key of a selection that names a device.
pub(crate) const DEVICE_ID: &str = "deviceID";

/// Keys under which a plugin has another one's configuration, or a list of them.
const NESTED: &[&str] = &["ipam", "delegate", "delegates", "plugins"];

// === impl Uses ===

impl Uses {
    /// That of a network, as far as its configuration and that of all its plugins tells. `builtins`: the plugins whose keys are known.
    pub fn of(list: &NetworkList, builtins: Builtins) -> Self {
        let mut uses = Uses::default();
        for (index, plugin) in list.plugins.iter().enumerate() {
            uses.entry(plugin, index, builtins);
        }
        if uses.has_ingress {
            uses.changed.extend(uses.bridges.iter().map(|bridge| (bridge.clone(), INGRESS)));
        }
        for one in &mut uses.leases {
            one.what = Path::new(&one.what).join(list.name.as_str()).to_string_lossy().into_owned();
        }
        if is_lease_file(list.name.as_str()) {
            // In a directory that another network has its leases in, it would be in the way of them.
            uses.paths.extend(uses.leases.iter().map(|one| Use { what: one.what.clone(), place: "name".to_owned() }));
        }
        uses
    }

    /// The same where an executable takes the place of each plugin of its name that is built in: of none is it known what becomes of any text.
    pub fn by_executables(mut self, list: &NetworkList, builtins: Builtins) -> Self {
        for (index, plugin) in list.plugins.iter().enumerate() {
            self.foreign(plugin, &format!("plugins[{index}]"), builtins);
        }
        self
    }

    /// What of this a pod's selection has put into the plugins' `args.cni`, without the addresses and the hardware address that it asks
    /// for by their own keys.
    pub(crate) fn asked_by(&self, selection: &Selection) -> Uses {
        let has = |key: &str| selection.cni_args.iter().flat_map(Object::iter).any(|(own, _)| same_key(own, key));
        let is_argument = |one: &&Use| one.place.contains(".args.cni.");
        let of = |list: &[Use], key| if has(key) { list.iter().filter(is_argument).cloned().collect() } else { Vec::new() };
        let (addresses, macs, sysctls) = (of(&self.addresses, "ips"), of(&self.macs, "mac"), of(&self.sysctls, "sysctl"));
        let routed = self.routed.iter().filter(|routed| has("ips") && is_argument(&routed.one())).cloned().collect();
        Uses { addresses, macs, sysctls, routed, sides: self.sides.clone(), ..Uses::default() }
    }

    /// What one plugin uses, which is the one of that number in its list.
    pub(crate) fn of_plugin(plugin: &PluginEntry, index: usize, builtins: Builtins) -> Self {
        let mut uses = Uses::default();
        uses.entry(plugin, index, builtins);
        uses
    }

    /// How many addresses, ranges, gateways and routes there are, in all plugins that have them.
    pub(crate) fn destinations(&self) -> usize {
        self.addresses.len() + self.ways.len() + self.ranges + self.routes
    }

    /// The bridges that pods are ports of, each with the number in the list of the plugin that makes the port; without one where another
    /// plugin has the configuration of that plugin in its own.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (Option<usize>, &Use)> {
        let number = |place: &str| {
            let (number, key) = place.strip_prefix("plugins[")?.split_once("].")?;
            number.parse().ok().filter(|_| !key.contains(['.', '[']))
        };
        self.bridges.iter().map(move |bridge| (number(&bridge.place), bridge))
    }

    /// A plugin's configuration, with every type that its reader could take for the plugin's.
    fn plugin(&mut self, kinds: &[&str], raw: &Keys, place: &str, builtins: Builtins) {
        for kind in kinds {
            let one = || Use { what: (*kind).to_owned(), place: format!("{place}.type") };
            self.plugins.push(one());
            if ITSELF.contains(kind) {
                self.itself.push(one());
            }
            let keys = builtins.iter().map(|plugin| plugin.about()).filter(|about| about.name == *kind).flat_map(|about| about.keys);
            keys.for_each(|key| self.named(key, raw, place));
            if *kind == HOST_LOCAL {
                self.lease_dirs(raw, place);
            }
            if ["ovs", "ovs-hybrid", "ovs-vhost-user"].contains(kind) {
                let ids = all(raw, "iface_id").filter_map(|(key, id)| Some((key, id.as_str().filter(|id| !id.is_empty())?)));
                self.port_ids.extend(ids.map(|(key, id)| Use { what: id.to_owned(), place: format!("{place}.{key}") }));
            }
            if *kind == "firewall" {
                let policies = || all(raw, "ingressPolicy").map(|(_, value)| value.as_str().unwrap_or("?"));
                self.has_ingress |= policies().any(|policy| !matches!(policy, "" | "open"));
                let zones = all(raw, "firewalldZone").map(|(key, value)| (key, value.as_str().unwrap_or_default()));
                let zones = zones.filter(|(_, zone)| !zone.is_empty() && *zone != USUAL_ZONE);
                self.zones.extend(zones.map(|(key, zone)| Use { what: zone.to_owned(), place: format!("{place}.{key}") }));
            }
            match KNOWN.iter().find(|known| known.kind == *kind) {
                None => self.opaque.push(one()),
                Some(known) => {
                    let before = self.devices.len();
                    self.host_devices(known, raw, place);
                    let own: Vec<Use> = self.devices.get(before..).unwrap_or_default().to_vec();
                    self.done_to(own, kind, raw);
                    if known.sysctls {
                        self.sysctls(raw, place);
                    }
                }
            }
        }
        self.of_the_node(raw, place);
        self.host_sides(kinds, raw, place, false);
        for key in NESTED {
            let is_flannels = kinds.contains(&"flannel") && matches!(*key, "delegate" | "ipam");
            if !is_flannels && all(raw, key).next().is_none() {
                continue;
            }
            let place = format!("{place}.{key}");
            let object = together(raw, key);
            match (*key, kinds.contains(&"flannel")) {
                ("delegate", true) => {
                    let (own, delegate) = (kinds_or(&object, "bridge"), with_gateway(&object));
                    self.plugin(&own, &delegate, &place, builtins);
                    self.host_sides(&own, &object, &place, true);
                }
                ("ipam", true) => self.plugin(&kinds_or(&object, HOST_LOCAL), &object, &place, builtins),
                _ if object.is_empty() => {}
                _ => self.plugin(&kinds_of(&object), &object, &place, builtins),
            }
            for list in all(raw, key).filter_map(|(_, value)| value.as_array()) {
                for (index, object) in list.iter().filter_map(Value::as_object).enumerate() {
                    self.plugin(&kinds_of(object), &Keys::of(object), &format!("{place}[{index}]"), builtins);
                }
            }
        }
    }

    /// What becomes of a plugin's devices.
    fn done_to(&mut self, devices: Vec<Use>, kind: &str, raw: &Keys) {
        let is = |key: &str| all(raw, key).any(|(_, value)| *value == Value::Bool(true));
        match kind {
            _ if TAKERS.contains(&kind) => self.taken.extend(devices),
            "macvlan" if all(raw, "mode").any(|(_, mode)| mode.as_str() == Some("passthru")) => self.taken.extend(devices),
            // It gets all packets that have a priority and no VLAN, in place of its parent (`vlan_do_receive`).
            "vlan" if !is_tagged(raw) => self.taken.extend(devices),
            "macvlan" | "ipvlan" | "vlan" => self.parents.extend(devices),
            // Another program's plugin of that name moves a device; ours makes a port of a bridge that is not the kernel's.
            "ovs" | "ovs-hybrid" | "ovs-vhost-user" => {
                let (taken, bridges): (Vec<_>, Vec<_>) = devices.into_iter().partition(|device| !is_bridge(device));
                self.taken.extend(taken);
                self.changed_by(raw, &["mtu"], &bridges);
            }
            "bridge" => {
                self.bridges.extend(devices.iter().cloned());
                self.made.extend(devices.iter().cloned());
                if is("isGateway") || is("isDefaultGateway") {
                    let vlans = || all(raw, "vlan").filter(|(_, vlan)| matches!(vlan, Value::Number(id) if id.as_u64() != Some(0)));
                    let way_in =
                        |device: &Use, vlan: &Value| Use { what: format!("{}.{}", device.what, json::compact(vlan)), ..device.clone() };
                    self.made.extend(devices.iter().flat_map(|device| vlans().map(move |(_, vlan)| way_in(device, vlan))));
                }
                self.changed_by(raw, &["mtu", "promiscMode", "macspoofchk"], &devices);
                if is("forceAddress") {
                    self.readdressed.extend(devices);
                } else if is("isGateway") || is("isDefaultGateway") {
                    self.gateways.extend(devices);
                }
            }
            _ => {}
        }
    }

    /// What some keys change of bridges.
    fn changed_by(&mut self, raw: &Keys, keys: &[&str], bridges: &[Use]) {
        let is_set = |value: &Value| match value {
            Value::Bool(on) => *on,
            Value::Number(number) => number.as_u64() != Some(0),
            _ => true,
        };
        let own = CHANGES.iter().filter(|(key, _)| keys.contains(key) && all(raw, key).any(|(_, value)| is_set(value)));
        self.changed.extend(own.flat_map(|changed| bridges.iter().map(move |bridge| (bridge.clone(), *changed))));
    }

    /// All that one entry of a list uses. A plugin for interfaces gives its whole configuration to the one for addresses, and gets the other's
    /// keys as well: where one of them is not built in, nobody knows what becomes of any text in it.
    fn entry(&mut self, plugin: &PluginEntry, index: usize, builtins: Builtins) {
        let (first, place) = (self.plugins.len(), format!("plugins[{index}]"));
        self.plugin(&[plugin.kind.as_str()], &Keys::of(plugin.raw()), &place, builtins);
        let is_builtin = |one: &Use| builtins.iter().any(|plugin| plugin.about().name == one.what);
        if !self.plugins.iter().skip(first).all(is_builtin) {
            self.foreign(plugin, &place, builtins);
        }
    }

    /// Notes the paths of an entry of which somebody else's plugin gets every text.
    fn foreign(&mut self, plugin: &PluginEntry, place: &str, builtins: Builtins) {
        self.is_foreign = true;
        let mut found = foreign_paths(plugin.raw(), place, builtins);
        found.retain(|one| !self.paths.contains(one));
        self.paths.extend(found);
    }

    /// Notes the paths that the pod's selection adds for plugins that are not built in: in `cni-args`, and as the device that it names
    /// without anybody knowing whether it has that one.
    pub(crate) fn ask(&mut self, selection: &Selection, device: Option<&str>, builtins: Builtins) {
        if !self.is_foreign {
            return;
        }
        let device = device.into_iter().flat_map(paths_in).map(|path| Use { what: path.to_owned(), place: DEVICE_ID.to_owned() });
        self.asked_paths.extend(device);
        self.asked_paths.extend(selection.cni_args.iter().flat_map(|args| foreign_paths(args, "cni-args", builtins)));
    }

    /// Addresses and ports that stand in a plugin's configuration.
    fn of_the_node(&mut self, raw: &Keys, place: &str) {
        let ipam = together(raw, "ipam");
        let runtime = together(raw, "runtimeConfig");
        let args = together(&together(raw, "args"), "cni");
        let mut texts: Vec<(String, &Value)> = Vec::new();
        for (key, value) in ["addresses", "ranges", "ipRanges"].into_iter().flat_map(|key| all(&ipam, key)) {
            below(value, &format!("{place}.ipam.{key}"), &["address", "gateway"], &mut texts);
        }
        let routes = [(&ipam, "routes"), (raw, "addroutes")].into_iter().flat_map(|(object, key)| all(object, key));
        self.routes += routes.map(|(_, value)| value.as_array().map_or(0, <[Value]>::len)).sum::<usize>();
        for (key, value) in all(&runtime, "ipRanges") {
            below(value, &format!("{place}.runtimeConfig.{key}"), &["gateway"], &mut texts);
        }
        texts.extend(all(&ipam, "gateway").map(|(key, value)| (format!("{place}.ipam.{key}"), value)));
        for (object, place) in [(&runtime, format!("{place}.runtimeConfig")), (&args, format!("{place}.args.cni"))] {
            let ips = all(object, "ips").flat_map(|(_, value)| value.as_array().into_iter().flatten());
            texts.extend(ips.map(|value| (format!("{place}.ips"), value)));
        }
        for (object, place) in [(raw, place.to_owned()), (&runtime, format!("{place}.runtimeConfig")), (&args, format!("{place}.args.cni"))]
        {
            let macs = all(object, "mac").filter_map(|(key, mac)| Some((key, mac.as_str()?)));
            self.macs.extend(macs.map(|(key, mac)| Use { what: mac.to_owned(), place: format!("{place}.{key}") }));
        }
        for (place, value) in texts {
            let text = value.as_str().unwrap_or_default();
            if address(text).is_some() {
                let is_way = place.rsplit('.').next().is_some_and(|key| same_key(key, "gateway"));
                let list = if is_way { &mut self.ways } else { &mut self.addresses };
                list.push(Use { what: text.to_owned(), place });
            }
        }
        for mapping in all(&runtime, "portMappings").flat_map(|(_, value)| value.as_array().into_iter().flatten()) {
            let Some(mapping) = mapping.as_object() else { continue };
            let ips = all(mapping, "hostIP").filter_map(|(key, ip)| Some((key, ip.as_str()?)));
            let at = |key: &str| format!("{place}.runtimeConfig.portMappings.{key}");
            self.published.extend(ips.map(|(key, ip)| Use { what: ip.to_owned(), place: at(key) }));
            // Of several keys any may count.
            let mut ips: Vec<Option<IpAddr>> = all(mapping, "hostIP").map(|(_, ip)| address(ip.as_str().unwrap_or_default())).collect();
            if ips.is_empty() {
                ips.push(None);
            }
            let mut protocols: Vec<&str> = all(mapping, "protocol").filter_map(|(_, protocol)| protocol.as_str()).collect();
            if protocols.is_empty() {
                protocols.push("tcp");
            }
            for port in all(mapping, "hostPort").filter_map(|(_, port)| if let Value::Number(port) = port { port.as_u64() } else { None }) {
                let what = |protocol: &&str| format!("{port}/{}", protocol.to_ascii_lowercase());
                let place = || format!("{place}.runtimeConfig.portMappings");
                let all = protocols.iter().flat_map(|protocol| ips.iter().map(move |ip| (protocol, *ip)));
                self.ports.extend(all.map(|(protocol, ip)| (Use { what: what(protocol), place: place() }, ip)));
            }
        }
    }

    /// The values of a key that names something of the host. A plugin for addresses reads its keys below `ipam`, wherever it stands
    /// itself; no other plugin does, so that flannel's `dataDir` says nothing of the one that host-local has.
    fn named(&mut self, key: &Key, raw: &Keys, place: &str) {
        let list = match key.names {
            Names::Nothing => return,
            Names::Matches => return self.matches(key, raw, place),
            Names::Options => return self.options(key, raw, place),
            Names::Firewall => &mut self.firewall,
            Names::Path { .. } | Names::Directory => &mut self.paths,
        };
        let (name, below) = match key.name.strip_prefix("ipam.") {
            Some(name) => (name, together(raw, "ipam")),
            None => (key.name, Keys::default()),
        };
        for (object, place) in [(raw, place.to_owned()), (&below, format!("{place}.ipam"))] {
            for (_, value) in all(object, name) {
                let what = value.as_str().map_or_else(|| json::compact(value), str::to_owned);
                if !key.is_usual(&what) {
                    // A rule names a path, and no word in front of it.
                    let path = paths_in(&what).next().filter(|_| matches!(key.names, Names::Path { .. })).map(str::to_owned);
                    list.push(Use { what: path.unwrap_or(what), place: format!("{place}.{name}") });
                }
            }
        }
    }

    /// What matches of iptables name of the host.
    fn matches(&mut self, key: &Key, raw: &Keys, place: &str) {
        for (key, value) in all(raw, key.name) {
            let words: Vec<&str> = value.as_array().into_iter().flatten().map(|word| word.as_str().unwrap_or_default()).collect();
            let place = || format!("{place}.{key}");
            for outside in names_outside(&words) {
                match outside {
                    Outside::Match(what) => self.shared.push(Use { what, place: place() }),
                    Outside::Path(path) => self.paths.push(Use { what: path, place: place() }),
                    Outside::Name { option, value, has_number } => {
                        self.looked_up.push((Use { what: format!("{option} {value}"), place: place() }, has_number));
                    }
                }
            }
        }
    }

    /// The options of DHCP that tell who a client is. Plugins for addresses read them below `ipam`, wherever they stand themselves.
    fn options(&mut self, key: &Key, raw: &Keys, place: &str) {
        let name = key.name.strip_prefix("ipam.").unwrap_or(key.name);
        let below = together(raw, "ipam");
        for (object, place) in [(raw, place.to_owned()), (&below, format!("{place}.ipam"))] {
            let listed = all(object, name).flat_map(|(_, value)| value.as_array().into_iter().flatten()).filter_map(Value::as_object);
            let options = listed.flat_map(|one| all(one, "option")).filter(|(_, option)| dhcp::is_identity(option));
            let text = |option: &Value| option.as_str().map_or_else(|| json::compact(option), str::to_owned);
            self.identities.extend(options.map(|(_, option)| Use { what: text(option), place: format!("{place}.{name}") }));
        }
    }

    /// The directories below which `host-local` has one for each network, without the network's name.
    fn lease_dirs(&mut self, raw: &Keys, place: &str) {
        let below = together(raw, "ipam");
        let mut is_told = false;
        for (object, place) in [(raw, place.to_owned()), (&below, format!("{place}.ipam"))] {
            for dir in all(object, "dataDir").filter_map(|(_, value)| value.as_str()).filter(|dir| !dir.is_empty()) {
                is_told = true;
                self.leases.push(Use { what: dir.to_owned(), place: format!("{place}.dataDir") });
            }
        }
        // Of several keys the last may be empty, which is none.
        let is_blank = [raw, &below].into_iter().flat_map(|object| all(object, "dataDir")).any(|(_, value)| value.as_str() == Some(""));
        if !is_told || is_blank {
            self.leases.push(Use { what: DEFAULT_DATA_DIR.to_owned(), place: place.to_owned() });
        }
    }

    fn host_devices(&mut self, known: &DeviceKeys, raw: &Keys, place: &str) {
        if known.may_be_inside && is_inside(raw) {
            return;
        }
        // A delegate's own runtimeConfig reaches it as it is.
        let runtime = all(raw, "runtimeConfig").filter_map(|(_, value)| value.as_object());
        let given: Vec<Keys> = [raw.clone()].into_iter().chain(runtime.map(Keys::of)).collect();
        let mut named = 0;
        for (key, value) in given.iter().flat_map(|keys| known.devices.iter().flat_map(move |key| all(keys, key))) {
            let what = value.as_str().map_or_else(|| json::compact(value), str::to_owned);
            if !what.is_empty() {
                named += 1;
                self.devices.push(Use { what, place: format!("{place}.{key}") });
            }
        }
        // Of several keys the last may be empty, which is none.
        let blank = known.devices.iter().flat_map(|key| all(raw, key)).any(|(_, value)| value.as_str() == Some(""));
        if let (Some(default), true) = (known.default, named == 0 || blank) {
            let place = format!("{place}.{}", known.devices.first().unwrap_or(&""));
            self.devices.push(Use { what: default.to_owned(), place });
        }
    }

    fn sysctls(&mut self, raw: &Keys, place: &str) {
        let args = all(raw, "args").filter_map(|(_, args)| args.as_object());
        let below = args.flat_map(|args| all(args, "cni")).filter_map(|(_, cni)| cni.as_object());
        let below = below.map(|cni| (Keys::of(cni), format!("{place}.args.cni")));
        for (holder, place) in [(raw.clone(), place.to_owned())].into_iter().chain(below) {
            for object in all(&holder, "sysctl").filter_map(|(_, object)| object.as_object()) {
                let settings = object.iter().map(|(key, _)| Use { what: sysctl(key), place: format!("{place}.sysctl") });
                self.sysctls.extend(settings);
            }
        }
    }
}

/// The links of the host that a plugin makes or takes, or on which it puts the pod's link. Only the keys that the plugin reads for that count, of several
/// equal ones the last, and only those of the plugin that is executed: what stands anywhere else is a free text.
pub(crate) fn links_of(plugin: &PluginEntry) -> Vec<String> {
    let raw = Keys::of(plugin.raw());
    let (kind, raw) = match plugin.kind.as_str() {
        "flannel" => {
            let delegate = together(&raw, "delegate");
            let kind = all(&delegate, "type").last().and_then(|(_, kind)| kind.as_str()).filter(|kind| !kind.is_empty());
            (kind.unwrap_or("bridge"), with_gateway(&delegate))
        }
        kind => (kind, raw),
    };
    let (known, raw) = match KNOWN.iter().find(|known| known.kind == kind) {
        Some(known) => (known, last_read(known, &raw)),
        None => (&UNKNOWN, raw),
    };
    let mut uses = Uses::default();
    uses.host_devices(known, &raw, "");
    uses.done_to(uses.devices.clone(), kind, &raw);
    let mut links: Vec<String> = uses.devices.into_iter().chain(uses.made).map(|one| one.what).collect();
    links.sort();
    links.dedup();
    links
}

/// What a plugin that is known reads of the keys that say which links it makes or stands on. One that takes a link takes one: that which
/// the runtime chose, else that of the first key. No other plugin of ours reads `deviceID`.
fn last_read<'a>(known: &DeviceKeys, raw: &Keys<'a>) -> Keys<'a> {
    if TAKERS.contains(&known.kind) {
        let runtime = together(raw, "runtimeConfig");
        let chosen = all(&runtime, "deviceID").last();
        let mut named = known.devices.iter().filter_map(|key| all(raw, key).last());
        let is_set = |(_, value): &(&str, &Value)| value.as_str() != Some("");
        return chosen.filter(is_set).or_else(|| named.find(is_set)).into_iter().collect();
    }
    let devices = known.devices.iter().filter(|key| **key != "deviceID");
    let own = devices.chain(&["linkInContainer", "isGateway", "isDefaultGateway", "vlan"]);
    own.filter_map(|key| all(raw, key).last()).collect()
}

/// Whether the device that a plugin names is certainly none of the host's.
pub(super) fn is_inside(raw: &Keys) -> bool {
    let inside: Vec<&Value> = all(raw, "linkInContainer").map(|(_, value)| value).collect();
    inside == [&Value::Bool(true)]
}

/// Whether what an `ovs` names is its bridge.
fn is_bridge(device: &Use) -> bool {
    device.place.rsplit('.').next().is_some_and(|key| same_key(key, "bridge"))
}

/// Whether a `vlan` is certainly of a VLAN.
fn is_tagged(raw: &Keys) -> bool {
    let is_tag = |id: &Value| matches!(id, Value::Number(id) if id.as_u64().is_some_and(|id| id > 0));
    let mut ids = all(raw, "vlanId").map(|(_, id)| id).peekable();
    ids.peek().is_some() && ids.all(is_tag)
}

/// Whether a network's directory of leases has a file of this name, as the reference plugin has.
fn is_lease_file(name: &str) -> bool {
    name == "lock" || name.starts_with("last_reserved_ip.") || name.parse::<IpAddr>().is_ok()
}

/// The values of some keys of every object in a list, at any depth of lists.
fn below<'v>(value: &'v Value, place: &str, keys: &[&'static str], texts: &mut Vec<(String, &'v Value)>) {
    match value {
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| below(value, &format!("{place}[{index}]"), keys, texts));
        }
        Value::Object(object) => {
            for (key, value) in object.iter().filter(|(own, _)| keys.iter().any(|key| same_key(own, key))) {
                texts.push((format!("{place}.{key}"), value));
            }
        }
        _ => {}
    }
}

/// An address, with a prefix length or without, as any plugin could read it: with zeroes in front of a number, and one of IPv4 in
/// IPv6's clothes as what it is.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    let text = text.split_once('/').map_or(text, |(address, _)| address);
    let address = text.parse().ok().or_else(|| ipam::sloppy_address(text));
    address.map(|address: IpAddr| address.to_canonical())
}

/// Texts that may be paths, at any depth: a plugin runs on the host as root, and writes its log, say, to the file that it is told.
fn foreign_paths(raw: &Object, place: &str, builtins: Builtins) -> Vec<Use> {
    let keys =
        || builtins.iter().flat_map(|plugin| plugin.about().keys).filter(|key| matches!(key.names, Names::Path { .. } | Names::Directory));
    let named = |key: &str, own: &Key| same_key(own.name.rsplit('.').next().unwrap_or_default(), key);
    let is_usual = |key: &str, text: &str| is_usual_path(key, text) || keys().any(|own| named(key, own) && own.is_usual(text));
    let mut found = Vec::new();
    // The whole place of each value would be a multiple of the configuration: a place is written where there is a path only.
    let mut steps: Vec<Step> = raw.iter().map(|(key, value)| Step { above: None, part: Part::Key(key), key, value }).collect();
    let mut at = 0;
    while let Some(&Step { part, key, value, .. }) = steps.get(at) {
        let own_key = if let Part::Key(key) = part { Some(key) } else { None };
        let text = value.as_str().filter(|text| !is_usual(key, text));
        for path in own_key.into_iter().chain(text).flat_map(paths_in) {
            found.push(Use { what: path.to_owned(), place: place_of(place, &steps, at) });
        }
        let above = Some(at);
        match value {
            Value::Array(list) => {
                steps.extend(list.iter().enumerate().map(|(at, value)| Step { above, part: Part::At(at), key, value }));
            }
            Value::Object(object) => {
                steps.extend(object.iter().map(|(key, value)| Step { above, part: Part::Key(key), key, value }));
            }
            _ => {}
        }
        at += 1;
    }
    found.sort_by(|a, b| a.place.cmp(&b.place));
    found
}

/// A value of a configuration, and how it is reached.
struct Step<'a> {
    /// The number of the step to what it stands in; `None` at the top.
    above: Option<usize>,
    part: Part<'a>,
    /// The key that it stands below, if only in a list.
    key: &'a str,
    value: &'a Value,
}

/// What a value is called in what it stands in.
#[derive(Clone, Copy)]
enum Part<'a> {
    Key(&'a str),
    At(usize),
}

/// The letters of a key at the most that a place has.
const MAX_PART: usize = 80;

/// The place of a step, as `plugins[1].ipam.type`, as far as it is told.
fn place_of(first: &str, steps: &[Step], at: usize) -> String {
    let mut parts: Vec<Part> = std::iter::successors(steps.get(at), |step| steps.get(step.above?)).map(|step| step.part).collect();
    parts.reverse();
    let mut place = first.to_owned();
    for part in parts {
        match part {
            Part::Key(key) => {
                place.push('.');
                place.extend(key.chars().take(MAX_PART));
            }
            Part::At(number) => place.push_str(&format!("[{number}]")),
        }
        if place.len() > Use::MAX_PLACE {
            break;
        }
    }
    place.chars().take(Use::MAX_PLACE).collect()
}

/// Whether programs of others have a path under this key in their own manifests.
fn is_usual_path(key: &str, text: &str) -> bool {
    USUAL_PATHS.iter().any(|(keys, texts)| texts.contains(&text) && keys.iter().any(|own| same_key(own, key)))
}

/// The paths that a text may have, without a word in front of them, as in `unix:///run/x`, `--log=/x` and `ro,file:/x`: from the root, or
/// out of the directory that the plugin is started in. What is reached by a network is none.
fn paths_in(text: &str) -> impl Iterator<Item = &str> {
    const REMOTE: &[&str] = &["http", "https", "tcp", "tls", "ssl", "udp", "dns", "grpc"];
    let text = text.trim();
    let is_out = |text: &str| text.split('/').any(|part| part == "..");
    let whole = Some(text).filter(|text| text.starts_with('/') || is_out(text));
    let is_remote = text.split_once("://").is_some_and(|(word, _)| REMOTE.iter().any(|remote| word.eq_ignore_ascii_case(remote)));
    let words = text.split(|c: char| matches!(c, '=' | ',' | '@') || c.is_whitespace()).filter(move |word| !is_remote && !is_network(word));
    let parts = words.flat_map(|word| word.split(':')).filter(move |part| part.starts_with('/') || is_out(part));
    // The first part of a path is told with the whole.
    let parts = parts.skip(usize::from(text.starts_with('/'))).filter(move |_| whole.is_none() || text.starts_with('/'));
    whole.into_iter().chain(parts.map(|path| path.strip_prefix("//").filter(|path| path.starts_with('/')).unwrap_or(path)))
}

/// Whether a text is an address with a prefix length, or several, as `fd01::/48/64`: its colons are no words' ends.
fn is_network(text: &str) -> bool {
    let (address, rest) = text.split_once('/').unwrap_or((text, ""));
    address.parse::<IpAddr>().is_ok() && rest.chars().all(|c| c.is_ascii_digit() || c == '/')
}

/// With dots, as rules have it. A key with an empty part, among them every `..`, could be another one once it is a path:
/// it keeps a slash, which no sensible pattern has.
fn sysctl(key: &str) -> String {
    match key.split(['.', '/']).any(str::is_empty) {
        true => format!("/{key}"),
        false => key.replace('/', "."),
    }
}
