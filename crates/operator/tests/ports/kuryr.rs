//! The same pods through Kuryr's own controller and through ours, before one Neutron and one API server: requests and objects side by side, each
//! reads what the other one wrote, and every difference stands in docs/internals/kuryr.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testbed::openstack::KuryrController;

use crate::between::{Act, Between};
use crate::scene::{NODE, Scene, run, until};

/// The page with the tables.
const PAGE: &str = include_str!("../../../../docs/internals/kuryr.md");

/// How many pods there are, of how many networks each.
const PODS: usize = 10;
const NETWORKS: usize = 3;

/// Requests by method and path, without IDs and queries.
type Requests = BTreeMap<String, usize>;

/// A cluster whose pods have ports of three networks, the default one among them, and what both controllers are started with.
struct Beside {
    scene: Scene,
    group: String,
    dir: PathBuf,
}

impl Beside {
    fn new() -> Self {
        // Kuryr lists everybody's ports, page by page, and ends where another test has deleted one meanwhile. The first one is the default network's.
        let mut scene = Scene::new(&[("blue", "10.82.0.0/24"), ("green", "10.83.0.0/24"), ("red", "10.81.0.0/24")]);
        let group = json!({"security_group": {"name": "web", "project_id": scene.project}});
        let group = scene.neutron.ask("POST", "security-groups", &group).unwrap()["security_group"]["id"].as_str().unwrap().to_owned();
        scene.store.put(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})).unwrap();
        let defaults = json!({"project": scene.project, "podSubnet": scene.subnets["blue"], "podSecurityGroups": [group]});
        scene.more = json!({"file": {"defaultNetwork": "port"}, "openstack": {"neutronDefaults": defaults}, "neutron": {"timeout": 600}});
        let dir = std::env::temp_dir().join(format!("netloom-beside-{}", scene.project));
        std::fs::create_dir_all(&dir).unwrap();
        Beside { scene, group, dir }
    }

    /// Kuryr's controller before this Neutron and this API server.
    fn kuryr(&self, neutron: &str, api: &str, pool_driver: &str) -> KuryrController {
        let Scene { project, subnets, .. } = &self.scene;
        let text = format!(
            "[kubernetes]\napi_root = {api}\ntoken_file =\nssl_verify_server_crt = False\nmulti_vif_drivers = npwg_multiple_interfaces\n\
             vif_pool_driver = {pool_driver}\n[neutron]\nauth_type = none\nendpoint = {neutron}\n\
             [neutron_defaults]\nproject = {project}\npod_subnet = {}\npod_security_groups = {}\novs_bridge = br-int\n",
            subnets["blue"], self.group
        );
        let conf = self.dir.join("kuryr.conf");
        std::fs::write(&conf, text).unwrap();
        let cache = || Path::new(&std::env::var("HOME").unwrap()).join(".cache/netloom-kuryr");
        let libraries = std::env::var_os("NETLOOM_KURYR").map_or_else(cache, Into::into);
        KuryrController::start(&libraries, &conf).unwrap()
    }

    fn add_pods(&self) -> Vec<String> {
        let names: Vec<String> = (0..PODS).map(|n| format!("p{n}")).collect();
        names.iter().for_each(|name| self.scene.pod(name, NODE, "green,red"));
        names
    }

    fn has_all(&self, name: &str, is_active: bool) -> bool {
        let vifs = self.scene.vifs(name);
        vifs.len() == NETWORKS && vifs.iter().all(|(_, active)| *active || !is_active)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

/// `GET subnets/ID`, how often. A list counts once: this Neutron has five ports on a page.
fn counted(between: &Between, before: usize) -> Requests {
    let mut all = Requests::new();
    let is_next_page = |request: &&String| request.lines().next().is_some_and(|line| line.contains("marker="));
    for request in between.requests("").iter().skip(before).filter(|request| !is_next_page(request)) {
        let mut words = request.split_whitespace();
        let (method, path) = (words.next().unwrap(), words.next().unwrap().split('?').next().unwrap());
        let path = path.trim_start_matches("/v2.0/");
        let id = |part: &str| if part.len() == 36 && part.contains('-') { "ID".to_owned() } else { part.to_owned() };
        let path = path.split('/').map(id).collect::<Vec<_>>().join("/");
        *all.entry(format!("{method} {path}")).or_default() += 1;
    }
    all
}

/// The ports that requests ask for, one by one or many at once, by their networks; of one pod.
fn wanted(between: &Between, uid: &str) -> BTreeMap<String, Value> {
    let bodies = between.requests("POST /v2.0/ports").into_iter().map(|request| {
        let (_, body) = request.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<Value>(body).unwrap()
    });
    let ports = bodies.flat_map(|body| body["ports"].as_array().cloned().unwrap_or_else(|| vec![body["port"].clone()]));
    let of_pod = ports.filter(|port| port["device_id"] == uid).map(|mut port| {
        port["device_id"] = json!("UID");
        (port["network_id"].as_str().unwrap().to_owned(), port)
    });
    of_pod.collect()
}

/// A KuryrPort without what the API server adds, and with placeholders for IDs and addresses.
fn masked(object: &Value) -> Value {
    let mut text = object.to_string();
    for (interface, vif) in object["status"]["vifs"].as_object().unwrap() {
        let data = &vif["vif"]["versioned_object.data"];
        let (id, address) = (data["id"].as_str().unwrap(), data["address"].as_str().unwrap());
        text = text.replace(id, &format!("ID-{interface}")).replace(&id[..11], &format!("START-{interface}"));
        text = text.replace(address, &format!("MAC-{interface}"));
        let subnets = &data["network"]["versioned_object.data"]["subnets"]["versioned_object.data"]["objects"];
        for ip in subnets
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|subnet| subnet["versioned_object.data"]["ips"]["versioned_object.data"]["objects"].as_array().cloned().unwrap())
        {
            let ip = ip["versioned_object.data"]["address"].as_str().unwrap().to_owned();
            text = text.replace(&format!("\"{ip}\""), &format!("\"IP-{interface}\""));
        }
    }
    text = text.replace(object["spec"]["podUid"].as_str().unwrap(), "UID");
    let mut object: Value = serde_json::from_str(&text).unwrap();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for key in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        metadata.remove(key);
    }
    object
}

