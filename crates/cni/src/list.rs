//! A network: a list of plugins under a name.

use json::{Object, Value};

use crate::config::{object, text};
use crate::{Config, ConfigError, NetworkName, PluginType, Version};

/// The levels of a list around a plugin: its object, and `plugins`.
const LIST_DEPTH: usize = 2;

/// A network's configuration list (SPEC 1), from a `.conflist`, a single `.conf` or a definition.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkList {
    /// Its name.
    pub name: NetworkName,
    /// The highest version that both the configuration and this library know.
    pub version: Version,
    /// CHECK is not wanted and succeeds.
    pub disable_check: bool,
    /// GC is not wanted and succeeds.
    pub disable_gc: bool,
    /// No plugin files of a directory beside the list are added.
    pub load_only_inlined_plugins: bool,
    /// The plugins, in the order of ADD.
    pub plugins: Vec<PluginEntry>,
    /// The list as JSON text, as it is kept in the result cache.
    pub source: Vec<u8>,
}

/// One plugin of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginEntry {
    /// Its type.
    pub kind: PluginType,
    raw: Object,
}

// === impl PluginEntry ===

impl PluginEntry {
    /// From a plugin's object; `index` is its place, for the error.
    pub fn new(raw: Object, index: usize) -> Result<Self, ConfigError> {
        let kind = PluginType::parse(text(&raw, "type")?).map_err(|source| ConfigError::Plugin { index, source })?;
        Ok(PluginEntry { kind, raw })
    }

    /// Whether the plugin wants `runtimeConfig` of that name.
    pub fn has_capability(&self, name: &str) -> bool {
        self.raw.objects("capabilities").rev().find_map(|o| o.get(name)).and_then(Value::as_bool) == Some(true)
    }

    /// The names of all `runtimeConfig` that it wants.
    pub fn capabilities(&self) -> impl Iterator<Item = &str> {
        let all = self.raw.object("capabilities");
        all.into_iter().flat_map(Object::iter).filter(|(_, v)| v.as_bool() == Some(true)).map(|(k, _)| k)
    }

    /// Whether a list that holds it can be read again, as it must be for DEL.
    fn fits(&self) -> Result<(), ConfigError> {
        let depth = self.raw.depth() + LIST_DEPTH;
        if depth > json::MAX_DEPTH { Err(ConfigError::TooDeep { depth, max: json::MAX_DEPTH }) } else { Ok(()) }
    }

    /// All keys as they came.
    pub fn raw(&self) -> &Object {
        &self.raw
    }
}

// === impl NetworkList ===

impl NetworkList {
    /// Reads a configuration of either kind: a list if it has `plugins`, else a single plugin, which becomes a list
    /// of one. A name that is missing is taken from `named` (the multi-network standard, S11).
    ///
    /// # Errors
    /// [`ConfigError`] naming the key.
    pub fn parse(bytes: &[u8], named: Option<&NetworkName>) -> Result<Self, ConfigError> {
        Self::read(object(json::parse(bytes)?)?, named, Some(bytes))
    }

    /// The same of an object that has been read already, as a part of something larger.
    ///
    /// # Errors
    /// [`ConfigError`] naming the key.
    pub fn of(raw: Object) -> Result<Self, ConfigError> {
        Self::read(raw, None, None)
    }

    /// `bytes`: the object as text, where that is at hand.
    fn read(raw: Object, named: Option<&NetworkName>, bytes: Option<&[u8]>) -> Result<Self, ConfigError> {
        match raw.get("plugins").is_some() || text(&raw, "type")?.is_empty() {
            true => Self::from_list(raw, named, bytes),
            false => Self::from_single(raw, named),
        }
    }

    /// Only the name of a configuration, empty if it has none.
    ///
    /// # Errors
    /// [`ConfigError`] if it is not a JSON object or the name is no string.
    pub fn name_of(bytes: &[u8]) -> Result<String, ConfigError> {
        text(&object(json::parse(bytes)?)?, "name").map(str::to_owned)
    }

