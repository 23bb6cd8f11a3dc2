//! Attachments as GC names them: those that are valid, under a key of the plugin's configuration.

use json::{Object, Value};

use crate::{AttachmentId, CniError, Config, ContainerId, IfName, NetworkName};

/// The key of the specification (SPEC 4, "GC").
const VALID: &str = "cni.dev/valid-attachments";
/// What 1.1.0 called it at first; the reference library sends both.
const VALID_AT_FIRST: &str = "cni.dev/attachments";

// === impl AttachmentId ===

impl AttachmentId {
    /// Reads a list of `{"containerID", "ifname"}` of one network; `place` is where it stands, for the error.
    ///
    /// # Errors
    /// Code 7 naming the element.
    pub fn read_list(list: &[Value], network: &NetworkName, place: &str) -> Result<Vec<Self>, CniError> {
        let one = |(i, item): (usize, &Value)| {
            let text = |key| item.as_object().and_then(|o: &Object| o.str(key)).unwrap_or_default();
            let within = |e: crate::NameError| CniError::invalid(&format!("{place}[{i}]"), e);
            let container = ContainerId::parse(text("containerID")).map_err(within)?;
            let ifname = IfName::parse(text("ifname")).map_err(within)?;
            Ok(AttachmentId { network: network.clone(), container, ifname })
        };
        list.iter().enumerate().map(one).collect()
    }

    /// What `object`, a configuration for GC, says is valid.
    ///
    /// # Errors
    /// Code 7 if it says nothing: nothing is freed on missing information.
    pub fn valid_of(object: &Object, network: &NetworkName) -> Result<Vec<Self>, CniError> {
        let named = [VALID, VALID_AT_FIRST].into_iter().find_map(|key| Some((key, object.get(key)?)));
        match named {
            Some((key, Value::Array(list))) => Self::read_list(list, network, key),
            _ => Err(CniError::invalid(VALID, "GC needs the list of attachments that are to be kept")),
        }
    }
}

impl Config {
    /// The configuration that GC is given.
    pub fn with_valid(&self, valid: &[AttachmentId]) -> Config {
        let one = |id: &AttachmentId| {
            let mut o = Object::new();
            o.set("containerID", id.container.as_str());
            o.set("ifname", id.ifname.as_str());
            o
        };
        let list: Vec<Object> = valid.iter().map(one).collect();
        self.with(VALID, list.clone()).with(VALID_AT_FIRST, list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_either_key() {
        let (config, _) = Config::parse(br#"{"name":"n","cniVersion":"1.1.0"}"#).unwrap();
        let id = |container: &str| AttachmentId {
            network: config.network.clone(),
            container: container.parse().unwrap(),
            ifname: "eth0".parse().unwrap(),
        };
        let both = config.with_valid(&[id("a"), id("b")]);
        let read = |object: &Object| AttachmentId::valid_of(object, &config.network);
        assert_eq!(read(both.raw()), Ok(vec![id("a"), id("b")]));
        for key in [VALID, VALID_AT_FIRST] {
            let mut one = both.raw().clone();
            one.remove(key);
            assert_eq!(read(&one), Ok(vec![id("a"), id("b")]));
        }
        // The key of the specification counts, and an empty list is a list.
        assert_eq!(read(config.with_valid(&[id("a")]).with(VALID, Vec::<Object>::new()).raw()), Ok(vec![]));
        for missing in [config.clone(), config.with(VALID, Value::Null), config.with(VALID, "all")] {
            assert!(read(missing.raw()).unwrap_err().msg.contains("that are to be kept"));
        }
        assert!(read(config.with(VALID_AT_FIRST, vec![Value::Null]).raw()).unwrap_err().msg.starts_with("cni.dev/attachments[0]: "));
    }
}
