//! A server whose leases are as short as one likes.

use serde_json::{Value, json};

use crate::dhcp::server::{World, needs};

impl World {
    /// Starts Kea in a station of this name: a range, and seconds of T1, T2 and the lease.
    pub(crate) fn kea(&mut self, name: &str, pool: &str, times: [u32; 3]) {
        needs("kea-dhcp4", "kea-dhcp4-server");
        self.station(name);
        let number = if name == "server" { 1 } else { 2 };
        let config: Value = json!({"Dhcp4": {
            "interfaces-config": {"interfaces": ["eth0"], "dhcp-socket-type": "raw"},
            "lease-database": {"type": "memfile", "persist": false},
            "renew-timer": times[0], "rebind-timer": times[1], "valid-lifetime": times[2],
            "authoritative": true, "loggers": told_by("kea-dhcp4"),
            "subnet4": [{"subnet": "10.9.0.0/24", "interface": "eth0", "pools": [{"pool": pool}],
                "option-data": [{"name": "routers", "data": format!("10.9.0.{number}")}]}],
        }});
        self.run_kea(name, 4, &config);
    }

    /// The same of DHCPv6.
    pub(crate) fn kea6(&mut self, name: &str, pool: &str, times: [u32; 3]) {
        needs("kea-dhcp6", "kea-dhcp6-server");
        self.station(name);
        let config: Value = json!({"Dhcp6": {
            "interfaces-config": {"interfaces": ["eth0"]},
            "lease-database": {"type": "memfile", "persist": false},
            "renew-timer": times[0], "rebind-timer": times[1], "preferred-lifetime": times[2], "valid-lifetime": times[2],
            "server-id": {"type": "LL", "persist": false, "identifier": format!("0200000000{:02x}", name.len())},
            "loggers": told_by("kea-dhcp6"),
            "subnet6": [{"subnet": "fd00:9::/64", "interface": "eth0", "pools": [{"pool": pool}]}],
        }});
        self.run_kea(name, 6, &config);
    }

    /// Returns when it serves.
    fn run_kea(&mut self, name: &str, version: u8, config: &Value) {
        let file = format!("/run/{name}.json");
        self.host.write(&file, &config.to_string());
        let mut command = self.host.command(name, format!("kea-dhcp{version}"));
        let dir = "/run";
        command.env("KEA_PIDFILE_DIR", dir).env("KEA_LOCKFILE_DIR", "none").env("KEA_DHCP_DATA_DIR", dir);
        command.args(["-c", &file]);
        self.spawn(name, command);
        self.until_told(name, &format!("DHCP{version}_STARTED"), 1);
    }
}

/// Everything that a program of Kea's does, on its standard output.
fn told_by(program: &str) -> Value {
    json!([{"name": program, "severity": "DEBUG", "debuglevel": 40, "output_options": [{"output": "stdout", "flush": true}]}])
}
