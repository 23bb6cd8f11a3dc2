//! What is to go, and the one order in which it goes.
//!
//! ```text
//!   rule elements -> devices given back -> links (all of a namespace at once) -> leases -> files
//! ```
//!
//! An address is free only after its link is gone. Whatever fails stops the later stages of its own attachment, so
//! that nothing is given away that may still be in use; everything else goes on, and every failure is returned.
//!
//! Module `retire` has the order in two halves, of which the first one waits for no grace period of the kernel.

mod retire;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use cni::{CniError, Code, IfName};
use linux::nft::SetElement;
use linux::{Inside, Link, Netlink, Netns};

use crate::Host;
use crate::external::internal;

/// The stages of a commit, in order, into which a plugin may put work of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Borrowed devices are given back, changed settings restored.
    Devices,
    /// What an external plugin made is deleted by its own DEL; links.
    Links,
    /// Addresses are given back.
    Leases,
    /// Files that only described the attachment.
    Files,
}

/// A link that is to go, and what makes it ours: a pod may have given it another name or address, and another link may
/// have the name that it had.
pub struct LinkToDelete {
    /// The namespace it is in; `None` is the host's.
    pub netns: Option<Arc<Netns>>,
    /// The kind that it must have, as `ip -d link` names it: `veth`, `macvlan`.
    pub kind: &'static str,
    /// What it is known by.
    pub mark: LinkIdentity,
    /// Whether another teardown finds it as well when it is down and off its bridge: only then can it be retired.
    pub lasting: bool,
}

/// What a commit could not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The attachments whose later stages it has held up, as [`Teardown::attachment`] numbers them.
    pub attachments: Vec<usize>,
    /// What was not done, and why.
    pub error: CniError,
}

/// What a doomed link is known by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkIdentity {
    /// Its name, which nobody but us changes: a link of the host.
    Name(IfName),
    /// The two ends of a veth pair, which name each other: an index is unique in its own namespace only, and the container
    /// may have a pair whose other end, elsewhere, has the index of ours. The outer end, in the host's namespace, goes by
    /// itself if the inner one cannot be found in the container any more.
    Pair {
        /// The index of the end in the host's namespace.
        outer: u32,
        /// That of the end in the container.
        inner: u32,
    },
    /// The group that it was born with, which is the attachment's own.
    Group(u32),
    /// Its name, if it has no group: another implementation made it, and the result of its ADD names it.
    Foreign(IfName),
}

// === impl LinkToDelete ===

impl LinkToDelete {
    fn is(&self, link: &Link) -> bool {
        link.is(self.kind)
            && match &self.mark {
                LinkIdentity::Name(name) => link.name == name.as_str(),
                LinkIdentity::Pair { outer, inner } => link.index == *inner && link.other_end() == *outer,
                LinkIdentity::Group(group) => link.group == *group,
                LinkIdentity::Foreign(name) => link.name == name.as_str() && link.group == 0,
            }
    }
}

impl std::fmt::Display for LinkIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkIdentity::Name(name) | LinkIdentity::Foreign(name) => name.fmt(f),
            LinkIdentity::Pair { outer, .. } => write!(f, "the peer of link {outer}"),
            LinkIdentity::Group(group) => write!(f, "the link of group {group}"),
        }
    }
}

type Work = Box<dyn FnOnce(&mut Host) -> Result<(), CniError>>;

struct Step {
    scope: usize,
    stage: Stage,
    what: String,
    work: Work,
}

/// Collected by plugins, committed once. Dropping it changes nothing.
#[derive(Default)]
pub struct Teardown {
    scope: usize,
    elements: Vec<(usize, SetElement)>,
    links: Vec<(usize, LinkToDelete)>,
    steps: Vec<Step>,
}

// === impl Teardown ===

impl Teardown {
    /// Nothing to do.
    pub fn new() -> Self {
        Teardown::default()
    }

    /// What is added from here on belongs to another attachment: failures of the ones before do not hold it up.
    pub fn next_attachment(&mut self) {
        self.scope += 1;
    }

    /// The number of the attachment to which the next addition belongs, from 0.
    pub fn attachment(&self) -> usize {
        self.scope
    }

    /// Elements of our nftables sets.
    pub fn elements(&mut self, elements: impl IntoIterator<Item = SetElement>) {
        let scope = self.scope;
        self.elements.extend(elements.into_iter().map(|e| (scope, e)));
    }

    /// A link.
    pub fn link(&mut self, link: LinkToDelete) {
        self.links.push((self.scope, link));
    }

    /// Work at a stage; `what` says in a few words what it does, for the error.
    pub fn at(&mut self, stage: Stage, what: impl Into<String>, work: impl FnOnce(&mut Host) -> Result<(), CniError> + 'static) {
        self.steps.push(Step { scope: self.scope, stage, what: what.into(), work: Box::new(work) });
    }

