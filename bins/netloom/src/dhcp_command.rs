//! `netloom dhcp`: the daemon of the plugin `dhcp`.

use std::process::ExitCode;

use crate::cli::DhcpArgs;

/// Runs it until a signal ends it.
pub(crate) fn run(args: &DhcpArgs) -> anyhow::Result<ExitCode> {
    let settings = dhcp::Settings {
        pidfile: args.pidfile.clone(),
        hostprefix: args.hostprefix.clone().unwrap_or_default(),
        socketpath: args.socketpath.clone(),
        broadcast: args.broadcast,
        timeout: args.timeout,
        resendmax: args.resendmax,
        resendtimeout: args.resendtimeout,
    };
    match dhcp::run(&settings)? {}
}
