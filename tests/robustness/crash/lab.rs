//! A lab whose `up` or `down` is killed: records, namespaces, several attachments of a pod.

use std::time::Duration;

use netloom_tests::{Host, Outcome, Traces, netloom, seen_within};

use crate::crash::network::Fate;
use crate::crash::points;

/// Pods that come up, one that fails and is undone, one that cannot be undone at first.
const MANIFESTS: &str = r#"
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: fast}
spec: {config: '{"cniVersion":"1.0.0","type":"macvlan","master":"fast0","ipam":{"type":"host-local","subnet":"10.2.0.0/24"}}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: noted, annotations: {k8s.v1.cni.cncf.io/resourceName: example.com/nic}}
spec: {config: '{"cniVersion":"1.0.0","type":"noter","capabilities":{"CNIDeviceInfoFile":true}}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: broken}
spec: {config: '{"cniVersion":"1.0.0","type":"broken"}'}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: stuck}
spec: {config: '{"cniVersion":"1.0.0","type":"stuck"}'}
---
apiVersion: v1
kind: Pod
metadata: {name: a, annotations: {k8s.v1.cni.cncf.io/networks:
  '[{"name":"noted"},{"name":"noted","deviceID":"d1"},{"name":"fast","default-route":["10.2.0.1"]}]'}}
---
apiVersion: v1
kind: Pod
metadata: {name: b, annotations: {k8s.v1.cni.cncf.io/networks: 'fast,broken'}}
---
apiVersion: v1
kind: Pod
metadata: {name: c, annotations: {k8s.v1.cni.cncf.io/networks: 'fast,stuck'}}
"#;

/// Stands for a device plugin too, which has told of a device by the time that the pod's second attachment gets it.
const NOTER: &str = r#"file=$(sed -n 's/.*"CNIDeviceInfoFile":"\([^"]*\)".*/\1/p')
[ $CNI_COMMAND = ADD ] || exit 0
dp=$(dirname "$file")/../dp
mkdir -p "$dp"
echo '{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/x"}}' >"$dp/example.com-nic-d1-device.json"
echo '{"cniVersion":"1.0.0"}'"#;

/// The points that nothing but a lab comes by, or with files that nothing else has.
pub(crate) const OWN: [&str; 8] = ["attach", "detach", "default-route", "device-", "file-", "lock", "netns-", "outcome"];

/// What `up` ends with when some of the pods could not be attached.
const SOME: i32 = 3;

/// A machine that a lab comes up and goes down on.
pub(crate) struct LabScene {
    pub(crate) host: Host,
    pub(crate) before: Traces,
}

// === impl LabScene ===

impl LabScene {
    pub(crate) fn new() -> Self {
        let host = Host::new();
        for (name, lines) in [
            ("noter", NOTER),
            ("broken", "cat >/dev/null; [ $CNI_COMMAND != ADD ]"),
            ("stuck", "cat >/dev/null; [ $CNI_COMMAND = DEL -a -e /run/mended ]"),
        ] {
            host.write(&format!("/run/bin/{name}"), &format!("#!/bin/sh\n{lines}\n"));
            host.sh("", &format!("chmod 755 /run/bin/{name}"));
        }
        host.write("/run/lab.yaml", MANIFESTS);
        let before = host.traces();
        LabScene { host, before }
    }

    /// `up` or `down`.
    pub(crate) fn call(&self, verb: &str, fate: Fate<'_>) -> Outcome {
        let mut command = self.command(verb);
        command.envs(fate.variable()).output().unwrap().into()
    }

    pub(crate) fn command(&self, verb: &str) -> std::process::Command {
        let mut command = self.host.command("", netloom());
        command.args(["lab", verb]).env_remove("CNI_PATH");
        if verb == "up" {
            command.args(["--cni-path", "/run/bin", "/run/lab.yaml"]);
        }
        command
    }

    pub(crate) fn up(&self) {
        let outcome = self.call("up", Fate::Lives);
        assert_eq!(outcome.code, SOME, "{outcome:?}");
    }

    /// From here on every DEL can succeed.
    pub(crate) fn mend(&self) {
        self.host.write("/run/mended", "");
    }

    /// The points that a call comes by; the lab is down afterwards.
    pub(crate) fn trace(&self, verb: &str) -> Vec<String> {
        if verb == "down" {
            self.up();
            self.mend();
        }
        self.call(verb, Fate::Traced);
        let points = points::traced(&self.host);
        if verb == "up" {
            self.recover("a traced up");
        }
        points
    }

    pub(crate) fn dies(&self, verb: &str, point: &str) {
        let outcome = self.call(verb, Fate::Dies(point));
        assert_eq!(outcome.code, -1, "{verb} was to be killed at {point}, and ended: {outcome:?}");
    }

    /// What a person does then: takes the lab down. One that was killed before it was written down is none: its name can
    /// be used.
    pub(crate) fn recover(&self, when: &str) {
        self.mend();
        let outcome = self.down();
        if outcome.code != 0 {
            assert!(outcome.stderr.contains("there is no lab"), "{when}: {outcome:?}");
            self.up();
            let outcome = self.call("down", Fate::Lives);
            assert_eq!(outcome.code, 0, "{when}: {outcome:?}");
        }
        self.clean(when);
    }

    /// An executable that the killed call has started may still be at work in a node: it is told of, and ends soon.
    fn down(&self) -> Outcome {
        let is_free = |outcome: &Outcome| !outcome.stderr.contains("still in use: process");
        seen_within(Duration::from_secs(120), || self.call("down", Fate::Lives), is_free).unwrap_or_else(|last| last)
    }

    /// Nothing is left of a lab that is down.
    pub(crate) fn clean(&self, when: &str) {
        std::fs::remove_file(self.host.path("/run/mended")).unwrap();
        self.host.expect_traces(&self.before, when);
    }
}
