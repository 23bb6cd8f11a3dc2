//! `netloom operator`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use operator::{LogLevel, Options};

use crate::cli::{OperatorArgs, OperatorLogLevel};

pub(crate) fn run(args: &OperatorArgs) -> anyhow::Result<ExitCode> {
    let identity = args.identity.clone().filter(|name| !name.is_empty());
    let openstack = args.openstack.is_given().then(|| args.openstack.read()).transpose()?;
    let options = Options {
        openstack,
        kubeconfig: args.kubeconfig.clone(),
        namespace: args.namespace.clone(),
        lease: !args.no_lease,
        grace: Duration::from_secs(args.grace),
        health_address: args.health_address,
        writes_per_second: args.writes_per_second,
        cilium_nodes: args.cilium_nodes.clone(),
        release_delay: Duration::from_secs(args.excess_ip_release_delay),
        log_level: match args.log_level {
            OperatorLogLevel::Error => LogLevel::Error,
            OperatorLogLevel::Warn => LogLevel::Warn,
            OperatorLogLevel::Info => LogLevel::Info,
        },
        ..Options::new(identity.map_or_else(own_name, Ok)?)
    };
    operator::run(options)?;
    Ok(ExitCode::SUCCESS)
}

fn own_name() -> anyhow::Result<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").context("read the host name; set another name with --identity")?;
    Ok(format!("{}-{}", host.trim(), std::process::id()))
}
