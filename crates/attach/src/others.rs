//! What other programs have attached on the same node: who collects what a network has left behind leaves that alone.
//!
//! ```text
//!   /var/lib/netloom/sandboxes/CONTAINER.json       the agent                              as long as it is there
//!   /var/lib/cni/netloom/NETWORK/CONTAINER.json     `netloom` without an agent             as long as it is there
//!   /var/lib/cni/results/NETWORK-CONTAINER-IFNAME   runtimes, as the reference library     as long as its namespace is there
//! ```
//!
//! Networks of two programs may have the same name, or names whose links look alike. Both would take the other's containers for gone.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use chain::{Cache, Cached};
use cni::{AttachmentId, CniError, Code, ContainerId, NetworkList, NetworkName};
use linux::Netns;
use plugin::ITSELF;

use crate::{Record, RecordError, Records};

/// Where the agent keeps its records, unless its settings say otherwise.
pub const AGENT_RECORDS: &str = "/var/lib/netloom/sandboxes";

/// Where `netloom` keeps its records without an agent, in a directory for each network, unless its configuration says otherwise.
pub const PLUGIN_RECORDS: &str = "/var/lib/cni/netloom";

/// What other programs have attached.
#[derive(Debug, Default)]
pub struct Others {
    /// What stays.
    pub attachments: Vec<AttachmentId>,
    /// What cannot be read: what it says would stay as well.
    pub unreadable: Vec<CniError>,
}

// === impl Others ===

impl Others {
    /// The attachments of the networks that are meant.
    ///
    /// # Errors
    /// Something cannot be read: then nobody knows what may be freed.
    pub fn on(mut self, is_meant: impl Fn(&NetworkName) -> bool) -> Result<Vec<AttachmentId>, CniError> {
        self.attachments.retain(|id| is_meant(&id.network));
        CniError::first_of(self.unreadable).map_or(Ok(self.attachments), Err)
    }

    /// Adds what stands in the records of one directory; a missing one has none.
    pub fn add_records(&mut self, dir: &Path) {
        let records = Records::new(dir.to_owned());
        let sandboxes = records.sandboxes().unwrap_or_else(|e| {
            self.unreadable.push(e.into());
            Vec::new()
        });
        sandboxes.iter().for_each(|sandbox| self.add_record(&records, sandbox));
    }

    fn add_record(&mut self, records: &Records, sandbox: &ContainerId) {
        match records.read(sandbox) {
            Ok(Some(record)) => self.attachments.extend(attachments(&record)),
            // Links and rules went with the power.
            Ok(None) | Err(RecordError::Lost { .. }) => {}
            Err(e) => self.unreadable.push(e.into()),
        }
    }

    /// The same of every directory in this one.
    pub fn add_records_below(&mut self, dir: &Path) {
        let entries = match linux::file::entries(dir) {
            Err(e) if e.kind() == ErrorKind::NotFound => return,
            other => other,
        };
        match entries {
            Ok(entries) => {
                entries.into_iter().map(|entry| dir.join(entry.name)).filter(|path| path.is_dir()).for_each(|path| self.add_records(&path));
            }
            Err(e) => self.unreadable.push(CniError::new(Code::IO, format!("list {}: {e}", dir.display()))),
        }
    }

    /// Adds what runtimes have kept below a directory of containers that are still there. What they have attached by us is in our
    /// records: those that the caller adds, or those of the directory that the network's configuration names.
    pub fn add_cached(&mut self, dir: &Path) {
        let (cached, unreadable) = Cache::new(dir).of_this_boot();
        self.unreadable.extend(unreadable.into_iter().map(CniError::from));
        for cached in cached.into_iter().filter(is_there) {
            match by_us(&cached) {
                None => self.attachments.push(cached.id),
                Some(dirs) => {
                    for dir in dirs {
                        self.add_record(&Records::new(dir.join(cached.id.network.as_str())), &cached.id.container);
                    }
                }
            }
        }
    }
}

/// The attachments of a sandbox.
fn attachments(record: &Record) -> impl Iterator<Item = AttachmentId> + '_ {
    record.steps.iter().map(|step| step.id(&record.sandbox))
}

/// Whether a container's namespace is where it was, as far as that can be told.
fn is_there(cached: &Cached) -> bool {
    cached.netns.is_empty() || !matches!(Netns::open(Path::new(&cached.netns)), Ok(None))
}

