//! `ovs-vhost-user`: a port of a bridge of Open vSwitch with DPDK, which a program in the container uses over a socket (vhost-user).
//!
//! ```text
//!   mode client   ovs-vswitchd listens: dpdkvhostuser          DIR/vhu...  <-- connects --  the container's program
//!   mode server   ovs-vswitchd connects: dpdkvhostuserclient   DIR/vhu...  --- listens  --  the container's program
//! ```
//!
//! There is no link, and nothing to configure in the container: addresses are in the result alone. The socket belongs to who listens, and is
//! neither made nor removed here.

use std::path::PathBuf;

use cni::{AddResult, AttachmentId, CniArgs, CniError, Code, Config, IfName, Interface, Version};
use plugin::{About, Call, Cx, Draft, Key, Plugin};
use serde::Deserialize;

use crate::address::{self, Addresses};
use crate::conflict::Wire;
use crate::ovs::{self, Conf, port};
use crate::{identity, internal, mac, verify};

/// The plugin `ovs-vhost-user`.
pub(crate) struct OvsVhostUser;

static ABOUT: About = About {
    name: "ovs-vhost-user",
    summary: "connects a program in the container to a bridge of Open vSwitch with DPDK over a socket",
    versions: Version::ALL,
    capabilities: &["mac"],
    keys: &[
        Key::new("bridge", "string", "required", "the bridge of Open vSwitch, which must exist, with the userspace datapath"),
        Key::path("socketDir", "required", &[], "directory of the socket, which has the port's name; made if it is missing"),
        Key::new(
            "mode",
            "string",
            "server",
            "what the container's program does with the socket: server (it listens), client (it connects)",
        ),
        Key::new("vlan", "number", "none", "the VLAN to which the container belongs, up to 4094; without it every VLAN, with its tag"),
        Key::new("trunk", "list", "all", "VLANs that the container sends and receives with their tags: {\"id\"}, {\"minID\", \"maxID\"}")
            .of(&["id", "minID", "maxID"]),
        Key::new("mtu", "bytes", "chosen by Open vSwitch", "MTU of the port"),
        Key::new("ofport_request", "number", "chosen by Open vSwitch", "OpenFlow port number, 1 to 65279, if it is free"),
        Key::new("iface_id", "string", "none", "the port's ID at Neutron, whose agent then sets its VLAN and security groups"),
        Key::new("isolate", "bool", "false", "with iface_id: nothing passes (VLAN 4095) until Neutron's agent sets a VLAN"),
        Key::path("socket_file", ovsdb::DEFAULT_SOCKET, ovs::USUAL_SOCKETS, "socket of ovsdb-server"),
        Key::new("mac", "string", "chosen at random", "hardware address that the container's program is to use"),
        mac::FROM_IP,
        Key::new("ipam", "object", "none", "addresses that the container's program is to use"),
    ],
    needs_link: false,
};

/// The longest path of a socket (unix(7)).
const LONGEST: usize = 107;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Keys {
    socket_dir: String,
    mode: String,
}

/// What the container's program does with the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Client,
    Server,
}

impl Mode {
    /// The type of the port.
    fn kind(self) -> &'static str {
        match self {
            Mode::Client => "dpdkvhostuser",
            Mode::Server => "dpdkvhostuserclient",
        }
    }
}

/// The checked configuration.
struct Checked {
    conf: Conf,
    dir: PathBuf,
    mode: Mode,
}

// === impl Checked ===

impl Checked {
    fn read(config: &Config, args: &CniArgs) -> Result<Self, CniError> {
        let keys: Keys = config.read()?;
        let conf = Conf::read(config, args)?;
        let dir = PathBuf::from(&keys.socket_dir);
        let has_steps = dir.components().any(|part| part == std::path::Component::ParentDir);
        // A name has 14 characters, and a slash before it.
        if !dir.is_absolute() || has_steps || keys.socket_dir.len() + 15 > LONGEST {
            let shown: String = keys.socket_dir.chars().take(120).collect();
            let why =
                format!("{shown:?} is not a directory for a socket: it begins with /, has no .., and up to {} characters", LONGEST - 15);
            return Err(CniError::invalid("socketDir", why));
        }
        let mode = match keys.mode.as_str() {
            "" | "server" => Mode::Server,
            "client" => Mode::Client,
            other => {
                let shown: String = other.chars().take(40).collect();
                return Err(CniError::invalid("mode", format!("{shown:?} is neither client nor server")));
            }
        };
        Ok(Checked { conf, dir, mode })
    }

