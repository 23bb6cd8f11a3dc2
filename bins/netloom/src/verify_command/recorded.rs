//! `netloom verify --from`: a snapshot instead of a network.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use probe::{Event, Recorded};
use verify::case::Need;
use verify::{Attachment, Case, Check, Expected, Link, Place, Planned, Reach, Site, SiteNode, SitePod, Snapshot};

use super::{Kind, Run, ended, report};
use crate::cli::VerifyArgs;
use crate::output::{FAINT, ODD};
use crate::sysdump_command;

pub(super) fn run(args: &VerifyArgs, file: &Path, wanted: &dyn Fn(&Case) -> bool) -> anyhow::Result<ExitCode> {
    // Those of a cluster's nodes are one network, and each has its own node's pods.
    let mut snapshot: Option<Snapshot> = None;
    let mut take = |text: &[u8]| {
        let of_node = Snapshot::read(text)?;
        match &mut snapshot {
            None => snapshot = Some(of_node),
            Some(all) => {
                all.namespaces.extend(of_node.namespaces);
                all.unobserved.extend(of_node.unobserved);
                let (site, more) = (all.site.get_or_insert_default(), of_node.site.unwrap_or_default());
                site.pods.extend(more.pods);
                site.limited.extend(more.limited);
            }
        }
        Ok(())
    };
    sysdump_command::each_snapshot(file, &mut take).with_context(|| format!("read {}", file.display()))?;
    let snapshot = snapshot.unwrap_or_default();
    let site = match snapshot.site.clone() {
        Some(site) if !site.nodes.is_empty() => site,
        of_records => site_of(&snapshot, of_records.unwrap_or_default()),
    };
    anyhow::ensure!(!site.nodes.is_empty(), "{} has no node: there is nothing to verify", file.display());
    let taken = if snapshot.taken.is_empty() { "at an unknown time" } else { &snapshot.taken };
    crate::output::eputln!("{FAINT}taken {taken}: probes are followed over what was recorded; what listens on a port is not{FAINT:#}");
    for unobserved in &snapshot.unobserved {
        crate::output::eputln!("{ODD}warning:{ODD:#} {} was not observed: {}", unobserved.place, unobserved.why);
    }
    let began = Instant::now();
    let planned = verify::plan(&site).into_iter().filter(|planned| wanted(planned.case())).map(recorded).collect();
    let how = probe::Run { concurrency: args.concurrency.into(), timeout: Duration::from_secs(args.timeout) };
    let mut report = |event: Event<'_>| report(args, event);
    let results = probe::run(&Recorded(snapshot), planned, how, &mut report);
    ended(args, &Run { kind: Kind::File, name: &file.display().to_string(), results: &results, took: began.elapsed() })
}

/// What cannot be followed over a snapshot is skipped.
fn recorded(planned: Planned) -> Planned {
    match planned {
        Planned::Check(Check { case, address, expected: Expected::Rate { .. }, .. }) => {
            Planned::Skipped { case, is_ipv4: Some(address.is_ipv4()), why: "how fast bytes get through is not recorded".to_owned() }
        }
        planned => planned,
    }
}

/// Who was there, where the snapshots are of single nodes: the pods that their records had, and every other one with its interfaces as networks.
fn site_of(snapshot: &Snapshot, of_records: Site) -> Site {
    let addresses = |link: &Link| -> Vec<IpAddr> {
        let is_global = |address: &IpAddr| match address {
            IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        };
        link.addresses.iter().map(|own| own.net.addr()).filter(is_global).collect()
    };
    let mut site = of_records;
    let known: BTreeSet<String> = site.pods.iter().map(|pod| pod.name.clone()).collect();
    for namespace in &snapshot.namespaces {
        match &namespace.place {
            Place::Node(name) => {
                // Bridges and tunnels have addresses of the pods' ranges.
                let own = namespace.links.iter().filter(|link| !link.is("bridge") && link.tunnel.is_none());
                let sources = namespace.links.iter().flat_map(addresses).collect();
                site.nodes.push(SiteNode {
                    name: name.clone(),
                    addresses: own.flat_map(addresses).collect(),
                    sources,
                    tunnels: verify::tunnels(snapshot, namespace),
                });
            }
            Place::Pod(name) if !known.contains(name) => {
                let attachment = |link: &Link| Attachment {
                    network: link.name.clone(),
                    is_default: link.name == "eth0",
                    addresses: addresses(link),
                    mtu: Some(link.mtu),
                    reach: if link.name == "eth0" { Reach::Everywhere } else { Reach::Unknown },
                    zone: None,
                };
                let attachments = namespace.links.iter().filter(|link| !addresses(link).is_empty()).map(attachment).collect();
                let node = namespace.node.clone().unwrap_or_default();
                site.pods.push(SitePod { name: name.clone(), node, attachments, ports: Vec::new() });
            }
            _ => {}
        }
    }
    let needs = [Need::ServiceProxy, Need::LoadBalancer, Need::PublicClient, Need::Internet, Need::Metadata];
    site.lacks = needs.map(|need| (need, format!("it needs {need}, and none was recorded"))).to_vec();
    site
}
