//! `netloom openstack`: this cluster's ports in Neutron, compared with its pods.

use std::process::ExitCode;

use operator::{Orphan, OwnedPort, PoolSeen, PortsSeen, Right, delete_orphans, delete_ready, look};
use serde_json::{Value, json};

use crate::cli::{
    Format, OpenstackAdoptArgs, OpenstackArgs, OpenstackCommand, OpenstackLookArgs, OpenstackOrphansArgs, OpenstackPoolsArgs,
    OpenstackRightsArgs,
};
use crate::output::{BAD, ODD, Rows, counted, putln, structured};

/// The exit code where all could be looked at, and not all is well.
const NOT_WELL: u8 = 3;

/// One of them.
pub(crate) fn run(args: &OpenstackArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        OpenstackCommand::Status(command) => status(command),
        OpenstackCommand::Rights(command) => rights(command),
        OpenstackCommand::Ports(command) => ports(command),
        OpenstackCommand::Pools(command) => pools(command),
        OpenstackCommand::Orphans(command) => orphans(command),
        OpenstackCommand::Adopt(command) => adopt(command),
    }
}

fn seen(args: &OpenstackLookArgs) -> anyhow::Result<PortsSeen> {
    Ok(look(&args.openstack.read()?, args.of.file()?.as_deref())?)
}

