//! What a whole node has, as `verify` reads it: its own namespace, and those of the pods that its agent has attached.

use std::os::unix::net::UnixStream;

use attach::{Record, Records};
use linux::{Inside, Netns};
use verify::{Namespace, Place, Snapshot, Unobserved};

use crate::observe::{Beside, observe};
use crate::settings::Settings;

/// A pod's namespace, held open.
struct Pod {
    place: Place,
    netns: Netns,
}

/// Observes the node where the caller is. Read only, and nothing is asked of the agent, but whether it listens: it may be gone.
pub fn observe_node(settings: &Settings) -> Snapshot {
    let node = settings.node_name.as_str();
    let own = Place::Node(node.to_owned());
    let mut snapshot = Snapshot { taken: daemon::log::now(), ..Snapshot::default() };
    let missing = |place: &Place, why: String| Unobserved { place: place.clone(), why };
    let inside = Inside::here();
    let records = match Records::new(settings.records()).sandboxes() {
        Ok(sandboxes) => sandboxes,
        Err(e) => {
            snapshot.unobserved.push(missing(&own, format!("the records of its pods: {e}")));
            Vec::new()
        }
    };
    let mut pods = Vec::new();
    for sandbox in records {
        // One that goes in this moment is no loss; one that nobody can read has no name.
        let Ok(Some(record)) = Records::new(settings.records()).read(&sandbox) else { continue };
        let place = Place::Pod(format!("{}/{}", record.pod.namespace, record.pod.name));
        match held(&record) {
            Ok(Some(netns)) => pods.push(Pod { place, netns }),
            Ok(None) => {}
            Err(why) => snapshot.unobserved.push(missing(&place, why)),
        }
    }
    let here = inside.netns();
    let beside: Vec<Beside<'_>> = pods.iter().map(|pod| (pod.place.clone(), &pod.netns)).collect();
    let agent = Some(UnixStream::connect(settings.socket()).is_ok());
    snapshot.namespaces.push(Namespace { agent, ..observe(&inside, own.clone(), None, &beside) });
    for pod in &pods {
        // A pod's links end on its node.
        let beside: Vec<Beside<'_>> = here.iter().map(|netns| (own.clone(), netns)).collect();
        let seen: Result<Namespace, _> = pod.netns.enter(|inside| observe(inside, pod.place.clone(), Some(node.to_owned()), &beside));
        match seen {
            Ok(seen) => snapshot.namespaces.push(seen),
            Err(e) => snapshot.unobserved.push(missing(&pod.place, e.to_string())),
        }
    }
    snapshot
}

/// The namespace of a record's pod, if it is still the same one.
fn held(record: &Record) -> Result<Option<Netns>, String> {
    let Some(netns) = Netns::open(&record.netns).map_err(|e| e.to_string())? else { return Ok(None) };
    let cookie = record.netns_cookie.map_or(Ok(None), |_| netns.cookie()).map_err(|e| e.to_string())?;
    // Whether it is of this boot does not matter: no namespace outlives one.
    Ok((netns.id() == record.netns_id && cookie == record.netns_cookie).then_some(netns))
}
