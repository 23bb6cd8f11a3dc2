//! The way to an agent and back: what a call takes until an agent has it, and from its answer until a runtime has that.
//!
//! ```text
//!   a round --fork, exec--> netloom-cni --------Call--> a thread of this process, which answers at once
//!           <----stdout----             <------Answer--
//!           --fork, exec--> floor ask ----the same----> the same thread
//! ```
//!
//! The bare program reads nothing of what it carries.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use wire::{Answer, ToShim};

use crate::figures::{Spread, ms};
use crate::goals::Goal;
use crate::namespace::Namespace;
use crate::network::{MACVLANS, Verb};
use crate::side::{Job, output_of, plugin_job};

/// Rounds before the first that counts.
const WARM_UP: usize = 5;

/// By how much more than the bare program ours may take.
const MOST: Duration = Duration::from_micros(1200);

/// Both times.
#[derive(Debug)]
pub(crate) struct Way {
    ours: Spread,
    bare: Spread,
}

/// Calls both in turn.
pub(crate) fn run(plugins: &Path, floor: &Path, scratch: &Path, rounds: usize, tell: &mut dyn FnMut(usize)) -> Result<Way> {
    let socket = scratch.join("way.sock");
    let result = result();
    let answer = Answer { exit: 0, stdout: result.clone().into_bytes(), again: false, probe: false };
    let calls =
        answer_calls(UnixListener::bind(&socket).context("listen as an agent")?, wire::framed(&ToShim::Answer(answer), wire::MAX_CALL)?);
    let container = Namespace::make("way")?;
    let config = json!({"cniVersion": "1.1.0", "name": "netloom", "type": "netloom", "agent": socket});
    let ours = plugin_job(plugins, "netloom", Verb::Add, &container, "eth0", &config);
    timed(&ours)?;
    let call = calls.recv().context("no call has come")?;
    let args = vec!["ask".to_owned(), socket.display().to_string()];
    let bare = Job { program: floor.to_owned(), args, env: Vec::new(), input: String::from_utf8(call)? };
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..WARM_UP + rounds {
        for at in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
            let (time, printed) = timed(if at == 0 { &ours } else { &bare })?;
            // Ours prints the result, the bare program the message in which it lies.
            let whole = if at == 0 { printed == result.as_bytes() } else { printed.len() > result.len() };
            ensure!(whole, "this is not the answer: {}", String::from_utf8_lossy(&printed));
            if round >= WARM_UP {
                times.iter_mut().skip(at).take(1).for_each(|times| times.push(time));
            }
        }
        tell(round);
    }
    let [ours, bare] = times.map(Spread::of);
    Ok(Way { ours, bare })
}

fn timed(job: &Job) -> Result<(Duration, Vec<u8>)> {
    let command = job.command();
    let start = Instant::now();
    let output = output_of(command, &job.input).with_context(|| format!("run {}", job.program.display()))?;
    let time = start.elapsed();
    ensure!(output.status.success(), "{}: {}", job.program.display(), String::from_utf8_lossy(&output.stdout));
    Ok((time, output.stdout))
}

/// Answers every call with the same bytes, until the process ends; the calls.
fn answer_calls(listener: UnixListener, answer: Vec<u8>) -> Receiver<Vec<u8>> {
    let hear = |stream: &mut UnixStream| -> std::io::Result<Vec<u8>> {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut call = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut call)?;
        Ok(call)
    };
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A caller without an answer fails, and only the first call is used.
            let _ = hear(&mut stream).map(|call| stream.write_all(&answer).map(|()| tell.send(call)));
        }
    });
    told
}

/// What an agent answers for a pod of four networks.
fn result() -> String {
    let interface = |name: &str| json!({"name": name, "mac": "02:00:00:00:00:01", "mtu": 1500, "sandbox": "/run/netns/pod"});
    let interfaces: Vec<Value> = [interface("eth0")].into_iter().chain(MACVLANS.map(|net| interface(&format!("net{net}")))).collect();
    let ips: Vec<Value> = (0..interfaces.len()).map(|at| json!({"interface": at, "address": format!("10.{}.0.2/16", 77 + at)})).collect();
    let result = json!({"cniVersion": "1.1.0", "interfaces": interfaces, "ips": ips, "dns": {}});
    format!("{result:#}\n")
}

// === impl Way ===

impl Way {
    fn more(&self) -> Duration {
        self.ours.p50.saturating_sub(self.bare.p50)
    }

    pub(crate) fn table(&self, rounds: usize) -> String {
        let mut text = format!("the way to an agent that answers at once, and back: {rounds} rounds, turn by turn, ms\n");
        text += &format!("{:8} {:^17} {:^17}   {:>9}\n", "", "netloom-cni", "a bare program", "more");
        let cells = [self.ours.p50, self.ours.p99, self.bare.p50, self.bare.p99].map(|time| format!(" {:>8}", ms(time))).concat();
        text += &format!("{:8} {:>8} {:>8} {:>8} {:>8}\n", "", "p50", "p99", "p50", "p99");
        text + &format!("{:8}{cells}   {:>8}\n", "ADD", ms(self.more()))
    }

    pub(crate) fn goal(&self) -> Goal {
        let (most, more) = (MOST.as_secs_f64() * 1e3, self.more().as_secs_f64() * 1e3);
        Goal::at_most("the way to an agent and back: ms more than by a bare program", most, more)
    }

    pub(crate) fn json(&self) -> Value {
        json!({"netloom_cni": self.ours.json(), "bare": self.bare.json()})
    }
}
