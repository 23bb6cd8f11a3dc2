//! Kills at random moments: between the points, and inside the kernel.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::crash::lab::LabScene;
use crate::crash::network::Scene;
use crate::crash::sandbox::{Deadly, PATIENCE};
use crate::promises;

const CONTAINERS: [&str; 2] = ["c1", "c2"];

/// Xorshift (Marsaglia), from a seed that a failure tells.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new() -> Self {
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = std::env::var("NETLOOM_SEED").ok().map_or_else(now, |s| s.parse().expect("NETLOOM_SEED is a number"));
        eprintln!("NETLOOM_SEED={seed}");
        Chance(seed | 1)
    }

    /// Another one, for another thread.
    pub(crate) fn split(&mut self) -> Self {
        Chance(self.below(u64::MAX) | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn within(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.below((longest.as_micros() as u64).max(1)))
    }
}

/// Starts a process, feeds it, and kills it after a time; whether that came too late.
fn outlives((mut command, stdin): (Command, String), after: Duration) -> bool {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    // Sleeps: killed at a random moment.
    std::thread::sleep(after);
    let _ = child.kill();
    child.wait().unwrap().code().is_some()
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// One of two containers comes or goes and is killed on the way, while the other one may be half-way itself.
pub(crate) fn network(scene: &Scene, chance: &mut Chance, kills: usize) {
    let (mut add, mut del) = (time(|| scene.must("ADD", "c1")), time(|| scene.must("DEL", "c1")));
    let clean = |when: &str| {
        CONTAINERS.iter().for_each(|container| scene.must("DEL", container));
        scene.host.expect_traces(&scene.before, when);
    };
    let mut done = 0;
    while done < kills {
        let container = CONTAINERS[chance.below(2) as usize];
        let (verb, longest) = if scene.is_attached(container) { ("DEL", &mut del) } else { ("ADD", &mut add) };
        // How long a call takes depends on what else the machine does: about every second one is to be killed.
        let is_over = outlives(scene.prepare(verb, container), chance.within(*longest));
        *longest = if is_over { *longest * 9 / 10 } else { *longest * 11 / 10 };
        if is_over {
            continue;
        }
        done += 1;
        let when = format!("{verb} {container}, random kill number {done}");
        promises::hold(&scene.host, &when);
        // Now, or after something happens to the other.
        if chance.below(3) > 0 {
            scene.must("DEL", container);
        }
        if chance.below(3) > 0 && !scene.is_attached(container) {
            scene.must("ADD", container);
            promises::hold(&scene.host, &format!("{when}, and an ADD"));
        }
        if done % 50 == 0 {
            clean(&when);
        }
    }
    clean("random kills");
}

/// ADD and DEL of one sandbox, begun at about the same time, of which either may be killed.
pub(crate) fn sandbox(scene: &Deadly, chance: &mut Chance, rounds: usize) {
    let longest = time(|| scene.must("add"));
    scene.must("del");
    for round in 0..rounds {
        let when = format!("ADD and DEL, random round number {round}");
        let begin = |verb, chance: &mut Chance| {
            // Sleeps: begun at a random moment.
            std::thread::sleep(chance.within(longest));
            scene.command(verb, PATIENCE).spawn().unwrap()
        };
        let mut calls = [begin("add", chance), begin("del", chance)];
        // Sleeps: killed at a random moment.
        std::thread::sleep(chance.within(longest));
        if let Some(call) = calls.get_mut(chance.below(4) as usize) {
            let _ = call.kill();
        }
        for call in &mut calls {
            call.wait().unwrap();
        }
        promises::hold(&scene.host, &when);
        // Either of them mends what is left.
        if chance.below(2) == 0 {
            let add = scene.call("add", PATIENCE);
            assert!(add.code == 0 || add.stderr.contains("DEL it first"), "{when}: {add:?}");
        }
        scene.must("del");
        scene.clean(&when);
    }
}

/// A lab is killed while it comes up or goes down.
pub(crate) fn lab(scene: &LabScene, chance: &mut Chance, kills: usize) {
    let up = time(|| scene.up());
    let down = time(|| scene.recover("a lab"));
    for kill in 0..kills {
        let (verb, longest) = if chance.below(2) == 0 { ("up", up) } else { ("down", down) };
        if verb == "down" {
            scene.up();
            scene.mend();
        }
        outlives((scene.command(verb), String::new()), chance.within(longest));
        scene.recover(&format!("{verb}, random kill number {kill}"));
    }
}
