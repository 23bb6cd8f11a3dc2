//! `netloom ipam status --cluster`: the pools of a cluster, as its operator counts them.

use std::process::ExitCode;

use anyhow::Context;
use api::{Condition, IpPoolStatus, IpPoolUse};
use cluster::Own;

use super::nodes::name;
use super::{NOT_WELL, words};
use crate::cli::IpamStatusArgs;
use crate::output::{BAD, ODD, Rows, putln, structured};

pub(super) fn run(args: &IpamStatusArgs) -> anyhow::Result<ExitCode> {
    let [mut objects] = cluster::read_all(args.of.file()?.as_deref(), [Own::IpPool])?;
    if let Some(pool) = &args.pool {
        objects.retain(|object| name(object) == pool);
        anyhow::ensure!(!objects.is_empty(), "the cluster has no IPPool {pool:?}");
    }
    let mut pools = Vec::new();
    for object in &objects {
        let status = object.get("status").cloned();
        let read = status.map(serde_json::from_value::<IpPoolStatus>).transpose();
        pools.push((
            name(object),
            read.with_context(|| format!("the status of IPPool {} has another version's format: update netloom", name(object)))?,
        ));
    }
    match args.output {
        Some(format) => structured(&objects, format)?,
        None if pools.is_empty() => putln!("the cluster has no IPPool"),
        None => print(&pools),
    }
    let well = pools.iter().all(|(_, status)| status.as_ref().is_some_and(|status| status.conditions.iter().all(|c| !is_bad(c))));
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(NOT_WELL) })
}

/// `Ready` is to be true, all others are not.
fn is_bad(condition: &Condition) -> bool {
    (condition.kind == "Ready") != (condition.status == "True")
}

fn print(pools: &[(&str, Option<IpPoolStatus>)]) {
    let mut rows = Rows::new(&["POOL", "FAMILY", "CAPACITY", "GRANTED", "IN USE", "USED"]);
    for (pool, status) in pools {
        let mut pool = (*pool).to_owned();
        let (v4, v6) = status.as_ref().map_or((None, None), |s| (s.ipv4.as_ref(), s.ipv6.as_ref()));
        let families = [("IPv4", v4), ("IPv6", v6)].into_iter().filter_map(|(family, used)| Some((family, used?)));
        let mut any = false;
        for (family, IpPoolUse { capacity, granted, in_use }) in families {
            any = true;
            let total = capacity.parse::<u128>().ok();
            let used = total.map_or_else(|| "-".to_owned(), |total| words::percent((*in_use).into(), total));
            let capacity = total.map_or_else(|| capacity.clone(), words::count);
            rows.push(vec![std::mem::take(&mut pool), family.to_owned(), capacity, granted.to_string(), in_use.to_string(), used]);
        }
        if !any {
            rows.push([vec![pool], vec!["-".to_owned(); 5]].concat());
        }
    }
    rows.print(|_| anstyle::Style::new());
    for (pool, status) in pools {
        match status {
            None => putln!("{ODD}{pool}: the operator has not processed it yet{ODD:#}"),
            Some(status) => {
                for condition in status.conditions.iter().filter(|condition| is_bad(condition)) {
                    let name = if condition.kind == "Ready" { "not Ready" } else { &condition.kind };
                    putln!("{BAD}{pool}: {name}: {}{BAD:#}", condition.message);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bad() {
        let condition = |kind: &str, status: &str| Condition { kind: kind.into(), status: status.into(), ..Condition::default() };
        let bad = [("Ready", "True", false), ("Ready", "False", true), ("Exhausted", "True", true), ("Overlap", "False", false)];
        bad.iter().for_each(|(kind, status, bad)| assert_eq!(is_bad(&condition(kind, status)), *bad, "{kind} {status}"));
    }
}
