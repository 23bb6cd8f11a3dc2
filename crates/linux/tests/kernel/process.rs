//! External programs within their limits.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linux::Errno;
use linux::process::{Output, ProcessError, Program, run};

/// A script, removed when dropped.
struct Script(PathBuf);

impl Script {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("nllx-{name}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Script(path)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs a shell script by a path of its own, two minutes and 64 KiB at most.
fn shell(name: &str, text: &str, stdin: &[u8]) -> Result<Output, ProcessError> {
    let script = Script::new(name, &format!("#!/bin/sh\n{text}\n"));
    limited(&script.0, stdin, Duration::from_secs(120), 64 * 1024)
}

fn limited(path: &Path, stdin: &[u8], time: Duration, max_output: usize) -> Result<Output, ProcessError> {
    // Another test thread that forks at this moment inherits the script's descriptor for writing until it has executed.
    for _ in 0..10_000 {
        match once(path, stdin, time, max_output) {
            // Sleeps: nobody tells that a process has executed what it had open.
            Err(ProcessError::TextFileBusy { .. }) => std::thread::sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
    once(path, stdin, time, max_output)
}

fn once(path: &Path, stdin: &[u8], time: Duration, max_output: usize) -> Result<Output, ProcessError> {
    let (env, deadline) = (vec![("PATH".into(), "/usr/bin:/bin".into()), (OsString::from("NLLX"), "a b".into())], Instant::now() + time);
    run(&Program { path, args: &[], env, stdin, deadline, max_output, mounts: None, bound: false, sole: false })
}

fn alive(pid: &str) -> bool {
    // A zombie that nobody has waited for is dead enough.
    fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z "))
}

/// A plugin that is told to log to `etc/profile.d/x.sh`, say.
#[test]
fn a_name_without_a_directory_is_no_file_of_the_host() {
    let output = shell("nowhere", "echo x >made || echo refused; mkdir dir || echo refused; cd / && pwd", b"").unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "refused\nrefused\n/\n");
}

#[test]
fn input_environment_output_and_status() {
    let output = shell("plain", "cat; env | grep -v ^PWD= | grep -v ^_= | sort >&2; exit 3", b"hello").unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"hello"[..]));
    let env = String::from_utf8(output.stderr).unwrap();
    assert!(env.contains("NLLX=a b\nPATH=/usr/bin:/bin") && !env.contains("CARGO"), "{env}");
    let output = shell("stdin", "cat /dev/stdin", b"by name").unwrap();
    assert_eq!(output.stdout, b"by name");
}

#[test]
fn input_that_nobody_reads_is_no_error() {
    let much = vec![b'x'; 4 << 20];
    let output = shell("unread", "exec <&-; echo done", &much).unwrap();
    assert_eq!(output.stdout, b"done\n");
    let output = shell("partly", "head -c 3", &much).unwrap();
    assert_eq!(output.stdout, b"xxx");
}

#[test]
fn at_the_deadline_dies_whatever_was_started() {
    // Of its group, and of a session of its own.
    let script = Script::new("late", "#!/bin/sh\necho why >&2\nsleep 600 &\nsetsid sh -c 'sleep 600; :' &\necho $! > $0.pid\nwait\n");
    let pidfile = PathBuf::from(format!("{}.pid", script.0.display()));
    let within = |patience| {
        let start = Instant::now();
        let error = limited(&script.0, b"", Duration::from_secs(patience), 1000).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(60));
        fs::read_to_string(&pidfile).is_ok_and(|pid| pid.ends_with('\n')).then_some(error)
    };
    // On a machine that does much else the shell may need longer to come to its last line.
    let error = [4, 15].into_iter().find_map(within).expect("the shell comes to its last line");
    assert_eq!(error, ProcessError::TimedOut { path: script.0.clone(), stderr: b"why\n".to_vec() });
    assert!(error.to_string().ends_with("timed out and was killed; it had printed: why"), "{error}");
    let grandchild = fs::read_to_string(&pidfile).unwrap();
    fs::remove_file(pidfile).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while alive(&grandchild) {
        assert!(Instant::now() < end, "{grandchild} lives on");
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Always something to read is no reason to go on for ever.
#[test]
fn who_prints_without_end_meets_one_limit_or_the_other() {
    let yes = Path::new("/usr/bin/yes");
    let error = limited(yes, b"", Duration::from_secs(120), 10 << 20).unwrap_err();
    assert_eq!(error, ProcessError::TooMuchOutput { path: yes.into(), limit: 10 << 20 });
    let start = Instant::now();
    let error = limited(yes, b"", Duration::from_millis(50), usize::MAX).unwrap_err();
    assert!(matches!(error, ProcessError::TimedOut { .. }) && start.elapsed() < Duration::from_secs(60), "{error}");
    let output = shell("exactly", "head -c 65536 /dev/zero; head -c 65536 /dev/zero >&2", b"").unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (65536, 65536));
    let error = shell("above", "head -c 65537 /dev/zero >&2", b"").unwrap_err();
    assert!(matches!(error, ProcessError::TooMuchOutput { limit: 65536, .. }));
}

#[test]
fn a_grandchild_that_holds_the_output_does_not_keep_us() {
    let start = Instant::now();
    let output = shell("held", "sleep 600 & echo $!; exit 0", b"").unwrap();
    assert!(output.status.success() && start.elapsed() < Duration::from_secs(60));
    let pid = String::from_utf8(output.stdout).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while alive(&pid) {
        assert!(Instant::now() < end, "{pid} lives on");
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(5));
    }
    // One that has let go of it is left alone.
    let output = shell("free", "sleep 600 >/dev/null 2>&1 & echo $!", b"").unwrap();
    let pid = String::from_utf8(output.stdout).unwrap();
    assert!(alive(&pid));
    crate::space::output("kill", pid.trim());
}

