//! The database `Open_vSwitch`: bridges, their ports, the ports' interfaces (ovs-vswitchd.conf.db(5)).
//!
//! ```text
//!   Open_vSwitch  next_cfg: counted up by who changes something     cur_cfg: what ovs-vswitchd has applied
//!   Bridge        ports ----> Port  tag, trunks, external_ids       interfaces ----> Interface  ofport, error, external_ids
//! ```
//!
//! A port and its interface are no roots: the database removes them when no bridge names them any more.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use crate::client::Client;
use crate::datum::{Atom, Datum, Row, Uuid};
use crate::error::OvsdbError;
use crate::operation::{Condition, Operation, Outcome};

const DATABASE: &str = "Open_vSwitch";
/// The table of the one row about the whole switch.
const SWITCH: &str = "Open_vSwitch";
/// The VLAN of a port that carries nothing, as Neutron's agent knows it (`DEAD_VLAN_TAG`).
const DEAD: u16 = 4095;
const PORT_COLUMNS: &[&str] = &["_uuid", "name", "tag", "trunks", "vlan_mode", "external_ids"];

/// A switch, by its database.
#[derive(Debug)]
pub struct Switch {
    client: Client,
    /// What ovs-vswitchd has applied, as far as it was followed.
    applied: Option<i64>,
    /// Whether changes of ports are told. Who waits for them waits for nothing else of this connection.
    follows_ports: bool,
}

/// A bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Whether its packets pass ovs-vswitchd itself and not the kernel's module: `datapath_type` is `netdev`.
    pub is_userspace: bool,
}

/// Which VLANs a port carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vlans {
    /// Every VLAN, with its tag.
    All,
    /// One, without a tag.
    Access(u16),
    /// These, with their tags.
    Trunk(BTreeSet<u16>),
    /// None: nothing passes until another program gives the port a VLAN. As Neutron's own agents make their ports (`_set_port_dead`), so that
    /// its Open vSwitch agent clears all three columns when it sets the tag.
    Dead,
}

/// A port, as the database has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// What other rows call it.
    pub uuid: Uuid,
    /// Its name.
    pub name: String,
    /// Its VLANs; `None`: a mixture of which nothing is made here.
    pub vlans: Option<Vlans>,
    row: Row,
}

/// What a port is to be.
#[derive(Debug, Clone, Default)]
pub struct NewPort<'a> {
    /// The name of the port, of its interface, and of the link.
    pub name: &'a str,
    /// Its VLANs; `None` leaves them to another program, as Neutron's agent.
    pub vlans: Option<&'a Vlans>,
    /// What stands behind it: a link of that name where this is `None`, else a type that ovs-vswitchd knows ([`Switch::interface_types`]).
    pub kind: Option<&'a str>,
    /// What such a type is to know.
    pub options: &'a [(&'a str, &'a str)],
    /// The MTU that ovs-vswitchd is to give it; a link has its own.
    pub mtu_request: Option<u32>,
    /// Which OpenFlow port number it is to get, if that one is free.
    pub ofport_request: Option<u16>,
    /// What others are to know of the port.
    pub port_ids: &'a [(&'a str, &'a str)],
    /// What others are to know of its interface.
    pub interface_ids: &'a [(&'a str, &'a str)],
}

/// An interface, as ovs-vswitchd tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its OpenFlow port number; `None` as long as there is none.
    pub ofport: Option<u16>,
    /// Why ovs-vswitchd does not use it.
    pub error: Option<String>,
    /// Its external ID `iface-id`, by which the agents of Neutron and OVN know it.
    pub iface_id: Option<String>,
}

/// The number of a configuration of the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(i64);

// === impl Switch ===

