//! Thousands of random calls against a model that is too simple to be wrong: a map and a list of all addresses.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::IpAddr;

use netloom_ipam::{Holder, Owner, RangeSet};

use crate::index::a_tick_later;
use crate::scratch::{Lcg, Scratch, filler, ip, owner, sets};

struct Model {
    /// Each set's addresses in order, gateways left out, and the one handed out last.
    sets: Vec<(Vec<IpAddr>, Option<IpAddr>)>,
    held: BTreeMap<IpAddr, Owner>,
}

impl Model {
    fn new(sets: &[RangeSet]) -> Self {
        let gateways: Vec<IpAddr> = sets.iter().flat_map(RangeSet::ranges).map(|r| r.gateway()).collect();
        let hosts = |set: &RangeSet| -> Vec<IpAddr> {
            let all = set.ranges().iter().flat_map(|r| r.subnet().hosts().filter(|ip| r.contains(*ip)));
            all.filter(|ip| !gateways.contains(ip)).collect()
        };
        Model { sets: sets.iter().map(|s| (hosts(s), None)).collect(), held: BTreeMap::new() }
    }

    fn allocate(&mut self, owner: &Owner, requested: Option<IpAddr>) -> Option<Vec<IpAddr>> {
        let mut chosen = Vec::new();
        if requested.is_some_and(|r| !self.sets.iter().any(|(all, _)| all.contains(&r))) {
            return None;
        }
        for (all, last) in &self.sets {
            let wanted = requested.filter(|r| all.contains(r));
            let duplicate = || all.iter().any(|ip| self.held.get(ip) == Some(owner));
            if wanted.is_none() && duplicate() {
                return None;
            }
            let from = last.and_then(|last| all.iter().position(|ip| *ip == last)).map_or(0, |at| at + 1);
            let mut turn = all[from..].iter().chain(&all[..from]).copied();
            let ip = wanted.or_else(|| turn.find(|ip| !self.held.contains_key(ip)))?;
            if self.held.contains_key(&ip) {
                return None;
            }
            chosen.push(ip);
        }
        for ((_, last), ip) in self.sets.iter_mut().zip(&chosen) {
            *last = Some(*ip);
            self.held.insert(*ip, owner.clone());
        }
        Some(chosen)
    }

    fn remove(&mut self, goes: impl Fn(&Owner) -> bool) -> Vec<IpAddr> {
        let gone: Vec<IpAddr> = self.held.iter().filter(|(_, o)| goes(o)).map(|(ip, _)| *ip).collect();
        self.held.retain(|_, o| !goes(o));
        gone
    }
}

const CONFIGS: [&str; 3] = [
    r#"[[{"subnet":"10.1.0.0/28"}]]"#,
    r#"[[{"subnet":"10.1.0.0/29","gateway":"10.1.0.4"},{"subnet":"10.0.0.0/29"}],[{"subnet":"fd00::/124"}]]"#,
    r#"[[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.3","rangeEnd":"10.1.0.9"}],[{"subnet":"10.1.0.0/24","rangeStart":"10.1.0.20","rangeEnd":"10.1.0.29","gateway":"10.1.0.6"}]]"#,
];

#[test]
fn random_calls() {
    for config in CONFIGS {
        play(config, 1, 3000, |_, _, _| ());
    }
}

/// The same among enough addresses that there is an index, while somebody spoils it and others work on the directory.
#[test]
fn random_calls_with_an_index_that_is_spoilt() {
    let soak: usize = std::env::var("NETLOOM_SOAK").map_or(0, |n| n.parse().unwrap());
    for (seed, config) in CONFIGS.iter().enumerate() {
        let mut vandal = Vandal::default();
        play(config, seed as u64, 1200 + soak, |scratch, random, model| {
            if model.held.len() < 20 {
                scratch.fill(40);
                model.held.extend((1..=40).map(filler));
            }
            if random.below(3) == 0 {
                vandal.strike(scratch, random);
            }
            if random.below(6) == 0 {
                interfere(scratch, random, model);
            }
        });
    }
}

