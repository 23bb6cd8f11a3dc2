//! How a result is written in each version, byte for byte as the reference library writes it: 1.x with keys in
//! alphabetical order, older versions in the order of its structs, indented by four, without a final newline.

use ipnet::IpNet;
use json::{Object, Value};

use crate::{AddResult, CniError, Code, Dns, Family, Interface, IpConfig, Route, Version};

/// A result that a version cannot express.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// 0.1.0 and 0.2.0 have interfaces and routes only where there is an address.
    #[error("cannot convert: no valid IP addresses: cniVersion {0} cannot express a result without an address; use 0.3.0 or later")]
    NoAddress(Version),
}

impl From<ConvertError> for CniError {
    fn from(e: ConvertError) -> Self {
        CniError::new(Code::INCOMPATIBLE_VERSION, e.to_string())
    }
}

impl AddResult {
    /// The JSON text of this result in a version.
    ///
    /// # Errors
    /// [`ConvertError`] if that version cannot express it.
    pub fn print(&self, version: Version) -> Result<String, ConvertError> {
        Ok(json::indented(&self.to_value(version)?, 4))
    }

    /// This result as JSON, as it stands in `prevResult`.
    ///
    /// # Errors
    /// [`ConvertError`] if that version cannot express it.
    pub fn to_value(&self, version: Version) -> Result<Value, ConvertError> {
        let object = match version.family() {
            Family::V0_2 => self.v0_2(version)?,
            Family::V0_4 => self.v0_4(version),
            Family::V1 => self.v1(version),
        };
        Ok(Value::Object(object))
    }

    fn v1(&self, version: Version) -> Object {
        let mut o = Object::new();
        o.set("cniVersion", version.as_str());
        if !self.dns.is_empty() {
            o.set("dns", dns(&self.dns, true));
        }
        set_list(&mut o, "interfaces", &self.interfaces, interface_v1);
        set_list(&mut o, "ips", &self.ips, ip_v1);
        set_list(&mut o, "routes", &self.routes, |r| route(r, true));
        o
    }

    fn v0_4(&self, version: Version) -> Object {
        let mut o = Object::new();
        o.set("cniVersion", version.as_str());
        set_list(&mut o, "interfaces", &self.interfaces, interface_v0_4);
        set_list(&mut o, "ips", &self.ips, ip_v0_4);
        set_list(&mut o, "routes", &self.routes, |r| route(r, false));
        o.set("dns", dns(&self.dns, false));
        o
    }

    /// One address of each family, each with its family's routes.
    fn v0_2(&self, version: Version) -> Result<Object, ConvertError> {
        // With nothing to lose there is nothing to refuse: a plugin of these versions may have answered so itself.
        if self.ips.is_empty() && !(self.interfaces.is_empty() && self.routes.is_empty()) {
            return Err(ConvertError::NoAddress(version));
        }
        let mut o = Object::new();
        o.set("cniVersion", version.as_str());
        for (key, v4) in [("ip4", true), ("ip6", false)] {
            let Some(ip) = self.first(v4) else { continue };
            let mut config = Object::new();
            config.set("ip", ip.address.to_string());
            set_text(&mut config, "gateway", ip.gateway);
            let routes: Vec<Route> = self.routes.iter().filter(|r| is_v4(&r.dst) == v4).map(|r| Route::new(r.dst, r.gw)).collect();
            set_list(&mut config, "routes", &routes, |r| route(r, false));
            o.set(key, config);
        }
        o.set("dns", dns(&self.dns, false));
        Ok(o)
    }
}

fn is_v4(net: &IpNet) -> bool {
    matches!(net, IpNet::V4(_))
}

fn set_list<T>(o: &mut Object, key: &str, list: &[T], one: impl Fn(&T) -> Object) {
    if !list.is_empty() {
        o.set(key, list.iter().map(one).collect::<Vec<_>>());
    }
}

fn set_text(o: &mut Object, key: &str, text: Option<impl ToString>) {
    if let Some(text) = text.map(|t| t.to_string()).filter(|t| !t.is_empty()) {
        o.set(key, text);
    }
}

fn interface_v1(i: &Interface) -> Object {
    let mut o = Object::new();
    set_text(&mut o, "mac", Some(&i.mac));
    if i.mtu != 0 {
        o.set("mtu", u64::from(i.mtu));
    }
    o.set("name", i.name.as_str());
    set_text(&mut o, "pciID", Some(&i.pci_id));
    set_text(&mut o, "sandbox", Some(&i.sandbox));
    set_text(&mut o, "socketPath", Some(&i.socket_path));
    o
}

fn interface_v0_4(i: &Interface) -> Object {
    let mut o = Object::new();
    o.set("name", i.name.as_str());
    set_text(&mut o, "mac", Some(&i.mac));
    set_text(&mut o, "sandbox", Some(&i.sandbox));
    o
}

fn ip_v1(ip: &IpConfig) -> Object {
    let mut o = Object::new();
    o.set("address", ip.address.to_string());
    set_text(&mut o, "gateway", ip.gateway);
    if let Some(index) = ip.interface {
        o.set("interface", index);
    }
    o
}