impl Switch {
    /// Connects to the database of a switch.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(socket: &Path, deadline: Instant) -> Result<Self, OvsdbError> {
        Client::connect(socket, deadline).map(|client| Switch { client, applied: None, follows_ports: false })
    }

    /// A bridge; `None` if there is none of that name.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn bridge(&mut self, name: &str) -> Result<Option<Bridge>, OvsdbError> {
        let rows = self.select("Bridge", vec![Condition::Is("name", name.into())], &["datapath_type"])?;
        Ok(rows.first().map(|row| Bridge { is_userspace: row.text("datapath_type") == Some("netdev") }))
    }

    /// The types of interfaces that ovs-vswitchd knows: those of DPDK only where it has been initialised.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn interface_types(&mut self) -> Result<Vec<String>, OvsdbError> {
        let rows = self.select(SWITCH, Vec::new(), &["iface_types"])?;
        Ok(rows.first().map(|row| row.texts("iface_types").map(str::to_owned).collect()).unwrap_or_default())
    }

    /// The bridge that a port is on.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn bridge_of(&mut self, port: &Port) -> Result<Option<String>, OvsdbError> {
        let rows = self.select("Bridge", vec![holds(&port.uuid)], &["name"])?;
        Ok(rows.first().and_then(|row| row.text("name")).map(str::to_owned))
    }

    /// A port; `None` if there is none of that name.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn port(&mut self, name: &str) -> Result<Option<Port>, OvsdbError> {
        let rows = self.select("Port", vec![Condition::Is("name", name.into())], PORT_COLUMNS)?;
        Ok(rows.into_iter().find_map(Port::read))
    }

    /// All ports with these external IDs.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn ports_with(&mut self, ids: &[(&str, &str)]) -> Result<Vec<Port>, OvsdbError> {
        let rows = self.select("Port", vec![Condition::Includes("external_ids", Datum::map(ids.iter().copied()))], PORT_COLUMNS)?;
        Ok(rows.into_iter().filter_map(Port::read).collect())
    }

    /// An interface; `None` if there is none of that name.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn interface(&mut self, name: &str) -> Result<Option<Interface>, OvsdbError> {
        let rows = self.select("Interface", vec![Condition::Is("name", name.into())], &["ofport", "error", "external_ids"])?;
        Ok(rows.first().map(Interface::read))
    }

    /// The ports whose interfaces have this `iface-id`, by which the agents of Neutron and OVN know them.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn ports_of(&mut self, iface_id: &str) -> Result<Vec<Port>, OvsdbError> {
        self.ports_with_interface(&[("iface-id", iface_id)])
    }

    /// The ports whose interfaces have these external IDs.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn ports_with_interface(&mut self, ids: &[(&str, &str)]) -> Result<Vec<Port>, OvsdbError> {
        let has_ids = vec![Condition::Includes("external_ids", Datum::map(ids.iter().copied()))];
        let names: Vec<String> =
            self.select("Interface", has_ids, &["name"])?.iter().filter_map(|row| row.text("name").map(str::to_owned)).collect();
        let mut ports = Vec::new();
        for name in names {
            ports.extend(self.port(&name)?);
        }
        Ok(ports)
    }

    /// Waits until one of these ports is another one, or the time is over. The first call begins to follow them, and returns at once.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn port_changed(&mut self, names: &BTreeSet<String>, by: Instant) -> Result<(), OvsdbError> {
        self.client.answer_by(by);
        if !std::mem::replace(&mut self.follows_ports, true) {
            return self.client.monitor(DATABASE, "Port", &["name", "tag"]).map(drop);
        }
        loop {
            match self.client.next_rows("Port") {
                Ok(rows) if rows.iter().any(|row| row.text("name").is_some_and(|name| names.contains(name))) => return Ok(()),
                Ok(_) => {}
                Err(OvsdbError::Connection { kind: std::io::ErrorKind::TimedOut, .. }) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// What is asked from now on must be answered by this deadline.
    pub fn answer_by(&mut self, deadline: Instant) {
        self.client.answer_by(deadline);
    }

    /// Adds a port to a bridge: `ovs-vsctl --no-wait add-port`. `None` if there is no such bridge; nothing is made then.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn add_port(&mut self, bridge: &str, port: &NewPort<'_>) -> Result<Option<Generation>, OvsdbError> {
        let named = vec![Condition::Is("name", bridge.into())];
        let operations = vec![
            Operation::Insert { table: "Interface", row: port.interface(), name: "interface" },
            Operation::Insert { table: "Port", row: port.row(), name: "port" },
            Operation::AddTo { table: "Bridge", conditions: named, column: "ports", values: vec![Atom::Named("port")] },
        ];
        let (outcomes, generation) = self.change(operations)?;
        // What no bridge names the database has removed again.
        Ok((outcomes.last().map(|outcome| outcome.count) == Some(1)).then_some(generation))
    }

    /// Takes ports off their bridges, and so out of the database; those that are gone already are no error.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn remove_ports(&mut self, ports: &[Port]) -> Result<(), OvsdbError> {
        if ports.is_empty() {
            return Ok(());
        }
        self.change(ports.iter().map(|port| take_off(&port.uuid)).collect()).map(drop)
    }

    /// The number of the configuration that the database has.
    ///
    /// # Errors
    /// [`OvsdbError`]
    pub fn generation(&mut self) -> Result<Generation, OvsdbError> {
        let rows = self.select(SWITCH, Vec::new(), &["next_cfg"])?;
        Ok(Generation(rows.first().and_then(|row| row.integers("next_cfg").next()).unwrap_or_default()))
    }

    /// Waits until ovs-vswitchd has applied a configuration or a later one: who else waits counts on, so that none but `>=` is ever met.
    ///
    /// # Errors
    /// [`OvsdbError::NotApplied`] when the deadline comes first.
    pub fn applied(&mut self, generation: Generation) -> Result<(), OvsdbError> {
        let current = |rows: &[Row]| rows.iter().flat_map(|row| row.integers("cur_cfg")).next();
        let mut last = match self.applied {
            Some(last) => last,
            None => current(&self.client.monitor(DATABASE, SWITCH, &["cur_cfg"])?).unwrap_or_default(),
        };
        while last < generation.0 {
            let rows = self.client.next_rows(SWITCH).map_err(|e| match e {
                OvsdbError::Connection { socket, kind: std::io::ErrorKind::TimedOut, .. } => {
                    OvsdbError::NotApplied { socket, current: last, wanted: generation.0 }
                }
                e => e,
            })?;
            last = current(&rows).unwrap_or(last);
        }
        self.applied = Some(last);
        Ok(())
    }

    fn select(
        &mut self,
        table: &'static str,
        conditions: Vec<Condition>,
        columns: &'static [&'static str],
    ) -> Result<Vec<Row>, OvsdbError> {
        let outcomes = self.client.transact(DATABASE, &[Operation::Select { table, conditions, columns }])?;
        Ok(outcomes.into_iter().next().unwrap_or_default().rows)
    }

    /// A change, counted: what came of each operation, and what ovs-vswitchd has to apply.
    fn change(&mut self, mut operations: Vec<Operation>) -> Result<(Vec<Outcome>, Generation), OvsdbError> {
        operations.push(Operation::Increment { table: SWITCH, column: "next_cfg" });
        operations.push(Operation::Select { table: SWITCH, conditions: Vec::new(), columns: &["next_cfg"] });
        let mut outcomes = self.client.transact(DATABASE, &operations)?;
        let rows = outcomes.pop().unwrap_or_default().rows;
        // That of the count itself.
        outcomes.pop();
        let next = rows.first().and_then(|row| row.integers("next_cfg").next());
        Ok((outcomes, Generation(next.unwrap_or_default())))
    }
}

