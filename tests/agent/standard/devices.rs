//! Devices: from the kubelet to the plugin, and from the plugin to the pod's status.

use serde_json::{Value, json};

use crate::standard::kubelet::Kubelet;
use crate::standard::scene::{NETWORKS, Node, ask, definition};

/// `/var/run` is a link to `/run`.
const DEVINFO: &str = "/run/k8s.cni.cncf.io/devinfo";
const RESOURCE: &str = "k8s.v1.cni.cncf.io/resourceName";

/// Keeps its standard input, and what it was told of its device, as `/run/given/INTERFACE.VERB`; a file of that interface in
/// `/run/tells` is what it tells of its device itself.
const CARRIER: &str = r#"mkdir -p /run/given
as=/run/given/$CNI_IFNAME.$CNI_COMMAND
cat >$as
file=$(sed -n 's/.*"CNIDeviceInfoFile":"\([^"]*\)".*/\1/p' $as)
[ ! -f "$file" ] || cp "$file" $as.info
[ $CNI_COMMAND = ADD ] || exit 0
[ -z "$file" ] || [ ! -f /run/tells/$CNI_IFNAME ] || cp /run/tells/$CNI_IFNAME "$file"
echo '{"cniVersion":"1.0.0","interfaces":[{"name":"'$CNI_IFNAME'","sandbox":"'$CNI_NETNS'"}]}'
"#;

