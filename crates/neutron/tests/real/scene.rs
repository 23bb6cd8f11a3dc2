//! A Neutron that tests share while one of them runs; each has a project of its own in it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use netloom_neutron::{Limits, Neutron};
use openstack::resource::{NewPort, WantedIp};
use openstack::{Auth, Cloud, Interface, Tls};
use serde_json::{Value, json};

/// A project with a network.
pub(crate) struct Scene {
    pub(crate) server: Arc<testbed::openstack::Neutron>,
    pub(crate) project: String,
    pub(crate) network: String,
    pub(crate) subnet: String,
}

/// A machine that compiles beside it makes Neutron wait: a bound, and no measure.
pub(crate) const LIMITS: Limits = Limits { in_flight: 4, attempts: 3, timeout: Duration::from_secs(120) };

fn server() -> Arc<testbed::openstack::Neutron> {
    static SHARED: Mutex<Weak<testbed::openstack::Neutron>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return server;
    }
    let server = Arc::new(testbed::openstack::Neutron::named(&unique("neutron"), None).unwrap());
    *shared = Arc::downgrade(&server);
    server
}

/// A name that no other test has, here or in another process.
pub(crate) fn unique(what: &str) -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{what}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}

/// A client of a Neutron that trusts everybody.
pub(crate) fn client(url: &str, limits: Limits) -> Neutron {
    Neutron::new(cloud(Auth::None, String::new(), Some(url)), limits).unwrap()
}

pub(crate) fn cloud(auth: Auth, auth_url: String, endpoint: Option<&str>) -> Cloud {
    let (interfaces, endpoint) = (vec![Interface::Public], endpoint.map(str::to_owned));
    Cloud { auth_url, auth, region: None, interfaces, endpoint, tls: Tls::default(), timeout: None }
}

// === impl Scene ===

impl Scene {
    pub(crate) fn new() -> Self {
        Scene::with_subnet("10.77.0.0/24")
    }

    pub(crate) fn with_subnet(cidr: &str) -> Self {
        let (server, project) = (server(), unique("project"));
        let network = json!({"network": {"name": "net-a", "project_id": project}});
        let network = id(&server.ask("POST", "networks", &network).unwrap()["network"]);
        let subnet = json!({"subnet": {
            "network_id": network, "project_id": project, "ip_version": 4, "cidr": cidr, "enable_dhcp": false,
            "dns_nameservers": ["10.77.0.53"], "host_routes": [{"destination": "10.78.0.0/16", "nexthop": "10.77.0.2"}],
        }});
        let subnet = id(&server.ask("POST", "subnets", &subnet).unwrap()["subnet"]);
        Scene { server, project, network, subnet }
    }

    pub(crate) fn client(&self) -> Neutron {
        client(&self.server.url(), LIMITS)
    }

    /// A port to be made, with the tag of this project.
    pub(crate) fn port(&self) -> NewPort {
        NewPort {
            network_id: self.network.clone(),
            project_id: self.project.clone(),
            admin_state_up: true,
            device_owner: "compute:kuryr".to_owned(),
            fixed_ips: vec![WantedIp { subnet_id: Some(self.subnet.clone()), ip_address: None }],
            tags: vec![self.project.clone()],
            ..NewPort::default()
        }
    }

    /// The project's ports, as the database has them: ID and status.
    pub(crate) fn ports_in_database(&self) -> Vec<(String, String)> {
        let rows = self.server.sql(&format!("SELECT id, status FROM ports WHERE project_id = '{}' ORDER BY id", self.project)).unwrap();
        rows.into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
    }
}

pub(crate) fn id(resource: &Value) -> String {
    resource["id"].as_str().unwrap_or_else(|| panic!("no ID: {resource}")).to_owned()
}
