//! Keys that nobody reads. ADD passes over them, as the specification wants it (SPEC 1, "Configuration format"), so that a misspelt one does
//! its harm in silence: a pod at the bridge `cni0` because its network says `brigde`.

use json::{Object, Value};
use plugin::{About, DNS};

use crate::finding::{Finding, MOST_FINDINGS, under, under_any};

/// Keys of a list of plugins (SPEC 1).
const OF_LIST: &[&str] = &["cniVersion", "cniVersions", "name", "disableCheck", "disableGC", "loadOnlyInlinedPlugins", "plugins"];

/// Keys of every plugin (SPEC 1, SPEC 3).
const OF_PLUGIN: &[&str] = &["cniVersion", "cniVersions", "name", "type", "capabilities", "args", "runtimeConfig", "prevResult", "dns"];

/// Keys of every `ipam`.
const OF_IPAM: &[&str] = &["type", "name"];

/// What other implementations of a plugin have and this one does without, or has beside another key: no mistake.
const OF_OTHERS: &[(&str, &[&str])] = &[
    ("host-local", &["rangeStart", "rangeEnd", "gateway"]),
    (
        "whereabouts",
        &[
            "datastore",
            "etcd_host",
            "etcd_username",
            "etcd_password",
            "etcd_key_file",
            "etcd_cert_file",
            "etcd_ca_cert_file",
            "kubernetes",
            "leader_lease_duration",
            "leader_renew_deadline",
            "leader_retry_period",
            "log_file",
            "log_level",
            "reconciler_cron_expression",
            "sleep_for_race",
        ],
    ),
];

/// A key that may be there, and the keys of its objects; none: any.
type KeySchema = (&'static str, &'static [&'static str]);

/// Unknown keys of the object around the plugins; that of a single plugin is looked at as a plugin.
pub(crate) fn of_list(raw: &Object) -> Vec<Finding> {
    let known: Vec<KeySchema> = OF_LIST.iter().map(|key| (*key, &[][..])).collect();
    unknown(raw, "", "a list of plugins", &known, &[])
}

/// Unknown keys of a plugin, and of its `ipam` where that names a plugin whose keys are known.
pub(crate) fn of_plugin(raw: &Object, about: &'static About, ipam: Option<&'static About>, prefix: &str) -> Vec<Finding> {
    // A key with a dot is below the one before the dot: that one may be there, and has its own rows.
    let rows = about.keys.iter().filter(|key| !key.name.contains('.')).map(|key| (key.name, key.members));
    let outer = about.keys.iter().filter_map(|key| key.name.split_once('.')).map(|(outer, _)| (outer, &[][..]));
    let own = OF_PLUGIN.iter().map(|key| (*key, if *key == "dns" { DNS } else { &[] }));
    let known: Vec<KeySchema> = rows.chain(outer).chain(own).chain(others(about.name)).collect();
    let of_ipam: Vec<KeySchema> = ipam.into_iter().flat_map(ipam_keys).collect();
    let mut found = unknown(raw, prefix, about.name, &known, &of_ipam);
    if let (Some(ipam), Some(object)) = (ipam, raw.object("ipam")) {
        found.extend(unknown(object, &under(prefix, "ipam"), ipam.name, &of_ipam, &[]));
    }
    found
}

/// Capabilities that are nearly what a plugin has: its `runtimeConfig` would stay empty.
pub(crate) fn capabilities(raw: &Object, about: &About, ipam: Option<&About>, prefix: &str) -> Vec<Finding> {
    let known: Vec<&str> = about.capabilities.iter().chain(ipam.into_iter().flat_map(|ipam| ipam.capabilities)).copied().collect();
    let given = raw.object("capabilities").into_iter().flat_map(Object::iter).map(|(key, _)| key);
    let wrong = given.filter(|key| !known.contains(key)).filter_map(|key| Some((key, cni::nearest(key, known.iter().copied())?)));
    let finding = |(key, near): (&str, &str)| {
        let message = format!("{} has no capability {key:?}", about.name);
        Finding::error(under_any(&under(prefix, "capabilities"), key), message).at_key().help(format!("did you mean {near:?}?"))
    };
    wrong.map(finding).collect()
}

fn ipam_keys(about: &'static About) -> impl Iterator<Item = KeySchema> {
    let rows = about.keys.iter().filter_map(|key| Some((key.name.strip_prefix("ipam.")?, key.members)));
    rows.chain(OF_IPAM.iter().map(|key| (*key, &[][..]))).chain(others(about.name))
}

fn others(plugin: &str) -> impl Iterator<Item = KeySchema> {
    OF_OTHERS.iter().filter(move |(name, _)| *name == plugin).flat_map(|(_, keys)| keys.iter().map(|key| (*key, &[][..])))
}

/// `of_ipam` are keys that belong below `ipam`.
fn unknown(object: &Object, prefix: &str, reader: &str, known: &[KeySchema], of_ipam: &[KeySchema]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (key, value) in object.iter() {
        if found.len() >= MOST_FINDINGS {
            break;
        }
        let path = under_any(prefix, key);
        match known.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)) {
            Some((_, [])) => {}
            Some((name, members)) => in_members(value, &under_any(prefix, key), name, members, &mut found),
            None if is_remark(key) => {}
            None => {
                let of_ipam = of_ipam.iter().any(|(name, _)| name.eq_ignore_ascii_case(key));
                found.push(told(key, &path, reader, known.iter().map(|(name, _)| *name), of_ipam));
            }
        }
    }
    found
}

/// The objects that a key has: one, or those in its lists.
fn in_members(value: &Value, path: &str, reader: &str, members: &'static [&'static str], found: &mut Vec<Finding>) {
    match value {
        Value::Object(object) => {
            let known: Vec<KeySchema> = members.iter().map(|key| (*key, &[][..])).collect();
            found.extend(unknown(object, path, reader, &known, &[]));
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| in_members(value, &format!("{path}[{i}]"), reader, members, found));
        }
        _ => {}
    }
}

/// JSON has no comments: people write them into keys.
fn is_remark(key: &str) -> bool {
    key.starts_with(['_', '#', '/', '$'])
        || key.contains('/')
        || key.eq_ignore_ascii_case("comment")
        || key.eq_ignore_ascii_case("description")
}

fn told<'a>(key: &str, path: &str, reader: &str, known: impl Iterator<Item = &'a str> + Clone, of_ipam: bool) -> Finding {
    let message = format!("unknown key {key:?}: {reader} does not read it");
    match cni::nearest(key, known.clone()) {
        Some(near) => Finding::error(path, message).help(format!("did you mean {near:?}?")),
        None if of_ipam => Finding::error(path, message).help(format!("put {key:?} below \"ipam\"")),
        None => Finding::warning(path, message).help(format!("remove it, or use one of {}", cni::near_names(key, known))),
    }
    .at_key()
}