    fn from_list(raw: Object, named: Option<&NetworkName>, bytes: Option<&[u8]>) -> Result<Self, ConfigError> {
        let mut raw = raw;
        let (name, injected) = network_name(&mut raw, named)?;
        let version = version(&raw)?;
        let load_only_inlined_plugins = flag(&raw, "loadOnlyInlinedPlugins")?;
        let plugins = match raw.get("plugins") {
            Some(Value::Array(list)) if list.is_empty() => return Err(ConfigError::NoPlugins(name.to_string())),
            Some(Value::Array(list)) => list.iter().enumerate().map(|(i, v)| entry(v, i)).collect::<Result<Vec<_>, _>>()?,
            Some(other) => return Err(ConfigError::Type { key: "plugins".to_owned(), expected: "a list", found: other.kind() }),
            None if load_only_inlined_plugins => return Err(ConfigError::NoPlugins(name.to_string())),
            None => Vec::new(),
        };
        Ok(NetworkList {
            name,
            version,
            disable_check: flag(&raw, "disableCheck")?,
            disable_gc: flag(&raw, "disableGC")?,
            load_only_inlined_plugins,
            plugins,
            source: bytes.filter(|_| !injected).map_or_else(|| json::compact(&raw).into_bytes(), <[u8]>::to_vec),
        })
    }

    fn from_single(raw: Object, named: Option<&NetworkName>) -> Result<Self, ConfigError> {
        let mut raw = raw;
        let (name, _) = network_name(&mut raw, named)?;
        let version = version(&raw)?;
        let plugin = PluginEntry::new(raw, 0)?;
        plugin.fits()?;
        let mut list = Object::new();
        list.set("name", name.as_str());
        list.set("cniVersion", version.as_str());
        list.set("plugins", vec![plugin.raw.clone()]);
        let source = json::compact(&list).into_bytes();
        let plugins = vec![plugin];
        Ok(NetworkList { name, version, disable_check: false, disable_gc: false, load_only_inlined_plugins: false, plugins, source })
    }

    /// Appends a plugin of a file beside the list (`<dir>/<name>/*.conf`).
    ///
    /// # Errors
    /// [`ConfigError`] if it is no plugin's configuration.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), ConfigError> {
        let plugin = PluginEntry::new(object(json::parse(bytes)?)?, self.plugins.len())?;
        plugin.fits()?;
        self.plugins.push(plugin);
        let mut raw = object(json::parse(&self.source)?)?;
        raw.set("plugins", self.plugins.iter().map(|p| p.raw.clone()).collect::<Vec<_>>());
        self.source = json::compact(&raw).into_bytes();
        Ok(())
    }

    /// Puts a key into every plugin of the list; `value` is given what stands there now, and `None` leaves it. It
    /// must not be nested deeper than [`json::MAX_DEPTH`] less three, or the list could not be read again.
    pub fn set_in_plugins(&mut self, key: &str, value: impl Fn(Option<&Value>) -> Option<Value>) {
        let mut changed = false;
        for plugin in &mut self.plugins {
            if let Some(value) = value(plugin.raw.get(key)) {
                plugin.raw.set(key, value);
                changed = true;
            }
        }
        if changed {
            self.print_plugins();
        }
    }

    /// Puts a key into one plugin of the list, by its number; no plugin has more than there are.
    pub fn set_in_plugin(&mut self, plugin: usize, key: &str, value: impl Into<Value>) {
        if let Some(plugin) = self.plugins.get_mut(plugin) {
            plugin.raw.set(key, value);
            self.print_plugins();
        }
    }

    /// Has each plugin's keys stated once ([`Object::stated`]): no two readers take several equal keys, or `null`, for something else.
    pub fn state_once(&mut self) {
        let mut changed = false;
        for plugin in &mut self.plugins {
            if let Some(stated) = plugin.raw.stated() {
                plugin.raw = stated;
                changed = true;
            }
        }
        if changed {
            self.print_plugins();
        }
    }

    fn print_plugins(&mut self) {
        if let Ok(Value::Object(mut raw)) = json::parse(&self.source) {
            raw.set("plugins", self.plugins.iter().map(|p| p.raw.clone()).collect::<Vec<_>>());
            self.source = json::compact(&raw).into_bytes();
        }
    }

    /// Takes a key out of every plugin of the list.
    pub fn remove_from_plugins(&mut self, key: &str) {
        if self.plugins.iter().all(|plugin| plugin.raw.get(key).is_none()) {
            return;
        }
        self.plugins.iter_mut().for_each(|plugin| plugin.raw.remove(key));
        self.print_plugins();
    }

    /// What one plugin of the list is given: the list's name and version, its own keys without `capabilities`, and
    /// of `runtime` what its capabilities ask for (SPEC 3, "Deriving request configuration from plugin
    /// configuration"). As with the reference library a `runtimeConfig` of its own stays where that is nothing, and goes as a
    /// whole otherwise.
    ///
    /// # Errors
    /// [`ConfigError`] if a key of the plugin breaks the rules of the derived configuration.
    pub fn derive(&self, plugin: &PluginEntry, runtime: &Object) -> Result<Config, ConfigError> {
        let mut raw = plugin.raw.clone();
        raw.set("name", self.name.as_str());
        raw.set("cniVersion", self.version.as_str());
        let wanted: Object = runtime.iter().filter(|(key, _)| plugin.has_capability(key)).map(|(k, v)| (k.to_owned(), v.clone())).collect();
        raw.remove("capabilities");
        if !wanted.is_empty() {
            raw.set("runtimeConfig", wanted);
        }
        Config::from_object(raw)
    }

    /// Whether any plugin wants `runtimeConfig` of that name.
    pub fn has_capability(&self, name: &str) -> bool {
        self.plugins.iter().any(|p| p.has_capability(name))
    }
}