fn ip_v0_4(ip: &IpConfig) -> Object {
    let mut o = Object::new();
    o.set("version", if is_v4(&ip.address) { "4" } else { "6" });
    if let Some(index) = ip.interface {
        o.set("interface", index);
    }
    o.set("address", ip.address.to_string());
    set_text(&mut o, "gateway", ip.gateway);
    o
}

fn route(r: &Route, alphabetical: bool) -> Object {
    let mut pairs: Vec<(&str, Value)> = vec![("dst", r.dst.to_string().into())];
    pairs.extend(r.gw.map(|gw| ("gw", gw.to_string().into())));
    pairs.extend(r.mtu.map(|n| ("mtu", u64::from(n).into())));
    pairs.extend(r.advmss.map(|n| ("advmss", u64::from(n).into())));
    pairs.extend(r.priority.map(|n| ("priority", u64::from(n).into())));
    pairs.extend(r.table.map(|n| ("table", u64::from(n).into())));
    pairs.extend(r.scope.map(|n| ("scope", u64::from(n).into())));
    if alphabetical {
        pairs.sort_by_key(|(key, _)| *key);
    }
    pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
}

fn dns(d: &Dns, alphabetical: bool) -> Object {
    let mut o = Object::new();
    let list = |o: &mut Object, key: &str, items: &[String]| {
        if !items.is_empty() {
            o.set(key, items.iter().map(String::as_str).collect::<Vec<_>>());
        }
    };
    if alphabetical {
        set_text(&mut o, "domain", Some(&d.domain));
        list(&mut o, "nameservers", &d.nameservers);
        list(&mut o, "options", &d.options);
    } else {
        list(&mut o, "nameservers", &d.nameservers);
        set_text(&mut o, "domain", Some(&d.domain));
    }
    list(&mut o, "search", &d.search);
    if !alphabetical {
        list(&mut o, "options", &d.options);
    }
    o
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> AddResult {
        let text = r#"{"cniVersion":"1.1.0","interfaces":[{"name":"br0"},{"name":"eth0","mac":"02:00:00:00:00:01","mtu":1450,"sandbox":"/run/netns/a"}],
            "ips":[{"interface":1,"address":"10.1.0.2/16","gateway":"10.1.0.1"},{"interface":1,"address":"fd00::2/64"}],
            "routes":[{"dst":"0.0.0.0/0","gw":"10.1.0.1","priority":7},{"dst":"::/0"}],"dns":{"nameservers":["1.1.1.1"]}}"#;
        AddResult::parse(text.as_bytes(), Version::V0_1_0).unwrap().0
    }

    #[test]
    fn every_version_that_can_hold_it_reads_back_what_it_printed() {
        for version in Version::ALL {
            let printed = sample().print(*version).unwrap();
            let (back, stated) = AddResult::parse(printed.as_bytes(), Version::V0_1_0).unwrap();
            assert_eq!(stated, *version);
            assert_eq!(back.print(*version).unwrap(), printed);
            assert_eq!(back.ips.len(), 2);
        }
    }

    #[test]
    fn a_1_0_0_result_is_alphabetical() {
        let printed = sample().print(Version::V1_0_0).unwrap();
        let order: Vec<usize> =
            ["cniVersion", "dns", "interfaces", "ips", "routes"].iter().map(|k| printed.find(&format!("\"{k}\"")).unwrap()).collect();
        assert!(order.is_sorted(), "{printed}");
        assert!(printed.contains("\"mtu\": 1450"));
    }

    #[test]
    fn an_old_version_needs_an_address() {
        assert!(AddResult { ips: Vec::new(), ..sample() }.print(Version::V0_2_0).is_err());
        assert_eq!(AddResult::default().print(Version::V0_2_0).unwrap(), "{\n    \"cniVersion\": \"0.2.0\",\n    \"dns\": {}\n}");
        assert_eq!(AddResult::default().print(Version::V0_4_0).unwrap(), "{\n    \"cniVersion\": \"0.4.0\",\n    \"dns\": {}\n}");
        assert_eq!(AddResult::default().print(Version::V1_1_0).unwrap(), "{\n    \"cniVersion\": \"1.1.0\"\n}");
    }

    #[test]
    fn a_bad_result_names_the_place() {
        let parse = |text: &str| AddResult::parse(text.as_bytes(), Version::V1_0_0).unwrap_err().to_string();
        assert!(parse(r#"{"ips":[{"address":"10.0.0.1"}]}"#).contains("ips[0].address: \"10.0.0.1\""));
        assert!(parse(r#"{"routes":[{}]}"#).contains("routes[0].dst"));
        assert!(parse(r#"{"cniVersion":"9.9.9"}"#).contains("9.9.9"));
        assert!(parse("[]").contains("expected an object, found a list"));
        assert_eq!(AddResult::parse(b"null", Version::V1_0_0).unwrap().0, AddResult::default());
    }
}