#[test]
fn what_cannot_be_run_is_told_apart() {
    let path = |s: &str| PathBuf::from(s);
    let run = |p: &Path| limited(p, b"", Duration::from_secs(60), 10).unwrap_err();
    assert_eq!(run(Path::new("/no/such")), ProcessError::NotFound { path: path("/no/such") });
    assert_eq!(run(Path::new("/etc/passwd")), ProcessError::NotExecutable { path: path("/etc/passwd"), errno: Errno::EACCES });
    assert_eq!(run(Path::new("/etc")), ProcessError::NotExecutable { path: path("/etc"), errno: Errno::EACCES });
    let garbage = Script::new("garbage", "\x7fnothing");
    assert_eq!(run(&garbage.0), ProcessError::NotExecutable { path: garbage.0.clone(), errno: Errno::ENOEXEC });
    let lost = Script::new("lost", "#!/no/such/interpreter\n");
    assert_eq!(run(&lost.0), ProcessError::NotFound { path: lost.0.clone() });
    let busy = Script::new("busy", "#!/bin/sh\n");
    let writer = fs::File::options().append(true).custom_flags(0).open(&busy.0).unwrap();
    assert_eq!(once(&busy.0, b"", Duration::from_secs(60), 10), Err(ProcessError::TextFileBusy { path: busy.0.clone() }));
    drop(writer);
}

#[test]
fn a_signal_is_a_status() {
    use std::os::unix::process::ExitStatusExt;
    let output = shell("signal", "kill -9 $$", b"").unwrap();
    assert_eq!(output.status.signal(), Some(9));
}

/// Only the three standard ones, though we hold many, and may have got some from who started us.
#[test]
fn none_of_our_descriptors_is_inherited() {
    let _ours: Vec<_> = (0..20).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    linux::process::close_on_exec().unwrap();
    let output = shell("fds", "ls /proc/$$/fd", b"").unwrap();
    // 10 is where the shell has its script.
    assert_eq!(std::str::from_utf8(&output.stdout).unwrap().split_whitespace().collect::<Vec<_>>(), ["0", "1", "10", "2"]);
}

