//! The built-in plugins as one executable: the name it is run under is the plugin.
//!
//! ```text
//!   /opt/cni/bin/bridge -> netloom-cni      CNI_COMMAND=ADD ... bridge < config
//! ```

mod agent;
mod install;
mod pod;
mod reach;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use cni::{CniError, Code, Version};
use plugin::About;
use plugins::BUILTINS;

/// Takes memory from the kernel in large pieces; musl's own takes it page by page, a system call and more for each.
#[global_allocator]
static MEMORY: linux::SmallBlocks<dlmalloc::GlobalDlmalloc> = linux::SmallBlocks::new(dlmalloc::GlobalDlmalloc);

/// What the ADD of a pod of four networks takes of memory, in bytes, and how much of it is written to.
const RESERVED: usize = 192 * 1024;
const USED: usize = 64 * 1024;

fn main() -> ExitCode {
    linux::file::ask_while_waiting(plugin::process::tell_of_lock);
    let mut args = std::env::args_os().peekable();
    let name = args.next().unwrap_or_default();
    let name = Path::new(&name).file_name().and_then(OsStr::to_str).unwrap_or_default();
    // As units for the reference plugin start its daemon.
    if name == "dhcp" && args.peek().is_some_and(|arg| arg == "daemon") {
        return daemon(args.skip(1));
    }
    // From here on the program makes one call, and ends.
    linux::give_own_blocks();
    linux::reserve(RESERVED, USED);
    if let Some(plugin) = BUILTINS.iter().find(|p| p.about().name == name) {
        if name == "dhcp" && std::env::var_os("CNI_COMMAND").is_none() {
            eprintln!("`dhcp daemon` runs the daemon that keeps the leases; `dhcp daemon -h` shows its flags.");
        }
        linux::end_process(plugin::process::main_beside(*plugin, BUILTINS, Some(pod::attached_by_others)));
    }
    if agent::PROGRAMS.contains(&name) {
        linux::end_process(agent::main(name));
    }
    if std::env::var_os("CNI_COMMAND").is_some() {
        let msg = format!("{name:?} is not a plugin of this program: link it to the name of a plugin");
        println!("{}", CniError::new(Code::INVALID_ENVIRONMENT, msg).with_details(names()).print(Version::LATEST));
        return ExitCode::FAILURE;
    }
    by_hand(&args.collect::<Vec<_>>())
}

/// `dhcp daemon`.
fn daemon(args: impl Iterator<Item = OsString>) -> ExitCode {
    let settings = match dhcp::Settings::parse(args.map(|arg| arg.to_string_lossy().into_owned())) {
        Ok(settings) => settings,
        Err(help @ dhcp::FlagError::Help) => {
            println!("{help}");
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            eprintln!("dhcp daemon: {e}");
            return ExitCode::from(2);
        }
    };
    match dhcp::run(&settings) {
        Ok(never) => match never {},
        Err(e) => {
            eprintln!("dhcp daemon: {e}");
            ExitCode::FAILURE
        }
    }
}

/// What a person types.
fn by_hand(args: &[OsString]) -> ExitCode {
    match args.iter().map(|arg| arg.to_str()).collect::<Vec<_>>().as_slice() {
        [Some("install"), ..] => install(args.get(1..).unwrap_or_default()),
        [Some("--version" | "-V")] => {
            println!("netloom-cni {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        [] | [Some("--help" | "-h" | "help")] => {
            print!("{}", help());
            ExitCode::SUCCESS
        }
        [other, ..] => wrong(&format!("unknown command {:?}", other.unwrap_or_default())),
    }
}

fn install(args: &[OsString]) -> ExitCode {
    let (flags, dirs): (Vec<&OsString>, Vec<&OsString>) = args.iter().partition(|arg| *arg == "--multus" || *arg == "--force");
    let has = |name: &str| flags.iter().any(|flag| *flag == name);
    match dirs.as_slice() {
        [dir] if dir.to_string_lossy().starts_with('-') => {
            print!("{}", help());
            ExitCode::SUCCESS
        }
        [dir] => install::install(Path::new(dir), has("--multus"), has("--force")),
        [] => wrong("install: DIR is missing"),
        _ => wrong("install: only one DIR is allowed"),
    }
}

fn wrong(what: &str) -> ExitCode {
    eprintln!("netloom-cni: {what}\n\n{}", help());
    ExitCode::from(2)
}

/// Everything that it can be run as.
fn plugins() -> impl Iterator<Item = &'static About> {
    BUILTINS.iter().map(|p| p.about()).chain([&pod::ABOUT])
}

fn names() -> String {
    let names: Vec<&str> = plugins().map(|about| about.name).collect();
    names.join(", ")
}

fn help() -> String {
    let width = plugins().map(|about| about.name.len()).max().unwrap_or(0);
    let mut text = "Run the CNI plugin of the name that this executable is run under.\n\n\
        Usage:\n  netloom-cni install DIR [--multus] [--force]    install it in DIR under the name of each plugin\n\
        \x20                                                 (--multus: and under the names of Multus;\n\
        \x20                                                 --force: also in place of another program's ovs)\n\
        \x20 netloom-cni --version\n\nPlugins:\n"
        .to_owned();
    for about in plugins() {
        text += &format!("  {:width$}  {}\n", about.name, about.summary);
    }
    text
}