    /// The name of the port and of its socket, as Neutron makes it.
    fn name(&self, id: &AttachmentId) -> Result<IfName, CniError> {
        name(self.conf.iface_id.as_deref(), id)
    }
}

fn name(iface_id: Option<&str>, id: &AttachmentId) -> Result<IfName, CniError> {
    let rest = match iface_id {
        Some(id) => port::short_id(id),
        // As many bits as the name of a pair has.
        None => format!("{:011x}", identity::fingerprint(id) >> 20),
    };
    IfName::parse(&format!("vhu{rest}")).map_err(|e| CniError::invalid("iface_id", e))
}

impl Plugin for OvsVhostUser {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        Checked::read(draft.config, &CniArgs::default()).map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let checked = Checked::read(call.config, call.args)?;
        let (conf, netns, name) = (&checked.conf, call.netns()?, checked.name(call.id)?);
        let addresses = match Addresses::before_link(conf.ipam.clone(), call, cx)? {
            Addresses::Later(kind) => {
                let why = format!("{} asks on an interface, and there is none: use another one", kind.as_str());
                return Err(CniError::invalid("ipam.type", why));
            }
            known => known,
        };
        let mac = mac::of_new_link(call.config, conf.mac.clone(), &addresses, cx)?.or_else(mac::random);
        let mut switch = port::connect(conf, cx)?;
        let bridge = port::bridge(&mut switch, conf)?;
        if !bridge.is_userspace {
            let next = "use one whose datapath_type is netdev";
            return Err(CniError::invalid("bridge", format!("{} has the kernel's datapath, which has no vhost-user: {next}", conf.bridge)));
        }
        let kind = checked.mode.kind();
        if !switch.interface_types().map_err(port::failed)?.iter().any(|known| known == kind) {
            let next = "install Open vSwitch with DPDK, and set other_config:dpdk-init";
            let msg = format!("Open vSwitch at {} has no ports of type {kind}: {next}", conf.socket.display());
            return Err(CniError::new(Code::INVALID_CONFIG, msg).at("mode"));
        }
        port::is_free(&mut switch, &name, call.id)?;
        port::make_way(&mut switch, &name)?;
        linux::crash_point!("vhost-way-made");
        let mut result = addresses.with_link(call, cx, &Wire::None)?;
        std::fs::create_dir_all(&checked.dir).map_err(|e| internal(format!("make the directory {}: {e}", checked.dir.display())))?;
        let path = checked.dir.join(name.as_str()).display().to_string();
        port::note_removal_of(Some(call.id), &conf.socket, vec![name.to_string()], true, cx);
        let options = [("vhost-server-path", path.as_str())];
        let options = if checked.mode == Mode::Server { &options[..] } else { &[] };
        let new = port::New { name: name.as_str(), mac: mac.as_ref(), kind: Some(kind), options, mtu: conf.mtu };
        port::add(&mut switch, conf, &bridge, call, &new)?;
        linux::crash_point!("vhost-port-made");
        let sandbox = netns.path().display().to_string();
        let mac = mac.map(|mac| mac.to_string()).unwrap_or_default();
        result.interfaces = vec![Interface { name: call.id.ifname.to_string(), mac, sandbox, socket_path: path, ..Interface::default() }];
        result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
        address::name_resolution(call.config, checked.conf.dns, &mut result);
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let checked = Checked::read(call.config, call.args)?;
        verify::ipam(call, cx)?;
        let mut switch = port::connect(&checked.conf, cx)?;
        port::bridge(&mut switch, &checked.conf)?;
        ovs::check_port(&mut switch, &checked.conf, checked.name(call.id)?.as_str())
    }

    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        // An ADD that such a configuration was refused for has left nothing.
        if let Ok(checked) = Checked::read(call.config, &CniArgs::default())
            && let Ok(name) = checked.name(call.id)
        {
            // The directory comes before the port.
            let was_made = port::may_be_made(call, checked.dir.is_dir());
            port::note_removal_of(Some(call.id), &checked.conf.socket, vec![name.to_string()], was_made, cx);
        }
        address::release(call, cx)
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let checked = Checked::read(config, &CniArgs::default())?;
        port::status(&checked.conf, cx).map_err(|e| CniError { code: Code::NOT_AVAILABLE, ..e })?;
        address::status(config, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let socket = Conf::socket(config);
        let names = port::stale(&socket, config, valid, cx)?;
        if !names.is_empty() {
            port::note_removal(&socket, names, true, cx);
        }
        address::gc(config, valid, cx)
    }
}