fn holds(port: &Uuid) -> Condition {
    Condition::Includes("ports", Atom::Uuid(port.clone()).into())
}

fn take_off(port: &Uuid) -> Operation {
    Operation::TakeFrom { table: "Bridge", conditions: vec![holds(port)], column: "ports", values: vec![Atom::Uuid(port.clone())] }
}

// === impl Port ===

impl Port {
    fn read(row: Row) -> Option<Self> {
        let trunks: BTreeSet<u16> = row.integers("trunks").filter_map(|vlan| u16::try_from(vlan).ok()).collect();
        let tag = row.integers("tag").next().and_then(|tag| u16::try_from(tag).ok());
        let vlans = match (row.text("vlan_mode"), tag, trunks.is_empty()) {
            (_, Some(DEAD), _) => Some(Vlans::Dead),
            (None | Some("access"), Some(tag), _) => Some(Vlans::Access(tag)),
            (None | Some("trunk"), None, true) => Some(Vlans::All),
            (None | Some("trunk"), None, false) => Some(Vlans::Trunk(trunks)),
            _ => None,
        };
        Some(Port { uuid: row.uuid("_uuid")?.clone(), name: row.text("name")?.to_owned(), vlans, row })
    }

    /// One of its external IDs.
    pub fn id(&self, key: &str) -> Option<&str> {
        self.row.under("external_ids", key)
    }
}

// === impl NewPort ===

impl NewPort<'_> {
    fn interface(&self) -> Row {
        let mut row = Row::new().with("name", self.name).with("external_ids", Datum::map(self.interface_ids.iter().copied()));
        if let Some(number) = self.ofport_request {
            row = row.with("ofport_request", Atom::Integer(number.into()));
        }
        if let Some(kind) = self.kind {
            row = row.with("type", kind).with("options", Datum::map(self.options.iter().copied()));
        }
        if let Some(mtu) = self.mtu_request {
            row = row.with("mtu_request", Atom::Integer(mtu.into()));
        }
        row
    }

    fn row(&self) -> Row {
        let row = Row::new()
            .with("name", self.name)
            .with("interfaces", Atom::Named("interface"))
            .with("external_ids", Datum::map(self.port_ids.iter().copied()));
        match self.vlans {
            None => row,
            Some(Vlans::All) => row.with("vlan_mode", "trunk"),
            Some(Vlans::Access(tag)) => row.with("vlan_mode", "access").with("tag", Atom::Integer((*tag).into())),
            Some(Vlans::Dead) => {
                let dead = || Atom::Integer(DEAD.into());
                row.with("vlan_mode", "trunk").with("tag", dead()).with("trunks", dead())
            }
            Some(Vlans::Trunk(vlans)) => {
                let vlans = vlans.iter().map(|vlan| Atom::Integer((*vlan).into())).collect();
                row.with("vlan_mode", "trunk").with("trunks", Datum::Set(vlans))
            }
        }
    }
}

// === impl Interface ===

impl Interface {
    fn read(row: &Row) -> Self {
        // -1 stands for an error.
        let ofport = row.integers("ofport").next().and_then(|number| u16::try_from(number).ok());
        let iface_id = row.under("external_ids", "iface-id").map(str::to_owned);
        Interface { ofport, error: row.text("error").map(str::to_owned), iface_id }
    }
}