fn entry(value: &Value, index: usize) -> Result<PluginEntry, ConfigError> {
    match value {
        Value::Object(o) => PluginEntry::new(o.clone(), index),
        other => Err(ConfigError::Type { key: format!("plugins[{index}]"), expected: "an object", found: other.kind() }),
    }
}

/// The configuration's own name, or `named`, which is then put into it.
fn network_name(raw: &mut Object, named: Option<&NetworkName>) -> Result<(NetworkName, bool), ConfigError> {
    match (text(raw, "name")?, named) {
        ("", Some(name)) => {
            raw.set("name", name.as_str());
            Ok((name.clone(), true))
        }
        (own, _) => Ok((NetworkName::parse(own)?, false)),
    }
}

/// `cniVersions` and `cniVersion`: the highest that is known; versions newer than the newest known are skipped.
fn version(raw: &Object) -> Result<Version, ConfigError> {
    let own = text(raw, "cniVersion")?;
    let Some(listed) = raw.get("cniVersions") else { return Ok(own.parse()?) };
    let Value::Array(listed) = listed else {
        return Err(ConfigError::Type { key: "cniVersions".to_owned(), expected: "a list", found: listed.kind() });
    };
    let mut best: Option<Version> = match own.parse() {
        Err(e @ crate::VersionError::Malformed(_)) => return Err(e.into()),
        parsed => parsed.ok().filter(|_| !own.is_empty()),
    };
    for (i, item) in listed.iter().enumerate() {
        let Value::String(s) = item else {
            return Err(ConfigError::Type { key: format!("cniVersions[{i}]"), expected: "a string", found: item.kind() });
        };
        match s.parse::<Version>() {
            Ok(v) => best = best.max(Some(v)),
            Err(e @ crate::VersionError::Malformed(_)) => return Err(e.into()),
            Err(_) => {}
        }
    }
    match best {
        Some(v) => Ok(v),
        None => Ok(own.parse()?),
    }
}