fn status(args: &OpenstackLookArgs) -> anyhow::Result<ExitCode> {
    let seen = seen(args)?;
    let active = seen.ports.iter().filter(|owned| owned.is_active()).count();
    let (missing, orphans, anothers) = (seen.missing_subnets.len(), seen.orphans.len(), seen.anothers.len());
    if let Some(format) = args.output.and_then(Format::structured) {
        let value = json!({
            "usable": seen.is_supported, "missingSubnets": seen.missing_subnets, "ports": seen.ports.len(), "active": active,
            "ready": seen.ready.len(), "orphans": orphans, "anothers": anothers, "pods": seen.pods,
        });
        structured(&value, format)?;
    } else {
        putln!("Neutron   {}", if seen.is_supported { "usable" } else { "not usable" });
        putln!("ports     {} of {}, {active} of them ACTIVE", seen.ports.len(), counted(seen.pods, "pod"));
        putln!("ready     {}", seen.ready.len());
        putln!("orphans   {orphans}");
        if !seen.is_supported {
            let next = "add tag_ports_during_bulk_creation to extension_drivers of ML2's configuration";
            let lacks = "tag-ports-during-bulk-creation, and standard-attr-tag or standard-attr-description";
            putln!("{BAD}Neutron lacks the extensions {lacks}: {next}{BAD:#}");
        }
        for subnet in &seen.missing_subnets {
            putln!("{BAD}subnet {subnet} of the settings does not exist, or the credentials cannot see it{BAD:#}");
        }
        if anothers > 0 {
            let next = "give each cluster a name of its own; they are left alone";
            putln!("{BAD}{} with the name of this cluster, of another cluster: {next}{BAD:#}", counted(anothers, "port"));
        }
        if orphans > 0 {
            putln!("{ODD}list them: netloom openstack orphans{ODD:#}");
        }
    }
    Ok(if seen.is_supported && missing == 0 && orphans == 0 && anothers == 0 { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

fn rights(args: &OpenstackRightsArgs) -> anyhow::Result<ExitCode> {
    let all = operator::rights(&args.openstack.read()?)?;
    if let Some(format) = args.output.and_then(Format::structured) {
        let value = |right: &Right| json!({"right": right.name, "usedFor": right.used_for, "missing": right.missing});
        structured(&all.iter().map(value).collect::<Vec<_>>(), format)?;
    } else {
        let mut rows = Rows::new(&["RIGHT", "USED FOR", "MISSING"]);
        for Right { name, used_for, missing } in &all {
            rows.push(vec![(*name).to_owned(), (*used_for).to_owned(), missing.clone().unwrap_or_else(|| "-".to_owned())]);
        }
        rows.print(|_| anstyle::Style::new());
    }
    let is_well = all.iter().all(|right| right.missing.is_none());
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

fn ports(args: &OpenstackLookArgs) -> anyhow::Result<ExitCode> {
    let seen = seen(args)?;
    let is_well = seen.ports.iter().all(OwnedPort::is_active);
    if let Some(format) = args.output.and_then(Format::structured) {
        structured(&seen.ports.iter().map(value).collect::<Vec<_>>(), format)?;
    } else if seen.ports.is_empty() {
        putln!("no pod of this cluster has a port in Neutron");
    } else {
        let is_wide = args.output == Some(Format::Wide);
        let header = ["POD", "INTERFACE", "STATUS", "ADDRESSES", "HOST", "PORT", "MAC", "NETWORK", "PROJECT"];
        let columns = if is_wide { header.len() } else { 6 };
        let mut rows = Rows::new(header.get(..columns).unwrap_or(&header));
        for OwnedPort { pod, interface, port } in &seen.ports {
            let interface = interface.clone().unwrap_or_else(|| "-".to_owned());
            let mut row = vec![pod.clone(), interface, port.status.clone(), addresses(port), port.host.clone(), port.id.clone()];
            row.extend([port.mac_address.clone(), port.network_id.clone(), port.project_id.clone()]);
            row.truncate(columns);
            rows.push(row);
        }
        rows.print(|line| if line.contains("ACTIVE") { anstyle::Style::new() } else { ODD });
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

fn pools(args: &OpenstackPoolsArgs) -> anyhow::Result<ExitCode> {
    let (openstack, kubeconfig) = (args.look.openstack.read()?, args.look.of.file()?);
    if args.delete {
        let deleted = delete_ready(&openstack, kubeconfig.as_deref(), &args.namespace)?;
        match args.look.output.and_then(Format::structured) {
            Some(format) => structured(&json!({"deleted": deleted}), format)?,
            None => putln!("{} deleted", counted(deleted.len(), "ready port")),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let seen = look(&openstack, kubeconfig.as_deref())?;
    if let Some(format) = args.look.output.and_then(Format::structured) {
        structured(&seen.pools.iter().map(pool).collect::<Vec<_>>(), format)?;
    } else if seen.pools.is_empty() {
        putln!("this cluster has no ready ports");
    } else {
        let is_wide = args.look.output == Some(Format::Wide);
        let header = ["HOST", "NETWORK", "SUBNETS", "READY", "IN USE", "PROJECT", "SECURITY GROUPS"];
        let columns = if is_wide { header.len() } else { 5 };
        let mut rows = Rows::new(header.get(..columns).unwrap_or(&header));
        for PoolSeen { kind, subnets, ready, used } in &seen.pools {
            let place = kind.trunk.as_ref().map_or_else(|| kind.host.clone(), |id| format!("trunk {id}"));
            let mut row = vec![place, kind.network.clone(), subnets.join(", "), ready.to_string(), used.to_string()];
            row.extend([kind.project.clone(), kind.groups.iter().cloned().collect::<Vec<_>>().join(", ")]);
            row.truncate(columns);
            rows.push(row);
        }
        rows.print(|_| anstyle::Style::new());
    }
    Ok(ExitCode::SUCCESS)
}

fn orphans(args: &OpenstackOrphansArgs) -> anyhow::Result<ExitCode> {
    let (openstack, kubeconfig) = (args.look.openstack.read()?, args.look.of.file()?);
    let seen = look(&openstack, kubeconfig.as_deref())?;
    if let Some(format) = args.look.output.and_then(Format::structured) {
        structured(&seen.orphans.iter().map(orphan).collect::<Vec<_>>(), format)?;
    } else if seen.orphans.is_empty() {
        putln!("every port of this cluster is a pod's");
    } else {
        let mut rows = Rows::new(&["PORT", "POD UID", "STATUS", "ADDRESSES", "HOST"]);
        for Orphan { pod_uid, port } in &seen.orphans {
            rows.push(vec![port.id.clone(), pod_uid.clone(), port.status.clone(), addresses(port), port.host.clone()]);
        }
        rows.print(|_| anstyle::Style::new());
    }
    if !seen.anothers.is_empty() && args.look.output.is_none() {
        let next = "they are not deleted";
        putln!("{ODD}{} with the name of this cluster, of another cluster: {next}{ODD:#}", counted(seen.anothers.len(), "port"));
    }
    if args.delete {
        delete_orphans(&openstack, kubeconfig.as_deref(), &seen.orphans, |orphan, was_there| {
            if args.look.output.is_none() {
                let done = if orphan.is_existing() { "given back" } else { "deleted" };
                putln!("{} {}", orphan.port.id, if was_there { done } else { "was gone already" });
            }
        })?;
    }
    let is_well = seen.orphans.is_empty() || args.delete;
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

fn adopt(args: &OpenstackAdoptArgs) -> anyhow::Result<ExitCode> {
    let adoption = operator::adopt(&args.look.openstack.read()?, args.look.of.file()?.as_deref(), args.dry_run)?;
    let (ports, refused) = (adoption.ports.len(), adoption.refused.len());
    if let Some(format) = args.look.output.and_then(Format::structured) {
        let port = |(pod, interface, id): &(String, String, String)| json!({"pod": pod, "interface": interface, "id": id});
        let kept = |(name, why): &(String, String)| json!({"object": name, "why": why});
        let (all, kept) = (adoption.ports.iter().map(port).collect::<Vec<_>>(), adoption.refused.iter().map(kept).collect::<Vec<_>>());
        let ready = |(host, id): &(String, String)| json!({"host": host, "id": id});
        let waiting = adoption.ready.iter().map(ready).collect::<Vec<_>>();
        let (namespaces, definitions) = (&adoption.namespaces, &adoption.definitions);
        let all = json!({"ports": all, "ready": waiting, "namespaces": namespaces, "definitions": definitions, "pods": adoption.pods, "refused": kept});
        structured(&all, format)?;
    } else {
        if ports > 0 {
            let mut rows = Rows::new(&["POD", "INTERFACE", "PORT"]);
            adoption.ports.iter().for_each(|(pod, interface, id)| rows.push(vec![pod.clone(), interface.clone(), id.clone()]));
            rows.print(|_| anstyle::Style::new());
        }
        let done = if args.dry_run { "to be taken over" } else { "taken over" };
        let (ready, pods) = (counted(adoption.ready.len(), "ready port"), counted(adoption.pods.len(), "pod"));
        putln!("{done}: {} and {ready}; Kuryr's finalizer removed from {pods}", counted(ports, "port"));
        for namespace in &adoption.namespaces {
            putln!("network of namespace {namespace} {done}");
        }
        for name in &adoption.definitions {
            let made = if args.dry_run { "is to be made" } else { "was made" };
            putln!("definition {name} {made} from the Network object of its name");
        }
        for (name, why) in &adoption.refused {
            putln!("{BAD}{name} stays as it is: {why}{BAD:#}");
        }
    }
    Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

fn addresses(port: &operator::NeutronPort) -> String {
    port.fixed_ips.iter().map(|ip| ip.ip_address.as_str()).collect::<Vec<_>>().join(", ")
}

fn value(owned: &OwnedPort) -> Value {
    let port = &owned.port;
    let addresses: Vec<&String> = port.fixed_ips.iter().map(|ip| &ip.ip_address).collect();
    json!({
        "pod": owned.pod, "interface": owned.interface, "id": port.id, "status": port.status, "addresses": addresses,
        "mac": port.mac_address, "host": port.host, "network": port.network_id, "project": port.project_id,
    })
}

fn pool(pool: &PoolSeen) -> Value {
    let PoolSeen { kind, subnets, ready, used } = pool;
    json!({
        "host": kind.host, "trunk": kind.trunk, "project": kind.project, "network": kind.network, "subnets": subnets, "securityGroups": kind.groups,
        "ready": ready, "used": used,
    })
}

fn orphan(orphan: &Orphan) -> Value {
    let port = &orphan.port;
    let addresses: Vec<&String> = port.fixed_ips.iter().map(|ip| &ip.ip_address).collect();
    json!({"id": port.id, "podUid": orphan.pod_uid, "status": port.status, "addresses": addresses, "host": port.host})
}
