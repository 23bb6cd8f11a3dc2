//! Programs that run beside a test, and end with it.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use crate::Host;

/// What the system bus of a test's machine lets everybody do.
const BUS: &str = "<busconfig><listen>unix:path=/run/dbus/system_bus_socket</listen><policy context='default'>\
    <allow send_destination='*'/><allow receive_sender='*'/><allow own='*'/></policy></busconfig>";

/// A program that ends with the test, also with one that fails.
pub struct Running(Child);

// === impl Running ===

impl Running {
    /// Starts it, in silence. What it says on standard error goes to the end of the file that `RUNNING_LOG` names.
    pub fn start(command: &mut Command) -> Self {
        let log = |path| File::options().create(true).append(true).open(path).unwrap().into();
        let log = std::env::var_os("RUNNING_LOG").map_or_else(Stdio::null, log);
        Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Starts it; what it says on standard error goes to this file.
    pub fn with_log(command: &mut Command, log: File) -> Self {
        Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    /// Starts it; what it prints and says goes to these files.
    pub fn with_output(command: &mut Command, out: File, log: File) -> Self {
        Running(command.stdin(Stdio::null()).stdout(out).stderr(log).spawn().unwrap())
    }

    /// Waits until it has ended by itself: whether it succeeded.
    pub fn ends_well(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }

    /// The system bus of a machine: a real dbus-daemon, that listens where programs look for it.
    pub fn system_bus(host: &Host) -> Self {
        host.write("/run/dbus/bus.conf", BUS);
        let mut daemon = host.command("", "dbus-daemon");
        let bus = Running::start(daemon.args(["--config-file=/run/dbus/bus.conf", "--nofork", "--nopidfile"]));
        host.until("the bus listens", || host.path("/run/dbus/system_bus_socket").exists());
        bus
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
