//! A configuration, and what its machine is like.

use std::collections::BTreeSet;

use serde_json::Value;

/// Where a configuration can be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// On any kernel with veth, bridge, macvlan and tap.
    Here,
    /// In the guest, which has every module.
    Guest,
}

/// One configuration of a plugin's table.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Whose table it stands in.
    pub(crate) plugin: &'static str,
    /// What it is about; unique in the table.
    pub(crate) name: &'static str,
    pub(crate) kernel: Kernel,
    /// The plugins that run, in order: the last one is the one that is looked at.
    pub(crate) chain: Vec<Value>,
    /// Lines that make the machine ready; one that begins with `c1:` runs in the container.
    pub(crate) prepare: Vec<&'static str>,
    /// `CNI_ARGS`
    pub(crate) args: &'static str,
    /// `CNI_IFNAME`
    pub(crate) ifname: &'static str,
    /// Lines after ADD of which only success or failure counts.
    pub(crate) probes: Vec<&'static str>,
    /// Lines between ADD and CHECK, which change what ADD made: CHECK is to find it.
    pub(crate) spoil: Vec<&'static str>,
    /// Lines before DEL: what happens to a container before its end.
    pub(crate) before_del: Vec<&'static str>,
    /// Where the plugin's own daemon listens, if it is to run: beside it a DHCP server on `srv0`.
    pub(crate) daemon: Option<&'static str>,
    /// Whether it is the one of its plugin that is asked for VERSION: the answer does not depend on a configuration.
    pub(crate) first: bool,
    /// Whether the container answers at port 80, over TCP and UDP, with the address that it sees.
    pub(crate) serves: bool,
    /// Whether DEL is told neither namespace nor result.
    pub(crate) blind_del: bool,
}

/// A case with one plugin; name and version of the network are put in.
pub(crate) fn case(plugin: &'static str, name: &'static str, config: Value) -> Case {
    let mut case = Case {
        plugin,
        name,
        kernel: Kernel::Here,
        chain: Vec::new(),
        prepare: Vec::new(),
        args: "",
        ifname: "eth0",
        probes: Vec::new(),
        spoil: Vec::new(),
        before_del: Vec::new(),
        daemon: None,
        first: false,
        serves: false,
        blind_del: false,
    };
    case.chain.push(completed(plugin, config));
    case
}

fn completed(plugin: &str, mut config: Value) -> Value {
    let keys = config.as_object_mut().expect("a configuration is an object");
    for (key, value) in [("cniVersion", "1.1.0"), ("name", "net"), ("type", plugin)] {
        keys.entry(key).or_insert_with(|| value.into());
    }
    config
}

// === impl Case ===

impl Case {
    /// With another plugin before it, as the list of a chain has it.
    #[must_use]
    pub(crate) fn after(mut self, plugin: &str, config: Value) -> Self {
        let mut first = completed(plugin, config);
        first["cniVersion"] = self.chain[0]["cniVersion"].clone();
        self.chain.insert(0, first);
        self
    }

    /// It is looked at in the guest alone.
    #[must_use]
    pub(crate) fn in_guest(self) -> Self {
        Case { kernel: Kernel::Guest, ..self }
    }

    #[must_use]
    pub(crate) fn prepare(mut self, lines: &[&'static str]) -> Self {
        self.prepare.extend(lines);
        self
    }

    #[must_use]
    pub(crate) fn args(self, args: &'static str) -> Self {
        Case { args, ..self }
    }

    #[must_use]
    pub(crate) fn ifname(self, ifname: &'static str) -> Self {
        Case { ifname, ..self }
    }

    #[must_use]
    pub(crate) fn probe(mut self, lines: &[&'static str]) -> Self {
        self.probes.extend(lines);
        self
    }

    #[must_use]
    pub(crate) fn spoil(mut self, lines: &[&'static str]) -> Self {
        self.spoil.extend(lines);
        self
    }

    #[must_use]
    pub(crate) fn before_del(mut self, lines: &[&'static str]) -> Self {
        self.before_del.extend(lines);
        self
    }

    #[must_use]
    pub(crate) fn daemon(self, daemon: Option<&'static str>) -> Self {
        Case { daemon, ..self }
    }

    #[must_use]
    pub(crate) fn serves(self) -> Self {
        Case { serves: true, ..self }
    }

    #[must_use]
    pub(crate) fn blind_del(self) -> Self {
        Case { blind_del: true, ..self }
    }

    /// The plugin's configuration, as it is given to it.
    pub(crate) fn config(&self) -> &Value {
        self.chain.last().expect("a case has a plugin")
    }

    /// Everything that is said in it, in which a name or an address is known to be no random one.
    pub(crate) fn text(&self) -> String {
        let chain: String = self.chain.iter().map(Value::to_string).collect();
        [&chain, &self.prepare.join("\n"), self.args, self.ifname].join("\n")
    }

    /// The keys of a plugin that stand in it, as `mtu`, `ipam.subnet` or `runtimeConfig.mac`; wherever the plugin runs.
    pub(crate) fn keys_of(&self, plugin: &str) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        for config in &self.chain {
            let delegate = config["ipam"]["type"] == plugin;
            if config["type"] == plugin || delegate {
                nested("", config, 2, &mut keys);
            }
        }
        keys
    }
}

fn nested(prefix: &str, value: &Value, depth: usize, keys: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = format!("{prefix}{key}");
        if depth > 1 {
            nested(&format!("{path}."), value, depth - 1, keys);
        }
        keys.insert(path);
    }
}