/// The program is looked for, and runs, among the files of another mount namespace; its input and outputs are ours.
#[test]
fn a_program_of_another_mount_namespace() {
    let dir = std::env::temp_dir().join(format!("nllx-mounts-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let script = "set -e; mount -t tmpfs nllx \"$0\"; printf '#!/bin/sh\\ncat; echo; ls %s\\n' \"$0\" >\"$0/inside\"; chmod +x \"$0/inside\"; echo ready; cat";
    let mut holder = std::process::Command::new("unshare");
    holder.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(&dir);
    let mut holder = holder.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let mounts = fs::File::open(format!("/proc/{}/ns/mnt", holder.id())).unwrap();
    let path = dir.join("inside");
    let run_in = |mounts: Option<std::os::fd::BorrowedFd<'_>>| {
        let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
        run(&Program {
            args: &[],
            path: &path,
            env,
            stdin: b"input",
            deadline: Instant::now() + Duration::from_secs(60),
            max_output: 1000,
            mounts,
            bound: false,
            sole: false,
        })
    };
    let output = run_in(Some(std::os::fd::AsFd::as_fd(&mounts))).map(|out| String::from_utf8(out.stdout).unwrap());
    let (ours, no_namespace) = (run_in(None), run_in(Some(std::os::fd::AsFd::as_fd(&fs::File::open("/dev/null").unwrap()))));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(output.unwrap(), "input\ninside\n");
    assert!(matches!(ours, Err(ProcessError::NotFound { .. })), "{ours:?}");
    assert!(no_namespace.unwrap_err().to_string().contains("enter the host's mount namespace"));
    assert!(linux::process::host_mounts().is_ok());
}

#[test]
fn a_bound_program_ends_with_the_thread_that_runs_it() {
    let dir = std::env::temp_dir().join(format!("netloom-bound-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (script, said) = (dir.join("sleeps"), dir.join("pid"));
    std::fs::write(&script, format!("#!/bin/sh\necho $$ >{}\nexec sleep 60\n", said.display())).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // A process of its own: a thread would wait for the program.
    let parent = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["process::runs_a_bound_program", "--exact", "--ignored", "--nocapture"])
        .env("NETLOOM_BOUND", &script)
        .spawn();
    let mut parent = parent.unwrap();
    let begun = Instant::now();
    let pid = loop {
        match std::fs::read_to_string(&said).ok().and_then(|text| text.trim().parse::<u32>().ok()) {
            Some(pid) => break pid,
            None => assert!(begun.elapsed() < Duration::from_secs(60), "it never started"),
        }
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(5));
    };
    parent.kill().unwrap();
    parent.wait().unwrap();
    let begun = Instant::now();
    let lives = || std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "));
    while lives() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it outlives the process that ran it");
        // Sleeps: between two looks.
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
#[ignore = "the process that another test kills"]
fn runs_a_bound_program() {
    let path = std::path::PathBuf::from(std::env::var_os("NETLOOM_BOUND").unwrap());
    let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
    let deadline = Instant::now() + Duration::from_secs(60);
    let program = Program { path: &path, args: &[], env, stdin: b"", deadline, max_output: 1000, mounts: None, bound: true, sole: true };
    // The script may still be open for writing: in a process that another thread forked while this test wrote it.
    while matches!(run(&program), Err(ProcessError::TextFileBusy { .. })) {
        // Sleeps: nobody tells that a process has executed what it had open.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program that failed ended every other child of this process, when it was bound to its thread.
#[test]
fn a_program_that_fails_leaves_other_children_alone() {
    let mut other = std::process::Command::new("sleep").arg("100000").spawn().unwrap();
    let (path, deadline) = (Path::new("/bin/false"), Instant::now() + Duration::from_secs(300));
    let program =
        Program { path, args: &[], env: Vec::new(), stdin: b"", deadline, max_output: 10, mounts: None, bound: true, sole: false };
    assert!(!run(&program).unwrap().status.success());
    // A signal that came first would be the one that ended it.
    assert!(std::process::Command::new("kill").arg(other.id().to_string()).status().unwrap().success());
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&other.wait().unwrap()), Some(15));
}