fn play(config: &str, seed: u64, steps: usize, mut before: impl FnMut(&Scratch, &mut Lcg, &mut Model)) {
    let (scratch, sets, mut random) = (Scratch::new(), sets(config), Lcg(seed));
    let (store, mut model) = (scratch.store(), Model::new(&sets));
    let owners = owners();
    for step in 0..steps {
        before(&scratch, &mut random, &mut model);
        let who = &owners[random.below(18) as usize];
        let at = format!("{config}, step {step}, {who}");
        match random.below(100) {
            0..55 => {
                let wanted = ip(&format!("10.1.0.{}", random.below(32)));
                let requested = (random.below(5) == 0).then_some(wanted);
                let got = store.allocate(who, &sets, requested.as_slice());
                let got = got.map(|all| all.iter().map(|a| a.address.addr()).collect::<Vec<_>>());
                assert_eq!(got.ok(), model.allocate(who, requested), "{at} {requested:?}");
            }
            55..97 => assert_eq!(store.release(who).unwrap(), model.remove(|o| o == who), "{at}"),
            _ => {
                let valid: Vec<Owner> = owners.iter().filter(|_| random.below(2) == 0).cloned().collect();
                assert_eq!(store.gc(&valid).unwrap(), model.remove(|o| !valid.contains(o)), "{at}");
            }
        }
        let held: Vec<IpAddr> = model.held.iter().filter(|(_, o)| *o == who).map(|(ip, _)| *ip).collect();
        assert_eq!(store.held(who).unwrap(), held, "{at}");
        if step % 100 == 0 {
            let all: Vec<(IpAddr, Holder)> = model.held.iter().map(|(ip, o)| (*ip, Holder::Attachment(o.clone()))).collect();
            assert_eq!(store.all().unwrap(), all, "{at}");
        }
    }
}

fn owners() -> Vec<Owner> {
    (0..18).map(|n| owner(&format!("c{}", n / 2), ["eth0", "net1"][n % 2])).collect()
}

/// Another makes, removes or renames an address's file, and may set the directory's mtime back as if nothing had been.
fn interfere(scratch: &Scratch, random: &mut Lcg, model: &mut Model) {
    let dir = scratch.store().dir().to_owned();
    let set_back = random.below(8) == 0;
    if set_back {
        a_tick_later();
    }
    let before = fs::metadata(&dir).unwrap().modified().unwrap();
    let all = &model.sets[random.below(model.sets.len() as u64) as usize].0;
    let ip = all[random.below(all.len() as u64) as usize];
    let other = all[random.below(all.len() as u64) as usize];
    match (model.held.remove(&ip), random.below(2)) {
        (None, _) => {
            let owner = owners()[random.below(18) as usize].clone();
            fs::write(dir.join(ip.to_string()), format!("{}\r\n{}", owner.id, owner.ifname)).unwrap();
            model.held.insert(ip, owner);
        }
        (Some(_), 0) => fs::remove_file(dir.join(ip.to_string())).unwrap(),
        (Some(owner), _) => {
            fs::rename(dir.join(ip.to_string()), dir.join(other.to_string())).unwrap();
            model.held.insert(other, owner);
        }
    }
    if set_back {
        File::open(&dir).unwrap().set_modified(before).unwrap();
    }
}

/// Spoils an index.
#[derive(Default)]
struct Vandal {
    older: Vec<u8>,
}

impl Vandal {
    fn strike(&mut self, scratch: &Scratch, random: &mut Lcg) {
        let path = scratch.index();
        if fs::symlink_metadata(&path).is_ok_and(|about| !about.is_file()) {
            return fs::remove_dir(&path).or_else(|_| fs::remove_file(&path)).unwrap();
        }
        let Ok(mut bytes) = fs::read(&path) else { return };
        let length = bytes.len() as u64;
        let (page, other) = (random.below(length / 512 + 1) as usize * 512, random.below(length / 512 + 1) as usize * 512);
        match random.below(9) {
            0 => return fs::remove_file(&path).unwrap(),
            1 => bytes.truncate(random.below(length + 1) as usize),
            2 => (0..random.below(40)).for_each(|_| {
                let byte = bytes.get_mut(random.below(length) as usize);
                byte.into_iter().for_each(|b| *b ^= 1 << random.below(8));
            }),
            3 => bytes.iter_mut().skip(page).take(512).for_each(|b| *b = 0),
            4 => std::mem::swap(&mut bytes, &mut self.older),
            5 => self.older = bytes.clone(),
            6 if page.max(other) + 512 <= bytes.len() => bytes.copy_within(page..page + 512, other),
            // A newer header before older pages is what only a power cut leaves, and the boot ID tells that.
            7 if self.older.len() >= 512 => bytes.iter_mut().zip(&self.older).take(512).for_each(|(b, older)| *b = *older),
            _ if random.below(2) == 0 => {
                fs::remove_file(&path).unwrap();
                return fs::create_dir(&path).unwrap();
            }
            _ => {
                fs::remove_file(&path).unwrap();
                return std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
            }
        }
        fs::write(&path, bytes).unwrap();
    }
}
