//! `flannel`: another plugin, with what flanneld says of this node.
//!
//! ```text
//!   /run/flannel/subnet.env + configuration  -->  delegate's configuration  -->  bridge (or another plugin)
//!                                                   | kept: /var/lib/cni/flannel/<container>
//!                                                   `--> DEL, CHECK and GC, whatever flanneld says by then
//! ```

mod kept;
mod subnet;

use std::path::PathBuf;

use cni::{AddResult, AttachmentId, CniError, Code, Config, PluginType, Version};
use json::{Object, Value};
use linux::file;
use plugin::{About, Call, Cx, Draft, Key, Plugin, Restore};

use crate::verify;
use kept::SavedDelegate;
use subnet::Subnet;

/// The plugin `flannel`.
pub(crate) struct Flannel;

static ABOUT: About = About {
    name: "flannel",
    summary: "delegates to another plugin, with the subnets that flanneld has for this node",
    versions: Version::ALL,
    capabilities: &["mac", "ips", "ipRanges", "portMappings", "bandwidth", "dns"],
    keys: &[
        Key::path("subnetFile", "/run/flannel/subnet.env", &[], "the file that flanneld writes"),
        Key::directory("dataDir", "/var/lib/cni/flannel", "directory of the delegate's configurations, for DEL"),
        Key::new("delegate", "object", "bridge", "the other plugin's configuration, without \"name\" and \"ipam\""),
        Key::new("delegate.type", "string", "bridge", "the other plugin"),
        Key::new(
            "delegate.ipMasq",
            "bool",
            "unless flanneld does",
            "traffic that leaves the network gets the host's address \
            (masquerading)",
        ),
        Key::new("delegate.mtu", "bytes", "flanneld's", "largest packet"),
        Key::new("delegate.isGateway", "bool", "true for bridge", "the bridge gets the gateway's address"),
        Key::new("ipam", "object", "host-local", "its keys go to the delegate, with the node's subnets and a route to each network"),
    ],
    needs_link: false,
};

/// Where flanneld writes.
const SUBNET_FILE: &str = "/run/flannel/subnet.env";
/// Where the delegate's configurations are kept: as the plugin in Go does.
const DATA_DIR: &str = "/var/lib/cni/flannel";

impl Plugin for Flannel {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn validate(&self, draft: &Draft<'_>) -> Result<(), CniError> {
        // What the daemon has for this node is not known: without it, ranges are missing.
        delegated(draft.config, &Subnet::default()).map(drop)
    }

