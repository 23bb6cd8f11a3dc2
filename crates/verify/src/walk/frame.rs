//! From one host to the next one on the same network: neighbour, pairs, bridges.

use std::net::IpAddr;

use cni::Mac;

use super::device::pass;
use super::filter::{Hook, HookPoint};
use super::{NextHop, Packet, Step, Walk};
use crate::fault::{Fault, Finding};
use crate::network::{Device, Segment, is_link_local};
use crate::snapshot::{Link, Place};

impl<'a> Walk<'a> {
    /// Sends a packet by a way's link: where it is then.
    pub(super) fn send(&mut self, device: Device<'a>, way: &NextHop<'a>, packet: &mut Packet) -> Result<Step<'a>, Finding> {
        let link = device.link;
        if !link.up {
            return Err(self.at(Fault::LinkDown, device, "its packets leave by it".to_owned()));
        }
        if packet.destination.is_ipv6() && link.ipv6_disabled {
            return Err(self.at(Fault::Ipv6Disabled, device, format!("net.ipv6.conf.{}.disable_ipv6 is 1", link.name)));
        }
        if let Some(mtu) = way.route.mtu.filter(|mtu| packet.size > *mtu) {
            let evidence = format!("the packet has {} bytes, and the route {way} has an MTU of {mtu}", packet.size);
            return Err(self.at(Fault::MtuExceeded, device, evidence));
        }
        self.fits(device, packet)?;
        let next = way.gateway.unwrap_or(packet.destination);
        match link.tunnel {
            Some(tunnel) => self.through(device, tunnel, way, packet).map(Step::At),
            None if link.is("wireguard") => self.encrypted(device).map(Step::At),
            None => self.on_link(device, way, next, packet),
        }
    }

    /// Whether a packet is not longer than a link takes.
    pub(super) fn fits(&self, device: Device<'a>, packet: &Packet) -> Result<(), Finding> {
        if packet.size <= device.link.mtu {
            return Ok(());
        }
        let evidence = format!("the packet has {} bytes, and the link an MTU of {}", packet.size, device.link.mtu);
        Err(self.at(Fault::MtuExceeded, device, evidence))
    }

    fn on_link(&mut self, device: Device<'a>, way: &NextHop<'a>, next: IpAddr, packet: &mut Packet) -> Result<Step<'a>, Finding> {
        let segment = self.network.segment(device);
        let known = device.link.neighbour(next).and_then(|neighbour| neighbour.mac.as_ref()).filter(|_| next.is_ipv4());
        let answered = || known.map(|mac| segment.answered(next, mac)).unwrap_or_default();
        let holders = Some(segment.holders(next)).filter(|holders| !holders.is_empty()).unwrap_or_else(answered);
        let frames = match holders.as_slice() {
            [] if segment.leaves => return self.leave(device, way, packet),
            [] => return Err(self.nobody(device, way, next)),
            [only] => only,
            several => return Err(self.several(several, next)),
        };
        let Some(target) = frames.last().copied() else { return Err(self.nobody(device, way, next)) };
        self.right_host(device, way, target, (packet.destination, packet.port))?;
        self.alive(frames)?;
        self.usable(target, next)?;
        self.known_by(device, target, next, &segment)?;
        self.carried(frames, next, packet)?;
        Ok(Step::At(target))
    }

    /// The host that a route leads to must be on the way.
    fn right_host(&self, device: Device<'a>, way: &NextHop<'a>, target: Device<'a>, to: (IpAddr, u16)) -> Result<(), Finding> {
        let place = &target.namespace.place;
        let home = |place: &Place| self.network.home(place).map(|home| &home.place);
        let is_way_out = home(&device.namespace.place) == Some(place);
        if place == self.to || home(self.to) == Some(place) || is_way_out || matches!(place, Place::Underlay | Place::Outside(_)) {
            return Ok(());
        }
        // Every node serves a Service, and the answer goes to who has rewritten the request.
        let has_rewritten = self.known.iter().any(|entry| entry.place == *place && entry.came != entry.went);
        if has_rewritten || self.unled(to).is_some() && matches!(place, Place::Node(_)) {
            return Ok(());
        }
        let wanted = home(self.to).unwrap_or(self.to);
        let evidence = match way.gateway {
            Some(gateway) => format!("the route {way} leads to {place}, which has {gateway}; {} is behind {wanted}", self.to),
            None => return Err(self.at(Fault::DuplicateAddress, target, format!("it has the address, which is that of {}", self.to))),
        };
        Err(self.at(Fault::WrongNextHop, device, evidence))
    }

    /// Every link that frames pass must be up, have a carrier and, as a port, pass them on.
    fn alive(&self, frames: &[Device<'a>]) -> Result<(), Finding> {
        if let Some(down) = frames.iter().find(|device| !device.link.up) {
            return Err(self.at(Fault::LinkDown, *down, "frames pass by it".to_owned()));
        }
        let shut = |device: &&Device<'a>| device.link.port.as_ref().is_some_and(|port| port.state != "forwarding");
        let is_port = |device: &Device<'a>| {
            frames.iter().any(|other| other.namespace.place == device.namespace.place && device.link.master == Some(other.link.index))
        };
        if let Some(device) = frames.iter().filter(|device| device.link.carrier && is_port(device)).find(shut) {
            let state = device.link.port.as_ref().map_or("", |port| &port.state);
            return Err(self.at(Fault::BridgePortDown, *device, format!("as a port of its bridge its state is {state}")));
        }
        match frames.iter().find(|device| !device.link.carrier) {
            Some(device) => Err(self.at(Fault::NoCarrier, *device, "frames pass by it".to_owned())),
            None => Ok(()),
        }
    }

    fn usable(&self, target: Device<'a>, address: IpAddr) -> Result<(), Finding> {
        let links = target.namespace.links.iter().filter(|_| !target.link.has(address)).chain([target.link]);
        if links.flat_map(|link| &link.addresses).any(|own| own.net.addr() == address && own.usable) {
            return Ok(());
        }
        Err(self.at(Fault::AddressUnusable, target, format!("{address} waits for duplicate address detection, or has failed it")))
    }

    /// What the sender knows of its neighbour must be what the neighbour has.
    fn known_by(&mut self, device: Device<'a>, target: Device<'a>, next: IpAddr, segment: &Segment<'a>) -> Result<(), Finding> {
        let Some(mac) = &target.link.mac else { return Ok(()) };
        // A vlan has the hardware address of the link below it.
        let below = self.network.other(target).filter(|_| target.link.is("vlan"));
        let twin = segment.others().find(|other| {
            let same = other.link.mac.as_ref() == Some(mac) && !other.is(&target) && other.namespace.place != target.namespace.place;
            let is_below = below.is_some_and(|below| other.is(&below));
            same && !is_below && has_address(other.link) && !matches!(other.link.kind.as_str(), "ipvlan" | "vlan" | "bridge")
        });
        if let Some(twin) = twin {
            return Err(self.at(Fault::DuplicateMac, twin, format!("its hardware address {mac} is also that of {target}")));
        }
        self.has_room(device, next);
        match device.link.neighbour(next) {
            Some(neighbour) if neighbour.mac.as_ref().is_some_and(|known| known != mac) => {
                let known = neighbour.mac.as_ref().map(|known| known.to_string()).unwrap_or_default();
                let whose = segment.others().find(|other| other.link.mac == neighbour.mac && has_address(other.link));
                let whose = whose.map(|other| format!(", which is that of {other}")).unwrap_or_default();
                let how = if neighbour.permanent { " permanently" } else { "" };
                let why = if device.link.no_arp { "; its setting arp is off: it asks nobody" } else { "" };
                let evidence = format!("it knows {next}{how} by {known}{whose}; {target} has {mac}{why}");
                let arp = if device.link.no_arp { format!("ip link set {} arp on; ", device.link.name) } else { String::new() };
                let next_step = format!("{arp}ip neigh del {next} dev {}", device.link.name);
                Err(Finding { next_step, ..self.at(Fault::WrongNeighbour, device, evidence) })
            }
            // Of IPv6 it answers all the same, and for an ipvlan the link below answers.
            known
                if target.link.no_arp
                    && !device.link.no_arp
                    && !target.link.is("ipvlan")
                    && next.is_ipv4()
                    && known.is_none_or(|known| known.mac.is_none()) =>
            {
                let evidence = format!("{device} asks who has {next}, and its setting arp is off: it does not answer");
                let next_step = format!("ip link set {} arp on", target.link.name);
                Err(Finding { next_step, ..self.at(Fault::NeighbourSilent, target, evidence) })
            }
            Some(neighbour) if neighbour.mac.is_none() => {
                let evidence = format!("{target} has {next} and has not answered to who has it");
                self.suspicions.push(self.at(Fault::NeighbourSilent, device, evidence));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What pairs and bridges do with the frames: their length, isolation, entries and rules.
    fn carried(&mut self, frames: &[Device<'a>], next: IpAddr, packet: &mut Packet) -> Result<(), Finding> {
        for device in frames.iter().filter(|device| !device.link.is("bridge")) {
            self.fits(*device, packet)?;
        }
        self.between_macvlans(frames)?;
        self.in_vlans(frames)?;
        packet.frame = frames.first().zip(frames.last()).and_then(|(first, last)| Some((last.link.mac.clone()?, first.link.mac.clone()?)));
        for (at, device) in frames.iter().enumerate() {
            match pass(frames, at) {
                pass if device.link.is("bridge") => {
                    self.by_bridge(frames, at, next, packet)?;
                    pass.map_or(Ok(()), |pass| self.by_device(*device, pass, packet))?;
                }
                Some(pass) => self.by_device(*device, pass, packet)?,
                None => {}
            }
        }
        Ok(())
    }

    /// What the bridge at a place of the frames' way does with them.
    fn by_bridge(&mut self, frames: &[Device<'a>], at: usize, next: IpAddr, packet: &mut Packet) -> Result<(), Finding> {
        let (Some(first), Some(bridge), Some(target)) = (frames.first(), frames.get(at), frames.last()) else { return Ok(()) };
        let is_port = |port: &&Device<'a>| port.link.master == Some(bridge.link.index);
        let before = at.checked_sub(1).and_then(|at| frames.get(at)).filter(is_port);
        let after = frames.get(at + 1).filter(is_port);
        if let (Some(before), Some(sender)) = (before, &first.link.mac) {
            self.enters(*bridge, *before, sender)?;
        }
        if let Some(mac) = &target.link.mac {
            self.entry(*bridge, after.copied(), mac)?;
            if let Some(after) = after {
                self.leaves((*bridge, *after), mac, (*first, next))?;
            }
        }
        if let (Some(before), Some(after)) = (before, after) {
            let isolated = |device: &Device<'a>| device.link.port.as_ref().is_some_and(|port| port.isolated);
            if isolated(before) && isolated(after) {
                return Err(self.at(Fault::PortsIsolated, *after, format!("{before} is isolated as well")));
            }
        }
        self.bridged(*bridge, (before.map(|port| port.link), after.map(|port| port.link)), packet)
    }

    /// Macvlans on one link may be kept apart.
    fn between_macvlans(&self, frames: &[Device<'a>]) -> Result<(), Finding> {
        let is_macvlan = |device: &Device<'a>| matches!(device.link.kind.as_str(), "macvlan" | "macvtap");
        let pairs = frames.windows(3).filter_map(|three| match three {
            [one, below, other] if is_macvlan(one) && is_macvlan(other) => Some((one, below, other)),
            _ => None,
        });
        for (one, below, other) in pairs {
            let (mode, means) = match () {
                () if one.link.private || other.link.private => ("private", ""),
                () if one.link.vepa || other.link.vepa => ("vepa", ": the switch outside must send frames back"),
                () => continue,
            };
            let is_apart = |device: &&Device<'a>| if mode == "private" { device.link.private } else { device.link.vepa };
            let device = if is_apart(&other) { *other } else { *one };
            let apart: Vec<String> = [one, other].into_iter().filter(is_apart).map(ToString::to_string).collect();
            let evidence = format!("{one} and {other} are macvlans on {below}; in mode {mode}: {}{means}", apart.join(" and "));
            let next_step = "set the mode bridge in the network's configuration and recreate the pods, if it is not intended".to_owned();
            return Err(Finding { next_step, ..self.at(Fault::PortsIsolated, device, evidence) });
        }
        Ok(())
    }

    /// The VLAN of the frames along the way: bridges that filter pass them between ports that belong to it.
    fn in_vlans(&self, frames: &[Device<'a>]) -> Result<(), Finding> {
        let mut tag: Option<u16> = None;
        for (at, device) in frames.iter().enumerate() {
            let (before, after) = (at.checked_sub(1).and_then(|at| frames.get(at)), frames.get(at + 1));
            let link = device.link;
            match link.vlan.filter(|_| link.is("vlan")) {
                // It gives the tag to what it sends, and takes it from what it receives.
                Some(own) => tag = if at == 0 { Some(own) } else { None },
                None if link.is("bridge") && link.filters_vlans => {
                    let port = |other: Option<&Device<'a>>| other.filter(|other| other.link.master == Some(link.index)).copied();
                    // What the bridge itself sends and takes goes by its own membership.
                    let (from, to) = (port(before).unwrap_or(*device), port(after).unwrap_or(*device));
                    let vlan = tag.or(from.link.native()).ok_or_else(|| self.filtered(from, "frames without a tag"))?;
                    let words = format!("frames of VLAN {vlan}");
                    from.link.member(vlan).ok_or_else(|| self.filtered(from, &words))?;
                    let is_untagged = to.link.member(vlan).ok_or_else(|| self.filtered(to, &words))?;
                    tag = if is_untagged { None } else { Some(vlan) };
                }
                None => {}
            }
        }
        match (tag, frames.last()) {
            (Some(vlan), Some(target)) => Err(self.filtered(*target, &format!("frames with the tag of VLAN {vlan}"))),
            _ => Ok(()),
        }
    }

    fn filtered(&self, port: Device<'a>, frames: &str) -> Finding {
        let row = |row: &crate::snapshot::PortVlan| {
            if row.first == row.last { row.first.to_string() } else { format!("{}-{}", row.first, row.last) }
        };
        let own: Vec<String> = port.link.vlans.iter().map(row).collect();
        let own = if own.is_empty() { "no VLAN".to_owned() } else { format!("VLAN {}", own.join(", ")) };
        self.at(Fault::VlanFiltered, port, format!("{frames} do not pass it; it belongs to {own}"))
    }

    /// Where the bridge has seen the hardware address.
    fn entry(&self, bridge: Device<'a>, after: Option<Device<'a>>, mac: &Mac) -> Result<(), Finding> {
        let ports: Vec<u32> = bridge.link.fdb.iter().filter(|entry| entry.mac == *mac).filter_map(|entry| entry.port).collect();
        let right = after.map_or(bridge.link.index, |port| port.link.index);
        // An address of the bridge's own may be one of a port's.
        let own = |index: &u32| after.is_none() && bridge.namespace.link(*index).is_some_and(|port| port.mac.as_ref() == Some(mac));
        match ports.first() {
            Some(wrong) if !ports.iter().any(|port| *port == right || own(port)) => {
                let name = |index: u32| bridge.namespace.link(index).map_or_else(|| format!("link {index}"), |link| link.name.clone());
                let evidence =
                    format!("bridge {} has seen {mac} behind its port {}; it is behind {}", bridge.link.name, name(*wrong), name(right));
                let next_step = format!("bridge fdb del {mac} dev {} master", name(*wrong));
                Err(Finding { next_step, ..self.at(Fault::StaleBridgeEntry, bridge, evidence) })
            }
            _ => Ok(()),
        }
    }

    /// The rules for frames that a bridge passes on, takes or sends.
    fn bridged(
        &mut self,
        bridge: Device<'a>,
        (before, after): (Option<&'a Link>, Option<&'a Link>),
        packet: &mut Packet,
    ) -> Result<(), Finding> {
        let hooks: &[Hook] = match (before, after) {
            (Some(_), Some(_)) => &[Hook::Prerouting, Hook::Forward, Hook::Postrouting],
            (Some(_), None) => &[Hook::Prerouting, Hook::Input],
            (None, _) => &[Hook::Output, Hook::Postrouting],
        };
        let namespace = bridge.namespace;
        for hook in hooks {
            let iif = before.or(Some(bridge.link).filter(|_| *hook == Hook::Input));
            let at = HookPoint { namespace, hook: *hook, in_bridge: true, iif, oif: after.filter(|_| *hook != Hook::Prerouting) };
            self.filter(&at, packet)?;
        }
        let filters = if packet.destination.is_ipv4() { bridge.link.filters_ipv4 } else { bridge.link.filters_ipv6 };
        let is_tracked = before.is_some() && after.is_some() && filters;
        // An answer from port to port whose request the router has led there.
        if let Some(entry) = self.known_as(namespace, packet).filter(|_| is_tracked) {
            (packet.source, packet.source_port) = (entry.came.destination, entry.came.port);
        }
        for hook in hooks.iter().filter(|_| is_tracked) {
            // To the router's rules both ports are the bridge.
            let (iif, oif) =
                (Some(bridge.link).filter(|_| *hook != Hook::Postrouting), Some(bridge.link).filter(|_| *hook != Hook::Prerouting));
            let passage = self.filter(&HookPoint { namespace, hook: *hook, in_bridge: false, iif, oif }, packet)?;
            if let Some((now, port, by)) = passage.destination.as_ref().filter(|_| self.service.is_none()) {
                let led = Packet { destination: *now, port: port.unwrap_or(packet.port), ..packet.clone() };
                self.mislead(namespace, packet.tuple(), &led, by);
                self.misled.take().map_or(Ok(()), Err)?;
            }
            let own = bridge.link.addresses.iter().map(|own| own.net.addr()).find(|own| own.is_ipv4() == packet.destination.is_ipv4());
            let before = packet.tuple();
            self.rewrite_source(namespace, own, passage, packet);
            if packet.tuple() != before {
                self.came = Some(before);
                self.track(namespace, packet);
            }
        }
        Ok(())
    }

    fn several(&self, holders: &[Vec<Device<'a>>], address: IpAddr) -> Finding {
        let devices: Vec<Device<'a>> = holders.iter().filter_map(|way| way.last().copied()).collect();
        let is_right = |device: &&Device<'a>| device.namespace.place == *self.to;
        let right = devices.iter().find(is_right).or(devices.first()).copied();
        let wrong = devices.iter().find(|device| right.is_none_or(|right| !right.is(device))).copied();
        let all: Vec<String> = devices.iter().map(ToString::to_string).collect();
        let evidence = format!("{address} is on {}", all.join(" and on "));
        match wrong.or(right) {
            Some(device) => self.at(Fault::DuplicateAddress, device, evidence),
            None => Finding {
                fault: Fault::DuplicateAddress,
                place: self.to.clone(),
                device: None,
                direction: self.direction,
                evidence,
                next_step: Fault::DuplicateAddress.next_step(None),
            },
        }
    }
}

pub(super) fn has_address(link: &Link) -> bool {
    link.addresses.iter().any(|address| !is_link_local(address.net.addr()))
}
