//! `netloom probe`: what a verification starts in a pod.

use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use linux::Inside;
use probe::{Listener, Question, Sink, Transport};

use crate::cli::{ProbeArgs, ProbeCommand};
use crate::output::putln;

pub(crate) fn run(args: &ProbeArgs) -> anyhow::Result<ExitCode> {
    let inside = Inside::here();
    match &args.command {
        ProbeCommand::Serve { name, port, sink } => {
            anyhow::ensure!(!name.contains(char::is_whitespace), "--name {name:?}: a name has no spaces");
            let both = port.iter().flat_map(|port| [(Transport::Tcp, *port), (Transport::Udp, *port)]);
            let listeners = both.map(|(transport, port)| Listener::open(&inside, name, transport, port)).collect::<Result<Vec<_>, _>>()?;
            // As process 1 of a container, it would not be ended by SIGTERM: its port would be in use until it is killed.
            linux::on_interrupt(|| {}).context("wait for SIGTERM")?;
            let sink = sink.then(|| Sink::open(&inside, name)).transpose()?;
            let end = AtomicBool::new(false);
            std::thread::scope(|scope| {
                sink.as_ref().map(|sink| scope.spawn(|| sink.swallow(&end)));
                probe::serve(&listeners, &end);
            });
        }
        ProbeCommand::Work => probe::work(std::io::stdin().lock(), std::io::stdout())?,
        ProbeCommand::Ask { to, udp, size, timeout } => {
            let transport = if *udp { Transport::Udp } else { Transport::Tcp };
            let answer = probe::ask(&inside, &Question { to: *to, transport, size: *size, patience: Duration::from_secs(*timeout) })?;
            putln!("{} sees {}", answer.name, answer.seen);
        }
    }
    Ok(ExitCode::SUCCESS)
}