/// The directories that the configuration of an attachment names for records (`cniDir`); `None` if it is not by us.
fn by_us(cached: &Cached) -> Option<Vec<PathBuf>> {
    let list = NetworkList::parse(&cached.config, Some(&cached.id.network)).ok()?;
    let ours = || list.plugins.iter().filter(|plugin| ITSELF.contains(&plugin.kind.as_str()));
    ours().next()?;
    Some(ours().filter_map(|plugin| plugin.raw().str("cniDir")).filter(|dir| !dir.is_empty()).map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use chain::{MadeBy, Runtime};
    use cni::{AddResult, CniArgs};

    use super::*;
    use crate::{PodView, ReportedDevice, State, Step};

    /// A result that a runtime keeps of a container that is gone keeps nothing from being freed.
    #[test]
    fn cached_results_count_while_their_namespace_is_there() {
        let dir = std::env::temp_dir().join(format!("netloom-others-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("results")).unwrap();
        let cached = |network: &str, container: &str, netns: &str, kind: &str| {
            let own = dir.join("own").display().to_string();
            let config = format!(r#"{{"cniVersion":"1.0.0","name":"{network}","plugins":[{{"type":"{kind}","cniDir":"{own}"}}]}}"#);
            let list = NetworkList::parse(config.as_bytes(), None).unwrap();
            let (container, ifname) = (container.parse().unwrap(), "eth0".parse().unwrap());
            let id = AttachmentId { network: network.parse().unwrap(), container, ifname };
            let netns = Some(netns.into()).filter(|netns: &PathBuf| !netns.as_os_str().is_empty());
            let (container, ifname) = (id.container.clone(), id.ifname.clone());
            let (args, capability_args) = (CniArgs::default(), json::Object::new());
            let runtime = Runtime { container, ifname, netns, args, capability_args };
            Cache::new(&dir).write(&id, &list, &runtime, &AddResult::default(), &MadeBy::default()).unwrap();
        };
        cached("pods", "lives", "/proc/self/ns/net", "bridge");
        cached("pods", "untold", "", "bridge");
        cached("pods", "gone", "/nonexistent/netns", "bridge");
        cached("cluster", "ours", "/proc/self/ns/net", "netloom");
        // It has a record where its configuration says.
        cached("elsewhere", "kept", "/proc/self/ns/net", "netloom");
        let list = NetworkList::parse(br#"{"cniVersion":"1.0.0","name":"blue","type":"bridge"}"#, None).unwrap();
        let step = Step {
            name: "blue".to_owned(),
            default: false,
            list,
            ifname: "net1".parse().unwrap(),
            capability_args: json::Object::new(),
            default_route: None,
            device: ReportedDevice::default(),
            made_by: MadeBy::default(),
            took: None,
            state: State::Intended,
        };
        let record = Record {
            sandbox: "kept".parse().unwrap(),
            boot: linux::boot_id().unwrap(),
            netns: "/proc/self/ns/net".into(),
            netns_id: Netns::current().unwrap().id(),
            netns_cookie: None,
            made_at: None,
            pod: PodView::default(),
            args: CniArgs::default(),
            steps: vec![step],
        };
        let elsewhere = Records::new(dir.join("own/elsewhere"));
        elsewhere.write(&record).unwrap();
        let mut others = Others::default();
        // Not ours to judge: another program's file, a bare result, and what is being written.
        for (name, text) in [("pods-x-eth0", "{}"), ("pods-y-eth0", r#"{"ips":[]}"#), (".pods-z-eth0.tmp", "{")] {
            std::fs::write(dir.join("results").join(name), text).unwrap();
        }
        others.add_cached(&dir);
        let mut names: Vec<String> = others.attachments.iter().map(|id| format!("{} {}", id.network, id.container)).collect();
        names.sort_unstable();
        let kept = ["blue kept", "pods lives", "pods untold"].map(str::to_owned).to_vec();
        assert_eq!((names, others.unreadable), (kept, Vec::new()));
        // A file that is cut off is the only trace of a container that may run.
        let file = dir.join("results/pods-lives-eth0");
        let whole = std::fs::read_to_string(&file).unwrap();
        for broken in ["", &whole[..whole.len() / 2], "[]", r#"{"kind":"cniCacheV1"}"#, &whole.replace("lives", "../x")] {
            std::fs::write(&file, broken).unwrap();
            let mut others = Others::default();
            others.add_cached(&dir);
            let errors: Vec<String> = others.unreadable.iter().map(ToString::to_string).collect();
            assert!(errors.len() == 1 && errors[0].contains("pods-lives-eth0"), "{broken}: {errors:?}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