/// A boolean, or the words "true" and "false" in any case.
fn flag(raw: &Object, key: &str) -> Result<bool, ConfigError> {
    match raw.get(key) {
        None => Ok(false),
        Some(Value::Bool(b)) => Ok(*b),
        Some(Value::String(s)) if s.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(s)) if s.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(ConfigError::Type { key: key.to_owned(), expected: "true or false", found: other.kind() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<NetworkList, ConfigError> {
        NetworkList::parse(text.as_bytes(), None)
    }

    #[test]
    fn a_list_derives_each_plugins_configuration() {
        let list = parse(
            r#"{"cniVersion":"1.0.0","name":"n","plugins":[
                {"type":"bridge","capabilities":{"mac":true,"ips":false},"unknown":[1]},{"type":"tuning"}]}"#,
        )
        .unwrap();
        let runtime = json::parse(br#"{"mac":"02:00:00:00:00:01","ips":["10.0.0.1"]}"#).unwrap();
        let first = list.derive(&list.plugins[0], runtime.as_object().unwrap()).unwrap();
        assert_eq!(
            first.print(None).unwrap(),
            r#"{"type":"bridge","unknown":[1],"name":"n","cniVersion":"1.0.0","runtimeConfig":{"mac":"02:00:00:00:00:01"}}"#
        );
        let second = list.derive(&list.plugins[1], runtime.as_object().unwrap()).unwrap();
        assert!(!second.print(None).unwrap().contains("runtimeConfig"));
    }

    #[test]
    fn a_runtime_config_of_its_own_stays_where_the_runtime_gives_nothing() {
        let own = r#"{"type":"a","capabilities":{"mac":true},"RuntimeConfig":{"mac":"own","ips":[]}}"#;
        let mut list = parse(&format!(r#"{{"cniVersion":"1.0.0","name":"n","plugins":[{own}]}}"#)).unwrap();
        let told = |list: &NetworkList, runtime: &str| {
            let runtime = json::parse(runtime.as_bytes()).unwrap();
            let config = list.derive(&list.plugins[0], runtime.as_object().unwrap()).unwrap();
            config.raw().object("runtimeConfig").map(json::compact)
        };
        assert_eq!(told(&list, r#"{"ips":["10.0.0.1"]}"#).unwrap(), r#"{"mac":"own","ips":[]}"#);
        assert_eq!(told(&list, r#"{"mac":"x"}"#).unwrap(), r#"{"mac":"x"}"#);
        list.remove_from_plugins("runtimeConfig");
        assert_eq!(told(&list, "{}"), None);
        assert!(!String::from_utf8(list.source).unwrap().contains("untimeConfig"));
        // Also where Go alone finds it.
        let own = r#"{"type":"a","RuntimeConfig":null,"runtimeConfig":{"ips":[]},"RUNTIMECONFIG":{"mac":"x"}}"#;
        let mut list = parse(&format!(r#"{{"cniVersion":"1.0.0","name":"n","plugin\u017f":[{own}]}}"#)).unwrap();
        list.remove_from_plugins("runtimeConfig");
        assert!(!String::from_utf8(list.source).unwrap().to_ascii_lowercase().contains("runtimeconfig"));
    }

    #[test]
    fn a_single_plugin_becomes_a_list() {
        let list = parse(r#"{"name":"n","type":"loopback"}"#).unwrap();
        assert_eq!((list.plugins.len(), list.version), (1, Version::V0_1_0));
        assert_eq!(NetworkList::parse(&list.source, None).unwrap().plugins.len(), 1);
    }

    /// A part of a larger configuration is the network that its text would be, down to what is kept of it.
    #[test]
    fn what_was_read_already_is_the_same_network() {
        for text in [
            r#"{"cniVersion":"1.0.0","NAME":"n","x":null,"plugins":[{"type":"a","Type":"b"},{"type":"c","capabilities":{"mac":true}}]}"#,
            r#"{"name":"n","type":"loopback","x":{"Y":[null,1.5,-2]}}"#,
            r#"{"name":"n","plugins":[]}"#,
            r#"{"name":"../n","type":"a"}"#,
        ] {
            let raw = json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone();
            assert_eq!(NetworkList::of(raw), parse(text), "{text}");
        }
    }

    #[test]
    fn a_missing_name_is_injected() {
        let name = NetworkName::parse("from-definition").unwrap();
        let list = NetworkList::parse(br#"{"cniVersion":"1.0.0","plugins":[{"type":"x"}]}"#, Some(&name)).unwrap();
        assert_eq!(list.name, name);
        assert!(String::from_utf8(list.source).unwrap().contains("from-definition"));
        assert_eq!(NetworkList::parse(br#"{"name":"own","type":"x"}"#, Some(&name)).unwrap().name.as_str(), "own");
        assert!(parse(r#"{"type":"x"}"#).is_err());
    }

    #[test]
    fn the_highest_known_version_wins() {
        let version = |keys: &str| parse(&format!(r#"{{"name":"n",{keys},"plugins":[{{"type":"x"}}]}}"#)).map(|l| l.version);
        assert_eq!(version(r#""cniVersion":"0.4.0","cniVersions":["0.3.1","1.0.0","9.0.0"]"#), Ok(Version::V1_0_0));
        assert_eq!(version(r#""cniVersion":"1.1.0","cniVersions":["0.3.1"]"#), Ok(Version::V1_1_0));
        assert_eq!(version(r#""cniVersion":"""#), Ok(Version::V0_1_0));
        assert_eq!(version(r#""cniVersion":"9.0.0","cniVersions":["0.4.0","9.0.0"]"#), Ok(Version::V0_4_0));
        assert_eq!(version(r#""cniVersions":["0.10.0","0.3.1","0.4.0"]"#), Ok(Version::V0_4_0));
        assert!(version(r#""cniVersions":["nonsense"]"#).is_err());
        assert!(version(r#""cniVersion":"nonsense","cniVersions":["1.0.0"]"#).is_err());
        assert!(version(r#""cniVersion":"9.0.0""#).is_err());
    }

    #[test]
    fn bad_lists_name_the_place() {
        let bad = |text: &str| parse(text).unwrap_err().to_string();
        assert!(bad(r#"{"name":"n","plugins":[]}"#).contains("no plugins in list"));
        assert!(bad(r#"{"name":"n","plugins":[{"type":"a"},{}]}"#).starts_with("plugins[1]: missing plugin type"));
        assert!(bad(r#"{"name":"n","plugins":[{"type":"../a"}]}"#).starts_with("plugins[0]: invalid plugin type"));
        assert!(bad(r#"{"name":"n","plugins":[7]}"#).contains("plugins[0]: expected an object"));
        assert!(bad(r#"{"name":"n","disableCheck":"perhaps","plugins":[{"type":"a"}]}"#).contains("disableCheck"));
        assert!(bad(r#"{"name":"../n","plugins":[{"type":"a"}]}"#).contains("invalid characters found in network name"));
    }

    /// As deep as a file may be, it was read, and its source, which is two levels deeper, could not be: the record of
    /// such a sandbox was "torn", and no DEL could undo it.
    #[test]
    fn what_is_read_can_be_read_again_however_deep() {
        let nested = |levels: usize| format!(r#"{{"name":"n","type":"a","x":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1));
        let deepest = parse(&nested(json::MAX_DEPTH - 2)).unwrap();
        assert_eq!(parse(std::str::from_utf8(&deepest.source).unwrap()).unwrap().plugins, deepest.plugins);
        for levels in [json::MAX_DEPTH - 1, json::MAX_DEPTH] {
            let error = ConfigError::TooDeep { depth: levels + 2, max: json::MAX_DEPTH };
            assert_eq!(parse(&nested(levels)), Err(error.clone()));
            let mut list = deepest.clone();
            assert_eq!(list.append(nested(levels).as_bytes()), Err(error));
            assert_eq!(list, deepest);
        }
    }

    #[test]
    fn plugin_files_are_appended() {
        let mut list = parse(r#"{"name":"n","cniVersion":"1.0.0","plugins":[{"type":"a"}]}"#).unwrap();
        list.append(br#"{"type":"b"}"#).unwrap();
        assert_eq!(NetworkList::parse(&list.source, None).unwrap().plugins.len(), 2);
        assert!(list.append(b"{}").is_err());
    }
}
