//! The command line of Netloom.

mod agent_command;
mod cli;
mod cni_command;
mod complete;
mod dhcp_command;
mod diagnostics;
mod generate;
mod help;
mod ipam_command;
mod lab_command;
mod openstack_command;
mod operator_command;
mod output;
mod page;
mod probe_command;
mod repair_command;
mod rules_command;
mod sysdump_command;
mod terminal;
mod validate_command;
mod verify_command;
mod version_command;

use std::process::ExitCode;

use clap::{Command as Line, FromArgMatches};
use clap_complete::CompleteEnv;

use cli::{Cli, Command};

/// The threads of an agent take a thousand small blocks for a pod: behind the lock of musl's allocator, each waited for the others.
#[cfg(target_env = "musl")]
#[global_allocator]
static MEMORY: linux::SmallBlocks<std::alloc::System> = linux::SmallBlocks::new(std::alloc::System);

fn main() -> ExitCode {
    linux::file::ask_while_waiting(plugin::process::tell_of_lock);
    // Run under the name of the reference library's tool, it is that tool.
    let name = std::env::args_os().next().unwrap_or_default();
    let is_cnitool = std::path::Path::new(&name).file_name().is_some_and(|n| n == "cnitool");
    let done = if is_cnitool {
        cni_command::run(&parse::<cli::Cnitool>(help::cnitool(), std::env::args_os()).into_args())
    } else {
        CompleteEnv::with_factory(help::command).var(complete::VARIABLE).complete();
        run(&parse::<Cli>(help::command(), cli::with_two_dashes(std::env::args_os())))
    };
    match done {
        Ok(code) => code,
        Err(e) => {
            let bold = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Red.into()));
            crate::output::eputln!("{bold}error:{bold:#} {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// The command line as checked; what is wrong with it ends the program.
fn parse<T: FromArgMatches>(mut line: Line, args: impl IntoIterator<Item = std::ffi::OsString>) -> T {
    let matches = line.try_get_matches_from_mut(args).unwrap_or_else(|e| e.exit());
    T::from_arg_matches(&matches).unwrap_or_else(|e| e.format(&mut line).exit())
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    cli.color.write_global();
    match &cli.command {
        Command::Status(args) => agent_command::status::run(args),
        Command::Pods(args) => agent_command::pods::run(args),
        Command::Nodes(args) => agent_command::nodes::run(args),
        Command::Explain(args) => agent_command::explain::run(args),
        Command::Agent(args) => agent_command::run::run(args),
        Command::Operator(args) => operator_command::run(args),
        Command::Openstack(args) => openstack_command::run(args),
        Command::Validate(args) => validate_command::run(args),
        Command::Lab(command) => lab_command::run(command),
        Command::Verify(args) => verify_command::run(args),
        Command::Sysdump(args) => sysdump_command::run(args),
        Command::Probe(args) => probe_command::run(args),
        Command::Cni(command) => cni_command::run(command),
        Command::Dhcp(args) => dhcp_command::run(args),
        Command::Ipam(args) => ipam_command::run(args),
        Command::Rules(args) => rules_command::run(args),
        Command::Repair(args) => repair_command::run(args),
        Command::Plugins(args) => generate::plugins(args),
        Command::Version(args) => version_command::run(args),
        Command::Completion { shell } => generate::completion(*shell),
        Command::Man { dir } => generate::man(dir),
    }
}
