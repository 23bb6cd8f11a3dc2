//! The command line of Netloom.

mod agent_command;
mod cli;
mod cni_command;
mod dhcp_command;
mod generate;
mod ipam_command;
mod lab_command;
mod operator_command;
mod output;
mod page;
mod repair_command;
mod rules_command;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    linux::file::ask_while_waiting(plugin::process::tell_of_lock);
    // Run under the name of the reference library's tool, it is that tool.
    let name = std::env::args_os().next().unwrap_or_default();
    let is_cnitool = std::path::Path::new(&name).file_name().is_some_and(|n| n == "cnitool");
    let done = match is_cnitool {
        true => cni_command::run(&cli::Cnitool::parse().into_args()),
        false => run(&Cli::parse_from(cli::with_two_dashes(std::env::args_os()))),
    };
    match done {
        Ok(code) => code,
        Err(e) => {
            let bold = anstyle::Style::new().bold().fg_color(Some(anstyle::AnsiColor::Red.into()));
            anstream::eprintln!("{bold}error:{bold:#} {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    cli.color.write_global();
    match &cli.command {
        Command::Status(args) => agent_command::status::run(args),
        Command::Pods(args) => agent_command::pods::run(args),
        Command::Explain(args) => agent_command::explain::run(args),
        Command::Agent(args) => agent_command::run::run(args),
        Command::Operator(args) => operator_command::run(args),
        Command::Lab(command) => lab_command::run(command),
        Command::Cni(command) => cni_command::run(command),
        Command::Dhcp(args) => dhcp_command::run(args),
        Command::Ipam(args) => ipam_command::run(args),
        Command::Rules(args) => rules_command::run(args),
        Command::Repair(args) => repair_command::run(args),
        Command::Plugins(args) => generate::plugins(args),
        Command::Completion { shell } => generate::completion(*shell),
        Command::Man { dir } => generate::man(dir),
    }
}