    fn add(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<AddResult, CniError> {
        let subnet = Subnet::read(&subnet_file(call.config, cx)).map_err(|e| e.within("loadFlannelSubnetEnv failed"))?;
        let (kind, config) = delegated(call.config, &subnet)?;
        let kept = SavedDelegate::for_new(&data_dir(call.config, cx), call.id)?;
        let (undone, before) = (kept.clone(), kept.text());
        // An attachment that is there already keeps what its DEL needs, when this ADD is refused.
        cx.teardown.at(plugin::Stage::Files, format!("restore {}", kept.path().display()), move |_| undone.put_back(before.as_deref()));
        kept.write(call.id, &config)?;
        linux::crash_point!("flannel-kept");
        let delegate = cx.delegate;
        let result = delegate.add(&kind, &Call { config: &config, ..*call }, cx).map_err(|e| e.within("failed to delegate add"))?;
        linux::crash_point!("flannel-delegated");
        Ok(result)
    }

    fn check(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let name = call.id.ifname.as_str();
        let dir = data_dir(call.config, cx);
        let Some((kept, config)) = SavedDelegate::find(&dir, call.id).and_then(|kept| Some((kept.clone(), kept.read()?))) else {
            return Err(verify::changed(name, format!("the delegated configuration is not in {} any more", dir.display())));
        };
        // Where flanneld has another subnet by now, the other nodes do not find this container.
        if let (Ok(subnet), Some(prev)) = (Subnet::read(&subnet_file(call.config, cx)), call.prev)
            && let Some(stray) = prev.ips.iter().find(|ip| !subnet.has(ip.address.addr()))
        {
            let msg = format!("flanneld has moved this node to {}, which does not contain {}", subnet.words(), stray.address);
            return Err(verify::changed(name, msg));
        }
        let kind = kind_of(&config).map_err(|e| e.within(kept.path().display()))?;
        let delegate = cx.delegate;
        delegate.check(&kind, &Call { config: &config, ..*call }, cx)
    }

    /// With the configuration that ADD has delegated. Where it is not kept, as after a power cut, with the one that
    /// would be delegated now; where flanneld is silent as well, with that one less the addresses.
    fn del(&self, call: &Call<'_>, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let kept = SavedDelegate::find(&data_dir(call.config, cx), call.id);
        let delegate = cx.delegate;
        match kept.as_ref().and_then(SavedDelegate::read) {
            Some(config) => {
                if let Ok(kind) = kind_of(&config) {
                    delegate.del(&kind, &Call { config: &config, ..*call }, cx)?;
                }
            }
            None => {
                let subnet = Subnet::read(&subnet_file(call.config, cx));
                let is_silent = subnet.is_err();
                // An ADD that could not be delegated has kept nothing, and left nothing: nor has one to a plugin that is not there.
                if let Ok((kind, config)) = delegated(call.config, &subnet.unwrap_or_default())
                    && let Ok(executable) = asks_executables(&kind, &config, delegate)
                    // The reference's host-local fails without a range, and a DEL that fails holds up the container's end.
                    && !(is_silent && executable)
                {
                    delegate.del(&kind, &Call { config: &config, ..*call }, cx)?;
                }
            }
        }
        if let Some(kept) = kept {
            cx.teardown.at(plugin::Stage::Files, format!("remove {}", kept.path().display()), move |_| kept.remove());
        }
        Ok(())
    }

    fn status(&self, config: &Config, cx: &mut Cx<'_>) -> Result<(), CniError> {
        let unavailable = |e: CniError| CniError { code: Code::NOT_AVAILABLE, ..e };
        let subnet = Subnet::read(&subnet_file(config, cx)).map_err(unavailable)?;
        let (kind, delegated) = delegated(config, &subnet)?;
        let dir = data_dir(config, cx);
        match file::can_make_files(&dir) {
            // ADD makes it.
            Ok(()) | Err(linux::Errno::ENOENT) => {}
            Err(e) => return Err(CniError::new(Code::NOT_AVAILABLE, format!("dataDir: no file can be made in {}: {e}", dir.display()))),
        }
        let delegate = cx.delegate;
        delegate.status(&kind, &delegated, cx)
    }

    fn gc(&self, config: &Config, valid: &[AttachmentId], cx: &mut Cx<'_>) -> Result<(), CniError> {
        let stale = SavedDelegate::stale(&data_dir(config, cx), &config.network, valid)?;
        let now = Subnet::read(&subnet_file(config, cx)).and_then(|subnet| delegated(config, &subnet)).ok().map(|(_, config)| config);
        let delegate = cx.delegate;
        // What is delegated now, and what was: it may have been another plugin, or had its addresses elsewhere. One that
        // cannot be asked holds up no other; what was kept for it stays.
        let mut asked: Vec<(Config, bool)> = Vec::new();
        let mut errors = Vec::new();
        let mut ask = |config: Config, cx: &mut Cx<'_>| {
            if let Some((_, done)) = asked.iter().find(|(other, _)| other.raw() == config.raw()) {
                return *done;
            }
            let collected = kind_of(&config).map_or(Ok(()), |kind| delegate.gc(&kind, &config, valid, cx));
            let done = collected.map_err(|e| errors.push(e)).is_ok();
            asked.push((config, done));
            done
        };
        if let Some(config) = now {
            ask(config, cx);
        }
        for kept in stale {
            if kept.read().is_none_or(|config| ask(config, cx)) {
                cx.teardown.at(plugin::Stage::Files, format!("remove {}", kept.path().display()), move |_| kept.remove());
            }
        }
        CniError::first_of(errors).map_or(Ok(()), Err)
    }

    fn restore(&self, call: &Call<'_>, cx: &mut Cx<'_>, into: &mut Restore) -> Result<(), CniError> {
        let kept = SavedDelegate::find(&data_dir(call.config, cx), call.id);
        let Some(config) = kept.as_ref().and_then(SavedDelegate::read) else { return Ok(()) };
        let (kind, delegate) = (kind_of(&config)?, cx.delegate);
        delegate.restore(&kind, &Call { config: &config, ..*call }, cx, into)
    }
}

