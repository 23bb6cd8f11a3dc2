//! `netloom lab status`

use std::process::ExitCode;

use attach::ReportedDevice;
use lab::{Health, Lab, PodRef, PodStatus};
use npwg::NetworkStatus;
use serde::Serialize;

use super::{SOME_FAILED, open};
use crate::cli::{Structured, Which};
use crate::output::{BAD, FAINT, ODD, Rows, TITLE, putln, structured};

pub(crate) fn run(which: &Which, pod: Option<&PodRef>, output: Option<Structured>) -> anyhow::Result<ExitCode> {
    super::must_be_root()?;
    let lab = open(which)?;
    let mut all = lab::status(&lab)?;
    if let Some(pod) = pod {
        let wanted = lab.pod(pod)?.full_name();
        all.retain(|p| p.pod.full_name() == wanted);
    }
    match (output, pod, all.as_slice()) {
        (Some(format), Some(_), [one]) => structured(&one.networks, format)?,
        (Some(format), ..) => structured(&views(&all), format)?,
        (None, Some(_), [one]) => detail(one),
        (None, ..) => {
            table(&all);
            tunnels(&lab)?;
        }
    }
    Ok(if all.iter().all(|p| p.health == Health::Ready) { ExitCode::SUCCESS } else { ExitCode::from(SOME_FAILED) })
}

/// What there is of WireGuard between the nodes.
pub(crate) fn tunnels(lab: &Lab) -> anyhow::Result<()> {
    let all: Vec<String> = lab::tunnels(lab)?.into_iter().map(|node| format!("{} {} of {}", node.node, node.in_use, node.peers)).collect();
    if !all.is_empty() {
        putln!("\nWireGuard between nodes: {} (tunnels in use in the last 3 minutes)", all.join(", "));
    }
    Ok(())
}

/// One pod as data.
#[derive(Serialize)]
struct View<'a> {
    namespace: &'a str,
    name: &'a str,
    node: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<&'a str>,
    networks: &'a [NetworkStatus],
}

impl<'a> View<'a> {
    fn of(p: &'a PodStatus) -> Self {
        let reasons = reasons(&p.health).iter().map(String::as_str).collect();
        View { namespace: &p.pod.namespace, name: &p.pod.name, node: &p.pod.node, state: state(&p.health), reasons, networks: &p.networks }
    }
}

/// Every pod of a lab as data.
pub(crate) fn structured_all(lab: &Lab, format: Structured) -> anyhow::Result<()> {
    structured(&views(&lab::status(lab)?), format)
}

fn views(all: &[PodStatus]) -> Vec<View<'_>> {
    all.iter().map(View::of).collect()
}

fn state(health: &Health) -> &'static str {
    match health {
        Health::Ready => "Ready",
        Health::Failed(_) => "Failed",
        Health::Changed(_) => "Changed",
    }
}

fn reasons(health: &Health) -> &[String] {
    match health {
        Health::Ready => &[],
        Health::Failed(reason) => std::slice::from_ref(reason),
        Health::Changed(reasons) => reasons,
    }
}

/// A row for each attachment; the pod's name stands in its first. A narrow terminal gets fewer columns, then a row for
/// each address.
pub(crate) fn table(all: &[PodStatus]) {
    let forms = [(true, false), (false, false), (false, true)];
    let tables = forms.map(|(whole, apart)| rows(all, whole, apart));
    let fitting = tables.iter().find(|rows| rows.fits()).or(tables.last());
    if let Some(rows) = fitting {
        rows.print(|line| match line.split_whitespace().nth(1) {
            Some("Failed") => BAD,
            Some("Changed") => ODD,
            _ => anstyle::Style::new(),
        });
    }
}

/// `whole`: with MAC and gateway. `apart`: a row for each address.
fn rows(all: &[PodStatus], whole: bool, apart: bool) -> Rows {
    let header = ["POD", "STATE", "NETWORK", "INTERFACE", "ADDRESSES", "MAC", "GATEWAY"];
    let columns = if whole { header.len() } else { 5 };
    let mut rows = Rows::new(header.get(..columns).unwrap_or_default());
    let or_none = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
    for p in all {
        let (mut name, mut state) = (p.pod.full_name(), state(&p.health).to_owned());
        if p.networks.is_empty() {
            let row = [vec![name, state], vec!["-".to_owned(); columns.saturating_sub(2)]].concat();
            rows.push(row);
            continue;
        }
        for network in &p.networks {
            let (first, others) = match network.ips.split_first() {
                Some((first, others)) if apart => (first.clone(), others),
                _ => (network.ips.join(", "), &[][..]),
            };
            let mut row = vec![
                std::mem::take(&mut name),
                std::mem::take(&mut state),
                network.name.clone(),
                or_none(network.interface.clone().unwrap_or_default()),
                or_none(first),
                or_none(network.mac.clone().unwrap_or_default()),
                or_none(network.gateway.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            ];
            row.truncate(columns);
            rows.push(row);
            let more = |address: &String| [vec![String::new(); 4], vec![address.clone()]].concat();
            others.iter().for_each(|address| rows.push(more(address)));
        }
    }
    rows
}

/// One pod at length.
fn detail(p: &PodStatus) {
    let (good, state) = (p.health == Health::Ready, state(&p.health));
    let style = if good { TITLE } else { BAD };
    putln!("{TITLE}{}{TITLE:#} on {}: {style}{state}{style:#}", p.pod.full_name(), p.pod.node);
    for reason in reasons(&p.health) {
        putln!("  {BAD}{reason}{BAD:#}");
    }
    if let Some(networks) = &p.pod.networks {
        putln!("{FAINT}asked for: {}{FAINT:#}", networks.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    for network in &p.networks {
        let default = if network.default { " (default network)" } else { "" };
        putln!("\n{TITLE}{}{TITLE:#}  {}{default}", network.interface.as_deref().unwrap_or("-"), network.name);
        let line = |key: &str, value: String| {
            if !value.is_empty() {
                putln!("  {key:<10}{value}");
            }
        };
        line("addresses", network.ips.join(", "));
        line("MAC", network.mac.clone().unwrap_or_default());
        line("MTU", network.mtu.map(|m| m.to_string()).unwrap_or_default());
        line("gateway", network.gateway.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
        let step = p.record.iter().flat_map(|r| &r.steps).find(|s| Some(s.ifname.as_str()) == network.interface.as_deref());
        let device = step.map(|s| match &s.device {
            ReportedDevice::Nothing => String::new(),
            ReportedDevice::Info(info) => info.kind().to_owned(),
            ReportedDevice::Unusable(why) => format!("{BAD}not in the status: {why}{BAD:#}"),
        });
        line("device", device.unwrap_or_default());
        line("plugins", step.map(|s| s.list.plugins.iter().map(|p| p.kind.to_string()).collect::<Vec<_>>().join(", ")).unwrap_or_default());
    }
}
