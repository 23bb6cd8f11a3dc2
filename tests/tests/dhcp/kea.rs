//! A server whose leases are as short as one likes.

use serde_json::{Value, json};

use crate::server::World;

impl World {
    /// Starts Kea in a station of this name: a range, and seconds of T1, T2 and the lease.
    pub(crate) fn kea(&mut self, name: &str, pool: &str, times: [u32; 3]) {
        self.station(name);
        let log =
            json!([{"name": "kea-dhcp4", "severity": "DEBUG", "debuglevel": 40, "output_options": [{"output": "stdout", "flush": true}]}]);
        let number = if name == "server" { 1 } else { 2 };
        let config: Value = json!({"Dhcp4": {
            "interfaces-config": {"interfaces": ["eth0"], "dhcp-socket-type": "raw"},
            "lease-database": {"type": "memfile", "persist": false},
            "renew-timer": times[0], "rebind-timer": times[1], "valid-lifetime": times[2],
            "authoritative": true, "loggers": log,
            "subnet4": [{"subnet": "10.9.0.0/24", "interface": "eth0", "pools": [{"pool": pool}],
                "option-data": [{"name": "routers", "data": format!("10.9.0.{number}")}]}],
        }});
        self.host.write(&format!("/run/{name}.json"), &config.to_string());
        let mut command = self.host.command(name, "kea-dhcp4");
        let dir = "/run";
        command.env("KEA_PIDFILE_DIR", dir).env("KEA_LOCKFILE_DIR", "none").env("KEA_DHCP_DATA_DIR", dir);
        command.args(["-c", &format!("/run/{name}.json")]);
        self.spawn(name, command);
        self.until_told(name, "DHCP4_STARTED", 1);
    }

    /// The same of DHCPv6.
    pub(crate) fn kea6(&mut self, name: &str, pool: &str, times: [u32; 3]) {
        self.station(name);
        let log =
            json!([{"name": "kea-dhcp6", "severity": "DEBUG", "debuglevel": 40, "output_options": [{"output": "stdout", "flush": true}]}]);
        let config: Value = json!({"Dhcp6": {
            "interfaces-config": {"interfaces": ["eth0"]},
            "lease-database": {"type": "memfile", "persist": false},
            "renew-timer": times[0], "rebind-timer": times[1], "preferred-lifetime": times[2], "valid-lifetime": times[2],
            "server-id": {"type": "LL", "persist": false, "identifier": format!("0200000000{:02x}", name.len())},
            "loggers": log,
            "subnet6": [{"subnet": "fd00:9::/64", "interface": "eth0", "pools": [{"pool": pool}]}],
        }});
        self.host.write(&format!("/run/{name}.json"), &config.to_string());
        let mut command = self.host.command(name, "kea-dhcp6");
        let dir = "/run";
        command.env("KEA_PIDFILE_DIR", dir).env("KEA_LOCKFILE_DIR", "none").env("KEA_DHCP_DATA_DIR", dir);
        command.args(["-c", &format!("/run/{name}.json")]);
        self.spawn(name, command);
        self.until_told(name, "DHCP6_STARTED", 1);
    }
}