fn subnet_file(config: &Config, cx: &Cx<'_>) -> PathBuf {
    named(config, "subnetFile", SUBNET_FILE, cx)
}

fn data_dir(config: &Config, cx: &Cx<'_>) -> PathBuf {
    named(config, "dataDir", DATA_DIR, cx)
}

fn named(config: &Config, key: &str, default: &str, cx: &Cx<'_>) -> PathBuf {
    let named = config.raw().str(key).filter(|s| !s.is_empty()).unwrap_or(default);
    cx.host.dirs.configured(named, named.as_ref())
}

/// The plugin that a delegate's configuration is for.
fn kind_of(config: &Config) -> Result<PluginType, CniError> {
    let kind = config.kind.clone().ok_or_else(|| CniError::invalid("delegate.type", "missing"))?;
    match kind.as_str() {
        "flannel" => Err(CniError::invalid("delegate.type", "flannel cannot delegate to itself: name the plugin that makes the interface")),
        _ => Ok(kind),
    }
}

/// Whether the delegate, or its IPAM plugin, is an executable, or asks others.
fn asks_executables(kind: &PluginType, config: &Config, delegate: &dyn plugin::Delegate) -> Result<bool, CniError> {
    let ipam = config.ipam()?.map_or(Ok(false), |ipam| delegate.needs_link(&ipam))?;
    Ok(delegate.needs_link(kind)? || ipam)
}

/// The delegate, and its whole configuration.
fn delegated(config: &Config, subnet: &Subnet) -> Result<(PluginType, Config), CniError> {
    let mut raw = match config.raw().get("delegate") {
        None => Object::new(),
        Some(Value::Object(_)) => config.raw().merged("delegate"),
        Some(other) => return Err(CniError::invalid("delegate", format!("expected an object, found {}", other.kind()))),
    };
    for key in ["name", "ipam"] {
        if raw.get(key).is_some() {
            let msg = format!("'delegate' dictionary must not have '{key}' field, it'll be set by flannel");
            return Err(CniError::invalid(&format!("delegate.{key}"), msg));
        }
    }
    match raw.get("type") {
        None => raw.set("type", "bridge"),
        Some(Value::String(_)) => {}
        Some(other) => {
            let msg = format!("'delegate' dictionary, if present, must have (string) 'type' field, not {}", other.kind());
            return Err(CniError::invalid("delegate.type", msg));
        }
    }
    let mut unless_given = |key: &str, value: Value| {
        if raw.get(key).is_none() {
            raw.set(key, value);
        }
    };
    unless_given("ipMasq", Value::from(!subnet.ip_masq));
    unless_given("mtu", Value::from(u64::from(subnet.mtu)));
    if raw.str("type") == Some("bridge") && raw.get("isGateway").is_none() {
        raw.set("isGateway", true);
    }
    raw.set("name", config.network.as_str());
    raw.set("cniVersion", config.version.as_str());
    raw.set("ipam", ipam(config, subnet)?);
    if let Some(runtime) = config.raw().get("runtimeConfig") {
        raw.set("runtimeConfig", runtime.clone());
    }
    let config = Config::from_object(raw).map_err(|e| CniError::from(e).within("delegate"))?;
    Ok((kind_of(&config)?, config))
}

/// `ipam` as configured, with the node's subnets and a route to each of flannel's networks.
fn ipam(config: &Config, subnet: &Subnet) -> Result<Object, CniError> {
    let mut ipam = match config.raw().get("ipam") {
        None => Object::new(),
        Some(Value::Object(_)) => config.raw().merged("ipam"),
        Some(other) => return Err(CniError::invalid("ipam", format!("expected an object, found {}", other.kind()))),
    };
    if ipam.str("type").is_none_or(str::is_empty) {
        ipam.set("type", "host-local");
    }
    let one = |key: &str, net: &ipnet::IpNet| {
        let mut o = Object::new();
        o.set(key, net.to_string());
        Value::Object(o)
    };
    let ranges: Vec<Value> = subnet.subnets.iter().map(|net| Value::Array(vec![one("subnet", net)])).collect();
    let mut routes = match ipam.get("routes") {
        None => Vec::new(),
        Some(Value::Array(routes)) => routes.clone(),
        Some(other) => {
            return Err(CniError::invalid("ipam.routes", format!("failed to parse ipam.routes: expected a list, found {}", other.kind())));
        }
    };
    routes.extend(subnet.networks.iter().map(|net| one("dst", net)));
    ipam.set("ranges", ranges);
    ipam.set("routes", routes);
    Ok(ipam)
}

