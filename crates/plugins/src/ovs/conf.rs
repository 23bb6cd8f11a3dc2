//! The configuration of `ovs`: as received, then checked. The keys are those of ovs-cni.

use std::path::PathBuf;

use cni::{CniArgs, CniError, Config, Dns, IfName, Mac, PluginType};
use ovsdb::Vlans;
use serde::Deserialize;

use crate::mac;
use crate::trunk::{self, LAST, Trunk};

/// Other ways to write the usual socket.
pub(crate) const USUAL_SOCKETS: &[&str] =
    &["/run/openvswitch/db.sock", "unix:/run/openvswitch/db.sock", "unix:/var/run/openvswitch/db.sock"];

/// The last OpenFlow port number that a port may ask for (ovs-vswitchd.conf.db(5)).
const LAST_OFPORT: i64 = 65279;

/// The characters of a port's ID at the most.
const LONGEST_ID: usize = 64;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Keys {
    bridge: String,
    vlan: Option<i64>,
    trunk: Option<Vec<Trunk>>,
    mtu: i64,
    ofport_request: i64,
    iface_id: String,
    isolate: bool,
    socket_file: String,
    configuration_path: String,
    #[serde(rename = "deviceID")]
    device_id: String,
    dns: Dns,
}

/// The checked configuration.
pub(crate) struct Conf {
    pub(crate) bridge: IfName,
    /// `None` leaves them to who knows the port by its [`Conf::iface_id`].
    pub(crate) vlans: Option<Vlans>,
    pub(crate) mtu: Option<u32>,
    pub(crate) ofport_request: Option<u16>,
    /// The port's ID at Neutron or OVN.
    pub(crate) iface_id: Option<String>,
    /// The port carries nothing until who knows its ID has given it a VLAN.
    pub(crate) isolate: bool,
    pub(crate) socket: PathBuf,
    pub(crate) mac: Option<Mac>,
    pub(crate) ipam: Option<PluginType>,
    pub(crate) dns: Dns,
}

// === impl Conf ===

impl Conf {
    pub(crate) fn read(config: &Config, args: &CniArgs) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        if keys.bridge.is_empty() {
            return Err(CniError::invalid("bridge", "it is missing: name a bridge of Open vSwitch (ovs-vsctl list-br)"));
        }
        let bridge = IfName::parse(&keys.bridge).map_err(|e| CniError::invalid("bridge", e))?;
        if !keys.configuration_path.is_empty() {
            return Err(CniError::invalid("configuration_path", "no other file is read: put \"socket_file\" here"));
        }
        if !keys.device_id.is_empty() {
            return Err(CniError::invalid("deviceID", "virtual functions are not supported: a pod is connected with a veth pair"));
        }
        let mtu = match keys.mtu {
            0 => None,
            68..=65535 => u32::try_from(keys.mtu).ok(),
            other => return Err(CniError::invalid("mtu", format!("{other} is not between 68 and 65535"))),
        };
        let ofport_request = match keys.ofport_request {
            0 => None,
            1..=LAST_OFPORT => u16::try_from(keys.ofport_request).ok(),
            other => return Err(CniError::invalid("ofport_request", format!("{other} is not between 1 and {LAST_OFPORT}"))),
        };
        args.only(&["MAC", "IP", "GATEWAY"])?;
        let iface_id = iface_id(keys.iface_id)?;
        if keys.isolate && iface_id.is_none() {
            return Err(CniError::invalid("isolate", "nobody would give the port a VLAN: set iface_id, or vlan"));
        }
        let vlans = match (&iface_id, keys.vlan, &keys.trunk) {
            (None, vlan, trunk) => Some(vlans(vlan, trunk.as_deref().unwrap_or_default())?),
            (Some(_), None, None) => None,
            (Some(_), _, _) => {
                return Err(CniError::invalid("iface_id", "VLANs of such a port are set by who knows its ID: remove vlan and trunk"));
            }
        };
        Ok(Conf {
            bridge,
            vlans,
            mtu,
            ofport_request,
            iface_id,
            isolate: keys.isolate,
            socket: local(&keys.socket_file)?,
            mac: mac::requested(config, args, mac::INTERFACE)?,
            ipam: config.ipam()?,
            dns: keys.dns,
        })
    }

    /// Where the database of a configuration is, also where nothing else of it can be used: DEL and GC need no more.
    pub(crate) fn socket(config: &Config) -> PathBuf {
        let named = config.raw().str("socket_file").unwrap_or_default();
        local(named).unwrap_or_else(|_| ovsdb::DEFAULT_SOCKET.into())
    }
}

/// A name of another program's: a UUID in all that are known.
fn iface_id(text: String) -> Result<Option<String>, CniError> {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-_.:".contains(&b);
    match text.as_bytes() {
        [] => Ok(None),
        bytes if bytes.len() <= LONGEST_ID && bytes.iter().copied().all(is_good) => Ok(Some(text)),
        _ => {
            let shown: String = text.chars().take(80).collect();
            let why = format!("{shown:?} is not a port's ID: use up to {LONGEST_ID} letters, digits, '-', '_', '.' and ':'");
            Err(CniError::invalid("iface_id", why))
        }
    }
}

fn vlans(vlan: Option<i64>, list: &[Trunk]) -> Result<Vlans, CniError> {
    match (vlan, list) {
        (None, []) => Ok(Vlans::All),
        // 0 stands for what has no tag.
        (None, list) => trunk::vlans("trunk", 0, list).map(Vlans::Trunk),
        (Some(vlan), []) => match u16::try_from(vlan).ok().filter(|vlan| *vlan <= LAST) {
            Some(vlan) => Ok(Vlans::Access(vlan)),
            None => Err(CniError::invalid("vlan", format!("{vlan} is not between 0 and {LAST}"))),
        },
        (Some(_), _) => Err(CniError::invalid("vlan", "a port is of one VLAN or a trunk of several: set either vlan or trunk")),
    }
}

/// A socket of this machine: a path, or `unix:` and a path.
fn local(named: &str) -> Result<PathBuf, CniError> {
    let path = named.strip_prefix("unix:").unwrap_or(named);
    match path {
        "" => Ok(ovsdb::DEFAULT_SOCKET.into()),
        path if path.starts_with('/') => Ok(path.into()),
        _ => Err(CniError::invalid("socket_file", format!("{named:?} is not the path of a socket: it begins with / or unix:/"))),
    }
}