    /// A file; one that is gone already is no error.
    pub fn file(&mut self, path: PathBuf) {
        self.at(Stage::Files, format!("remove {}", path.display()), move |_| match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(CniError::new(Code::IO, format!("remove {}: {e}", path.display()))),
            _ => Ok(()),
        });
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty() && self.links.is_empty() && self.steps.is_empty()
    }

    /// Does it all, in order, and is empty afterwards.
    ///
    /// # Errors
    /// Every failure, in the order in which they happened.
    pub fn commit(&mut self, host: &mut Host) -> Result<(), Vec<CniError>> {
        let failures = self.commit_with(host, |run, links| run.links(links));
        if failures.is_empty() { Ok(()) } else { Err(failures.into_iter().map(|f| f.error).collect()) }
    }

    fn commit_with(&mut self, host: &mut Host, delete_links: fn(&mut Run<'_>, Vec<(usize, LinkToDelete)>)) -> Vec<Failure> {
        let Teardown { elements, links, mut steps, .. } = std::mem::take(self);
        let mut run = Run::new(host);
        linux::crash_point!("teardown-begun");
        run.elements(elements);
        linux::crash_point!("teardown-elements-gone");
        steps.sort_by_key(|s| s.stage);
        let after_links = steps.partition_point(|s| s.stage <= Stage::Links);
        let rest = steps.split_off(after_links);
        run.steps(steps);
        linux::crash_point!("teardown-devices-back");
        delete_links(&mut run, links);
        linux::crash_point!("teardown-links-gone");
        run.steps(rest);
        linux::crash_point!("teardown-done");
        run.failures
    }
}

/// A commit under way.
struct Run<'a> {
    host: &'a mut Host,
    failed: HashSet<usize>,
    failures: Vec<Failure>,
}

// === impl Run ===

impl<'a> Run<'a> {
    fn new(host: &'a mut Host) -> Self {
        Run { host, failed: HashSet::new(), failures: Vec::new() }
    }

    fn fail(&mut self, scopes: impl IntoIterator<Item = usize>, error: CniError) {
        let attachments: Vec<usize> = scopes.into_iter().collect();
        self.failed.extend(&attachments);
        self.failures.push(Failure { attachments, error });
    }

    fn elements(&mut self, elements: Vec<(usize, SetElement)>) {
        if elements.is_empty() {
            return;
        }
        let scopes: Vec<usize> = elements.iter().map(|(scope, _)| *scope).collect();
        let elements: Vec<SetElement> = elements.into_iter().map(|(_, e)| e).collect();
        let done = self.host.nft().and_then(|nft| nft.delete_missing_ok(&elements).map_err(internal));
        if let Err(e) = done {
            self.fail(scopes, e.within("remove rule elements"));
        }
    }

    fn steps(&mut self, steps: Vec<Step>) {
        for step in steps {
            if self.failed.contains(&step.scope) {
                continue;
            }
            if let Err(e) = (step.work)(self.host) {
                self.fail([step.scope], e.within(step.what));
            }
            linux::crash_point!("teardown-step-done");
        }
    }

    /// A veth whose inner end was not found, because the container moved it away, goes by its outer end.
    fn outer_ends(&mut self, links: &[LinkToDelete]) -> Result<(), CniError> {
        let peers = links.iter().filter_map(|l| if let LinkIdentity::Pair { outer, .. } = l.mark { Some(outer) } else { None });
        let netlink = self.host.netlink()?;
        let mut left = Vec::new();
        for index in peers {
            left.extend(netlink.link_by_index(index).map_err(internal)?.filter(|l| l.is("veth")).map(|l| l.index));
        }
        netlink.delete_together(&left).map_err(internal)
    }

    /// All links of one namespace go together: a veth's removal costs the kernel an RCU grace period, and a group of
    /// them pays it once.
    fn links(&mut self, links: Vec<(usize, LinkToDelete)>) {
        let mut rest: Vec<(usize, LinkToDelete)> = links.into_iter().filter(|(scope, _)| !self.failed.contains(scope)).collect();
        while let Some((_, first)) = rest.first() {
            let netns = first.netns.clone();
            let id = netns_id(first);
            let (here, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(_, l)| netns_id(l) == id);
            rest = others;
            let scopes: Vec<usize> = here.iter().map(|(scope, _)| *scope).collect();
            let links: Vec<LinkToDelete> = here.into_iter().map(|(_, l)| l).collect();
            let done = match netns {
                None => self.host.netlink().and_then(|netlink| delete(netlink, &links.iter().collect::<Vec<_>>())),
                Some(ns) => {
                    let inside =
                        ns.enter(|inside| delete(&mut open(inside)?, &links.iter().collect::<Vec<_>>())).map_err(internal).and_then(|r| r);
                    linux::crash_point!("teardown-inner-ends-gone");
                    inside.and_then(|()| self.outer_ends(&links))
                }
            };
            if let Err(e) = done {
                let names: Vec<String> = links.iter().map(|l| l.mark.to_string()).collect();
                self.fail(scopes, e.within(format!("delete {}", names.join(", "))));
            }
        }
    }
}

fn netns_id(l: &LinkToDelete) -> Option<linux::NetnsId> {
    l.netns.as_ref().map(|ns| ns.id())
}

fn open(inside: &Inside) -> Result<Netlink, CniError> {
    Netlink::open(inside).map_err(internal)
}

fn delete(netlink: &mut Netlink, links: &[&LinkToDelete]) -> Result<(), CniError> {
    let mut indices = Vec::with_capacity(links.len());
    for link in netlink.links().map_err(internal)? {
        if links.iter().any(|link_to_delete| link_to_delete.is(&link)) {
            indices.push(link.index);
        }
    }
    netlink.delete_together(&indices).map_err(internal)
}