fn given(node: &Node, file: &str) -> Value {
    let path = node.host.path("/run/given").join(file);
    serde_json::from_str(&std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"))).unwrap()
}

fn node(name: &str) -> Node {
    let node = Node::new(name);
    node.plugin("carrier", CARRIER);
    let config = json!({"cniVersion": "1.0.0", "type": "carrier", "capabilities": {"deviceID": true, "CNIDeviceInfoFile": true}});
    definition(name, "sriov", &config, &json!({RESOURCE: "example.com/vf"}));
    node
}

fn info(address: &str) -> Value {
    json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": address, "rdma-device": "mlx5_2"}})
}

/// The n-th attachment of a resource gets the n-th device; what the device plugin says of it is copied for the network's
/// plugins, which may say more; the status has what was said last, and DEL leaves no file.
#[test]
fn s44_s61_s62_s66_s67_s68_a_device_reaches_the_plugin_and_the_status() {
    let node = node("devices");
    let pod = node.pod("web", "sriov,sriov");
    let _kubelet = Kubelet::start(
        &node.host,
        "devices",
        "web",
        &[("example.com/gpu", "gpu-0"), ("example.com/vf", "0000:18:02.5"), ("example.com/vf", "0000:18:02.1")],
    );
    for id in ["0000:18:02.5", "0000:18:02.1"] {
        node.host.write(&format!("{DEVINFO}/dp/example.com-vf-{id}-device.json"), &info(id).to_string());
    }
    // The second one knows better.
    let memif = json!({"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "path": "/run/m.sock", "mode": "ethernet"}});
    node.host.write("/run/tells/net2", &memif.to_string());
    pod.add();
    for (interface, id) in [("net1", "0000:18:02.5"), ("net2", "0000:18:02.1")] {
        let added = given(&node, &format!("{interface}.ADD"));
        assert_eq!(
            (&added["deviceID"], &added["pciBusID"], &added["runtimeConfig"]["deviceID"]),
            (&json!(id), &json!(id), &json!(id)),
            "{added}"
        );
        assert_eq!(given(&node, &format!("{interface}.ADD.info")), info(id));
    }
    assert_eq!(pod.entry("net1")["device-info"], info("0000:18:02.5"));
    assert_eq!(pod.entry("net2")["device-info"], memif);
    assert_eq!(pod.entry("eth0").get("device-info"), None);
    assert_eq!(node.host.list(&format!("{DEVINFO}/cni")).len(), 2);
    pod.del();
    // The same tuple and the same device, and no file is left.
    assert_eq!(given(&node, "net2.DEL")["runtimeConfig"]["deviceID"], "0000:18:02.1");
    assert_eq!(node.host.list(&format!("{DEVINFO}/cni")), [""; 0]);
}

#[test]
fn s63_s64_s65_other_kinds_of_devices_are_published_too() {
    let node = node("kinds");
    let pod = node.pod("web", "sriov,sriov,sriov");
    let _kubelet = Kubelet::start(&node.host, "kinds", "web", &[("example.com/vf", "a"), ("example.com/vf", "b"), ("example.com/vf", "c")]);
    let told = [
        json!({"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0", "pci-address": "0000:65:00.3"}}),
        json!({"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "client", "path": "/run/vhost.sock"}}),
        json!({"type": "memif", "version": "1.1.0", "memif": {"role": "master", "path": "/run/m.sock", "mode": "ip"}}),
    ];
    for (told, id) in told.iter().zip(["a", "b", "c"]) {
        node.host.write(&format!("{DEVINFO}/dp/example.com-vf-{id}-device.json"), &told.to_string());
    }
    pod.add();
    for (told, interface) in told.iter().zip(["net1", "net2", "net3"]) {
        assert_eq!(pod.entry(interface)["device-info"], *told, "{interface}");
    }
    pod.del();
}

/// Without the kubelet's socket its checkpoint is read.
#[test]
fn s68_without_the_kubelets_socket_its_checkpoint_tells_the_device() {
    let node = node("checkpoint");
    let pod = node.pod("web", "sriov");
    let entry = json!({"PodUID": pod.uid, "ContainerName": "c", "ResourceName": "example.com/vf", "DeviceIDs": {"-1": ["0000:03:02.7"]}, "AllocResp": ""});
    let checkpoint = json!({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1});
    node.host.write("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", &checkpoint.to_string());
    pod.add();
    assert_eq!(given(&node, "net1.ADD")["deviceID"], "0000:03:02.7");
    // Nothing is known of it.
    assert_eq!(pod.entry("net1").get("device-info"), None);
}

/// A pod that selects more networks of a resource than it has devices of it gets a reason, and not a network without.
#[test]
fn s68_too_few_devices_fail_the_pod() {
    let node = node("toofew");
    let pod = node.pod("web", "sriov,sriov");
    let _kubelet = Kubelet::start(&node.host, "toofew", "web", &[("example.com/vf", "a")]);
    let error = pod.refused();
    assert!(error.to_string().contains("example.com/vf"), "{error}");
}

/// Without device plugins: the device is allocated by a claim, and its driver's slice says what a network needs of it.
#[test]
fn s68_a_device_of_a_resource_claim_reaches_the_plugin() {
    let node = node("claim");
    let attributes =
        json!({"k8s.cni.cncf.io/deviceID": {"string": "0000:41:00.6"}, "k8s.cni.cncf.io/resourceName": {"string": "example.com/vf"}});
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "claim-nics"}, "spec": {
        "driver": "nic.example.com", "nodeName": "claim", "pool": {"name": "claim", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "nic-6", "attributes": attributes}]}});
    ask("POST", "/apis/resource.k8s.io/v1/resourceslices", &slice);
    let request = json!({"name": "net", "exactly": {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 1}});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "vf"}, "spec": {"devices": {"requests": [request]}}});
    let path = "/apis/resource.k8s.io/v1/namespaces/claim/resourceclaims";
    ask("POST", path, &claim);
    let result = json!({"request": "net", "driver": "nic.example.com", "pool": "claim", "device": "nic-6"});
    ask("PATCH", &format!("{path}/vf/status"), &json!({"status": {"allocation": {"devices": {"results": [result]}}}}));
    let spec = json!({"resourceClaims": [{"name": "c", "resourceClaimName": "vf"}]});
    let pod = node.pod_in("claim", "web", &json!({NETWORKS: "sriov"}), &spec);
    pod.add();
    assert_eq!(given(&node, "net1.ADD")["deviceID"], "0000:41:00.6");
    pod.del();
}