/// The daemon's file, and what is kept of an attachment.
#[cfg(fuzzing)]
pub(crate) fn fuzz(bytes: &[u8]) {
    drop(Subnet::parse(&String::from_utf8_lossy(bytes), std::path::Path::new("subnet.env")));
    if let Ok(Value::Object(object)) = json::parse(bytes) {
        drop(Config::from_object(object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(keys: &str, env: &str) -> Result<String, CniError> {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"cbr0","type":"flannel"{keys}}}"#);
        let (config, _) = Config::parse(text.as_bytes()).unwrap();
        let subnet = Subnet::parse(env, "subnet.env".as_ref()).unwrap();
        Ok(json::compact(delegated(&config, &subnet)?.1.raw()))
    }

    const FOUR: &str = "FLANNEL_NETWORK=10.1.0.0/16\nFLANNEL_SUBNET=10.1.17.1/24\nFLANNEL_MTU=1472\nFLANNEL_IPMASQ=true\n";

    #[test]
    fn a_bridge_where_nothing_is_said() {
        let expected = r#"{"type":"bridge","ipMasq":false,"mtu":1472,"isGateway":true,"name":"cbr0","cniVersion":"1.0.0","ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.17.0/24"}]],"routes":[{"dst":"10.1.0.0/16"}]}}"#;
        assert_eq!(built("", FOUR).unwrap(), expected);
        assert_eq!(built(r#","delegate":null,"ipam":null"#, FOUR).unwrap(), expected);
        assert_eq!(built(r#","delegate":{"isGateway":null,"type":null},"ipam":{"type":null}"#, FOUR).unwrap(), expected);
        let no_gateway = built(r#","delegate":{"isGateway":false,"ISGATEWAY":null}"#, FOUR).unwrap();
        assert!(no_gateway.contains(r#""isGateway":false"#), "{no_gateway}");
    }

    #[test]
    fn what_is_said_stays() {
        let keys = r#","runtimeConfig":{"mac":"02:00:00:00:00:01"},"ipam":{"type":"x","routes":[{"dst":"0.0.0.0/0"}],"dataDir":"/d"},
            "delegate":{"type":"ipvlan","master":"eth1","mtu":1400,"ipMasq":true}"#;
        let both = format!("{FOUR}FLANNEL_IPV6_NETWORK=fd00:1::/48,fd00:2::/48\nFLANNEL_IPV6_SUBNET=fd00:1:0:11::1/64\n");
        let expected = r#"{"type":"ipvlan","master":"eth1","mtu":1400,"ipMasq":true,"name":"cbr0","cniVersion":"1.0.0","ipam":{"type":"x","routes":[{"dst":"0.0.0.0/0"},{"dst":"10.1.0.0/16"},{"dst":"fd00:1::/48"},{"dst":"fd00:2::/48"}],"dataDir":"/d","ranges":[[{"subnet":"10.1.17.0/24"}],[{"subnet":"fd00:1:0:11::/64"}]]},"runtimeConfig":{"mac":"02:00:00:00:00:01"}}"#;
        assert_eq!(built(keys, &both).unwrap(), expected);
    }

    #[test]
    fn what_cannot_be_delegated() {
        for (keys, says) in [
            (r#","delegate":{"name":"x"}"#, "must not have 'name' field"),
            (r#","delegate":{"ipam":{}}"#, "must not have 'ipam' field"),
            (r#","delegate":{"type":7}"#, "must have (string) 'type' field"),
            (r#","delegate":{"type":"flannel"}"#, "cannot delegate to itself"),
            (r#","delegate":{"type":"../x"}"#, "type"),
            (r#","delegate":[]"#, "delegate: expected an object"),
            (r#","ipam":{"routes":{}}"#, "failed to parse ipam.routes"),
        ] {
            let e = built(keys, FOUR).unwrap_err();
            assert!(e.msg.contains(says) && e.code == Code::INVALID_CONFIG, "{keys}: {e}");
        }
    }
}
