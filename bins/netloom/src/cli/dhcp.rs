//! `netloom dhcp`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// The flags of the reference plugin's daemon, by the same names; they work with one dash as well.
#[derive(Debug, Args)]
pub(crate) struct DhcpArgs {
    /// The file to write the process ID to
    #[arg(long, value_name = "FILE")]
    pub(crate) pidfile: Option<PathBuf>,
    /// The prefix of every path of the host, where the host's files are mounted elsewhere
    #[arg(long, value_name = "DIR")]
    pub(crate) hostprefix: Option<PathBuf>,
    /// The socket to listen on, unless systemd passes one; leases are stored beside it
    #[arg(long, value_name = "FILE", default_value = dhcp::SOCKET)]
    pub(crate) socketpath: PathBuf,
    /// Ask servers to broadcast their replies, for links that share a hardware address, such as ipvlan
    #[arg(long)]
    pub(crate) broadcast: bool,
    /// How long to wait for the reply to a message
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub(crate) timeout: Duration,
    /// The longest pause between two attempts
    #[arg(long, value_name = "TIME", default_value = "62s", value_parser = time)]
    pub(crate) resendmax: Duration,
    /// How long an ADD retries
    #[arg(long, value_name = "TIME", default_value = "208s", value_parser = time)]
    pub(crate) resendtimeout: Duration,
}

fn time(text: &str) -> Result<Duration, String> {
    dhcp::duration(text).filter(|d| !d.is_zero()).ok_or_else(|| "expected a duration such as 10s, 1m30s or 500ms".to_owned())
}

/// The command line, where flags of `dhcp` may have one dash, as Go writes them.
pub(crate) fn with_two_dashes(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.collect();
    if args.get(1).is_some_and(|command| command == "dhcp") {
        // As the reference plugin has it, whose command is `dhcp daemon`.
        if args.get(2).is_some_and(|word| word == "daemon") {
            args.remove(2);
        }
        for arg in args.iter_mut().skip(2) {
            let text = arg.to_string_lossy();
            if text.len() > 2 && text.starts_with('-') && !text.starts_with("--") {
                *arg = format!("-{text}").into();
            }
        }
    }
    args
}
