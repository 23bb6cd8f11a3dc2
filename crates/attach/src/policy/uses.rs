//! What a network uses of the host, as far as its configuration tells.

use cni::NetworkList;
use json::{Object, Value};
use plugin::{Builtins, ITSELF, Key, Names};

/// What is used, and where the configuration says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) what: String,
    /// As `plugins[1].ipam.type`.
    pub(crate) place: String,
}

/// Everything that a network uses.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    pub(crate) plugins: Vec<Use>,
    pub(crate) devices: Vec<Use>,
    pub(crate) sysctls: Vec<Use>,
    /// Plugins of which nobody knows what they use.
    pub(crate) opaque: Vec<Use>,
    /// Paths of the host that are not the usual ones.
    pub(crate) paths: Vec<Use>,
    /// Plugins that are this program itself.
    pub(crate) itself: Vec<Use>,
}

/// What a plugin type's configuration can name.
struct Known {
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
const DEFAULT_ROUTE: &str = "<interface of the default route>";

/// What is known of plugin types. One that is not here is refused by a rule about devices or sysctls, unless that rule
/// lists its type.
const KNOWN: &[Known] = &[
    devices("bridge", &["bridge"], Some("cni0")),
    Known { may_be_inside: true, ..devices("macvlan", &["master"], Some(DEFAULT_ROUTE)) },
    Known { may_be_inside: true, ..devices("ipvlan", &["master"], Some(DEFAULT_ROUTE)) },
    Known { may_be_inside: true, ..devices("vlan", &["master"], None) },
    devices("host-device", &["device", "hwaddr", "kernelpath", "pciBusID", "deviceID"], None),
    devices("sriov", &["deviceID", "pciBusID"], None),
    devices("ib-sriov", &["deviceID", "pciBusID"], None),
    Known { sysctls: true, ..devices("tuning", &[], None) },
    // What it delegates to is walked like any other plugin.
    devices("flannel", &[], None),
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

const fn devices(kind: &'static str, devices: &'static [&'static str], default: Option<&'static str>) -> Known {
    Known { kind, devices, default, may_be_inside: false, sysctls: false }
}

/// Keys under which a plugin has another one's configuration, or a list of them.
const NESTED: &[&str] = &["ipam", "delegate", "delegates", "plugins"];

// === impl Uses ===

impl Uses {
    pub(crate) fn of(list: &NetworkList, builtins: Builtins) -> Self {
        let mut uses = Uses::default();
        for (index, plugin) in list.plugins.iter().enumerate() {
            uses.plugin(&[plugin.kind.as_str()], plugin.raw(), &format!("plugins[{index}]"), builtins);
        }
        uses
    }

    pub(crate) fn add_device(&mut self, place: &str, device: Option<&str>) {
        self.devices.extend(device.map(|what| Use { what: what.to_owned(), place: place.to_owned() }));
    }

    /// A plugin's configuration, with every type that its reader could take for the plugin's.
    fn plugin(&mut self, kinds: &[&str], raw: &Object, place: &str, builtins: Builtins) {
        for kind in kinds {
            let one = || Use { what: (*kind).to_owned(), place: format!("{place}.type") };
            self.plugins.push(one());
            if ITSELF.contains(kind) {
                self.itself.push(one());
            }
            let keys = builtins.iter().map(|plugin| plugin.about()).filter(|about| about.name == *kind).flat_map(|about| about.keys);
            keys.for_each(|key| self.path(key, raw, place));
            match KNOWN.iter().find(|known| known.kind == *kind) {
                None => self.opaque.push(one()),
                Some(known) => {
                    self.host_devices(known, raw, place);
                    if known.sysctls {
                        self.sysctls(raw, place);
                    }
                }
            }
        }
        for key in NESTED {
            let place = format!("{place}.{key}");
            let object = together(raw, key);
            let own = kinds_of(&object);
            match (*key, kinds.contains(&"flannel")) {
                // What flannel takes where it is told no other.
                ("delegate", true) if own.is_empty() => self.plugin(&["bridge"], &object, &place, builtins),
                ("delegate", true) => self.plugin(&own, &object, &place, builtins),
                _ if object.is_empty() => {}
                _ => self.plugin(&own, &object, &place, builtins),
            }
            for list in all(raw, key).filter_map(|(_, value)| value.as_array()) {
                for (index, object) in list.iter().filter_map(Value::as_object).enumerate() {
                    self.plugin(&kinds_of(object), object, &format!("{place}[{index}]"), builtins);
                }
            }
        }
        if kinds.contains(&"flannel") {
            let place = format!("{place}.delegate.ipam.type");
            self.plugins.push(Use { what: "host-local".to_owned(), place });
        }
    }

    /// The values of a key that names a path. A plugin for addresses reads its keys below `ipam`, wherever it stands itself.
    fn path(&mut self, key: &Key, raw: &Object, place: &str) {
        if key.names == Names::NoPath {
            return;
        }
        let name = key.name.strip_prefix("ipam.").unwrap_or(key.name);
        let below = together(raw, "ipam");
        for (object, place) in [(raw, place.to_owned()), (&below, format!("{place}.ipam"))] {
            for (_, value) in all(object, name) {
                let what = value.as_str().map_or_else(|| json::compact(value), str::to_owned);
                if !key.is_usual(&what) {
                    self.paths.push(Use { what, place: format!("{place}.{name}") });
                }
            }
        }
    }

    fn host_devices(&mut self, known: &Known, raw: &Object, place: &str) {
        let inside: Vec<&Value> = all(raw, "linkInContainer").map(|(_, value)| value).collect();
        if known.may_be_inside && inside == [&Value::Bool(true)] {
            return;
        }
        // A delegate's own runtimeConfig reaches it as it is.
        let runtime = all(raw, "runtimeConfig").filter_map(|(_, value)| value.as_object());
        let mut named = 0;
        for (key, value) in [raw].into_iter().chain(runtime).flat_map(|o| known.devices.iter().flat_map(|key| all(o, key))) {
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

    fn sysctls(&mut self, raw: &Object, place: &str) {
        let objects = |o: &'_ Object, key: &str| -> Vec<Object> { all(o, key).filter_map(|(_, v)| v.as_object().cloned()).collect() };
        let below: Vec<Object> = objects(raw, "args").iter().flat_map(|args| objects(args, "cni")).collect();
        for (holder, place) in [(raw, place.to_owned())].into_iter().chain(below.iter().map(|cni| (cni, format!("{place}.args.cni")))) {
            for object in objects(holder, "sysctl") {
                let settings = object.iter().map(|(key, _)| Use { what: sysctl(key), place: format!("{place}.sysctl") });
                self.sysctls.extend(settings);
            }
        }
    }
}

/// With dots, as rules have it. A key with an empty part, among them every `..`, could be another one once it is a path:
/// it keeps a slash, which no sensible pattern has.
fn sysctl(key: &str) -> String {
    match key.split(['.', '/']).any(str::is_empty) {
        true => format!("/{key}"),
        false => key.replace('/', "."),
    }
}

/// Every object under a key as one, in which Go merges them.
fn together(raw: &Object, key: &str) -> Object {
    let objects = all(raw, key).filter_map(|(_, value)| value.as_object());
    objects.flat_map(Object::iter).map(|(key, value)| (key.to_owned(), value.clone())).collect()
}

/// The types that are given, each once.
fn kinds_of(raw: &Object) -> Vec<&str> {
    let mut kinds: Vec<&str> = all(raw, "type").filter_map(|(_, kind)| kind.as_str()).filter(|kind| !kind.is_empty()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The values of every spelling of a key that Go takes for it, with the spelling; `null` is none.
fn all<'a>(object: &'a Object, key: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    object.iter().filter(move |(own, value)| same_key(own, key) && !matches!(value, Value::Null))
}

/// Go folds by Unicode, in which two letters beyond ASCII are letters of it; plugins in Go read `"ma\u{17f}ter"`.
fn same_key(own: &str, key: &str) -> bool {
    let plain = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    own.chars().map(plain).eq(key.chars().map(plain))
}