/// Places at which two values differ: `metadata.labels.x`. Lists are compared as wholes.
fn differences(of: &str, kuryr: &Value, ours: &Value, found: &mut BTreeSet<String>) {
    match (kuryr.as_object(), ours.as_object()) {
        (Some(kuryr), Some(ours)) => {
            for key in kuryr.keys().chain(ours.keys()).collect::<BTreeSet<_>>() {
                let place = if of.ends_with(' ') { format!("{of}{key}") } else { format!("{of}.{key}") };
                differences(&place, kuryr.get(key).unwrap_or(&Value::Null), ours.get(key).unwrap_or(&Value::Null), found);
            }
        }
        _ if kuryr != ours => drop(found.insert(of.to_owned())),
        _ => {}
    }
}

/// The rows of the table behind this mark, cell by cell.
fn table(mark: &str) -> Vec<Vec<String>> {
    let (_, behind) = PAGE.split_once(&format!("<!-- {mark} -->\n")).unwrap_or_else(|| panic!("the page has no mark {mark}"));
    let lines = behind.lines().skip_while(|line| line.is_empty()).take_while(|line| line.starts_with('|')).skip(2);
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`').to_owned()).collect();
    lines.map(cells).collect()
}

/// What the table says of requests is what was sent: kinds, and numbers where it has some.
fn assert_table(kuryr: &Requests, ours: &Requests) {
    let rows = table("requests");
    let kinds: BTreeSet<&String> = kuryr.keys().chain(ours.keys()).collect();
    assert_eq!(rows.iter().map(|row| &row[0]).collect::<BTreeSet<_>>(), kinds, "kinds of requests of the page, and those that were sent");
    for row in &rows {
        for (cell, sent) in [(&row[1], kuryr), (&row[2], ours)] {
            if let Ok(number) = cell.parse::<usize>() {
                assert_eq!(sent.get(&row[0]).copied().unwrap_or_default(), number, "{row:?}");
            }
        }
    }
}

fn together(all: &[&Requests]) -> Requests {
    let mut sum = Requests::new();
    for (kind, count) in all.iter().flat_map(|requests| requests.iter()) {
        *sum.entry(kind.clone()).or_default() += count;
    }
    sum
}

fn total(requests: &Requests, but: &str) -> usize {
    requests.iter().filter(|(kind, _)| *kind != but).map(|(_, count)| count).sum()
}

/// What each of them sent until pods had their ports, until these were ACTIVE, and until all was gone again; and its first KuryrPort.
struct Seen {
    up: Requests,
    active: Requests,
    down: Requests,
    object: Value,
    wanted: BTreeMap<String, Value>,
}

fn through_kuryr(beside: &Beside, api: &str) -> (Seen, KuryrController) {
    let scene = &beside.scene;
    let between = Between::before(&scene.neutron.url(), |_| Act::Pass);
    let mut kuryr = beside.kuryr(&between.url(), api, "noop");
    let names = beside.add_pods();
    let begin = between.passed("");
    names.iter().for_each(|name| kuryr.up("default", name).unwrap());
    let (up, begun) = (counted(&between, begin), between.passed(""));
    assert!(names.iter().all(|name| beside.has_all(name, false)));
    scene.plug_all();
    names.iter().for_each(|name| kuryr.active("default", name).unwrap());
    let active = counted(&between, begun);
    assert!(names.iter().all(|name| beside.has_all(name, true)));
    let object = scene.kuryr_port(&names[0]).unwrap();
    let wanted = wanted(&between, object["spec"]["podUid"].as_str().unwrap());
    let begun = between.passed("");
    names.iter().for_each(|name| kuryr.down("default", name).unwrap());
    let down = counted(&between, begun);
    assert!(scene.ports().is_empty() && scene.pods().is_empty());
    (Seen { up, active, down, object, wanted }, kuryr)
}

async fn through_ours(beside: &Beside) -> Seen {
    let scene = &beside.scene;
    let between = Between::before(&scene.neutron.url(), |_| Act::Pass);
    let names = beside.add_pods();
    let _operator = scene.operator_of(scene.options(&between.url()));
    until("all have their ports", || names.iter().all(|name| beside.has_all(name, false))).await;
    let up = counted(&between, 0);
    let begun = between.passed("");
    scene.plug_all();
    until("all are ACTIVE", || names.iter().all(|name| beside.has_all(name, true))).await;
    let active = counted(&between, begun);
    let object = scene.kuryr_port(&names[0]).unwrap();
    let wanted = wanted(&between, object["spec"]["podUid"].as_str().unwrap());
    let begun = between.passed("");
    names.iter().for_each(|name| scene.delete_pod(name));
    until("all are gone", || scene.ports().is_empty() && names.iter().all(|name| scene.kuryr_port(name).is_none())).await;
    Seen { up, active, down: counted(&between, begun), object, wanted }
}

/// Serves the cluster's objects as long as the process lives, on a thread of its own: Kuryr's calls keep this one waiting.
fn serve(scene: &Scene) -> String {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let store = scene.store.clone();
    std::thread::spawn(move || run(async { drop(store.serve(listener).await) }));
    url
}

#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn what_kuryr_does_and_what_we_do_side_by_side() {
    let beside = Beside::new();
    run(async {
        let api = serve(&beside.scene);
        let (kuryr, mut controller) = through_kuryr(&beside, &api);
        let ours = through_ours(&beside).await;
        println!("until pods have ports: {:?}\n                  ours: {:?}", kuryr.up, ours.up);
        println!("until ACTIVE: {:?}\n        ours: {:?}", kuryr.active, ours.active);
        println!("until gone: {:?}\n      ours: {:?}", kuryr.down, ours.down);

        // Lists are one a second for all pods together, as long as some wait.
        let (of_kuryr, of_ours) = (together(&[&kuryr.up, &kuryr.active, &kuryr.down]), together(&[&ours.up, &ours.active, &ours.down]));
        assert_table(&of_kuryr, &of_ours);
        let lists = "GET ports";
        assert!(total(&ours.up, lists) * 4 <= total(&kuryr.up, lists), "{:?} {:?}", ours.up, kuryr.up);
        assert_eq!((total(&ours.active, lists), total(&ours.down, lists)), (0, PODS * NETWORKS));

        // What is asked for, and what is written.
        let mut found = BTreeSet::new();
        assert_eq!((kuryr.wanted.len(), ours.wanted.len()), (NETWORKS, NETWORKS));
        for (network, port) in &kuryr.wanted {
            differences("port ", port, &ours.wanted[network], &mut found);
        }
        differences("KuryrPort ", &masked(&kuryr.object), &masked(&ours.object), &mut found);
        let rows: BTreeSet<String> = table("differences").into_iter().map(|row| row[0].clone()).collect();
        assert_eq!(found, rows, "differences that are found, and those of the page");

        // Each reads what the other one wrote.
        assert_eq!(osvif::KuryrPort::read(kuryr.object.clone()).unwrap().write(), kuryr.object);
        let vifs = ours.object["status"]["vifs"].as_object().unwrap();
        let vifs: serde_json::Map<String, Value> = vifs.iter().map(|(interface, vif)| (interface.clone(), vif["vif"].clone())).collect();
        assert_eq!(controller.read(&ours.object).unwrap(), Value::Object(vifs));
    });
}

/// Kuryr's pools: what ten pods cost with ready ports, after a first one has filled them.
#[test]
#[ignore = "needs Neutron: cargo xtask test neutron"]
fn pods_of_kuryrs_pools_cost_more_than_ours() {
    let beside = Beside::new();
    let (scene, api) = (&beside.scene, serve(&beside.scene));
    let between = Between::before(&scene.neutron.url(), |_| Act::Pass);
    let mut kuryr = beside.kuryr(&between.url(), &api, "neutron");
    let names = beside.add_pods();
    let begun = between.passed("");
    names.iter().for_each(|name| kuryr.up("default", name).unwrap());
    let up = counted(&between, begun);
    assert!(names.iter().all(|name| beside.has_all(name, false)));
    let begun = between.passed("");
    names.iter().for_each(|name| kuryr.down("default", name).unwrap());
    println!("Kuryr's pools: {up:?}, and down {:?}", counted(&between, begun));
    // Ours: `ten_pods_of_three_networks_with_ready_ports_cost_no_change_of_neutron`.
    assert!(total(&up, "") >= 2 * PODS * NETWORKS, "{up:?}");
}
