//! Reading back: what is in a set, whether an element is there, and the deletion that
//! looks before it deletes.

use nix::errno::Errno;

use super::element::{LIST_ELEMENTS, LIST_SET, LIST_TABLE, read_comment, read_jump};
use super::expr::EXPR_DATA;
use super::socket::PER_SEND;
use super::wire::{self, DUMP, DUMP_INTERRUPTED, Frame, Kind, REQUEST, Writer};
use super::{Count, DeleteError, Element, Family, ReadError, SetElement, Socket, Step, Transaction};
use crate::receive::Buffer;

/// A dump is repeated when others commit meanwhile. Each attempt takes well under a
/// millisecond, so that so many fail only under a storm of changes.
const ATTEMPTS: u32 = 100;

/// What the kernel tells of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// As given when it was created.
    pub comment: Option<String>,
}

// === impl Socket ===

impl Socket {
    /// The elements of a set, comments included (`nft list set`). Empty as well when there
    /// is no such table or set.
    ///
    /// # Errors
    /// [`ReadError`], also when others changed the rules during every attempt.
    pub fn elements(&mut self, family: Family, table: &str, set: &str) -> Result<Vec<Element>, ReadError> {
        self.each_element(family, table, set, Element::read)
    }

    /// The elements of a set that counts, each with what has met it. Empty as [`Socket::elements`].
    ///
    /// # Errors
    /// [`ReadError`], also when others changed the rules during every attempt.
    pub fn counts(&mut self, family: Family, table: &str, set: &str) -> Result<Vec<(Element, Count)>, ReadError> {
        self.each_element(family, table, set, |e| Some((Element::read(e)?, Count::read(e)?)))
    }

    /// What is read of each element of a set.
    pub(super) fn each_element<T>(
        &mut self,
        family: Family,
        table: &str,
        set: &str,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, ReadError> {
        let what = format!("set {family} {table} {set}");
        let body = |w: &mut Writer| {
            w.name(LIST_TABLE, table);
            w.name(LIST_SET, set);
        };
        self.dump(&what, Kind::GetElement, family, body, |frame, found| {
            if frame.kind == Kind::NewElement.number() {
                let list = wire::find(frame.body(), LIST_ELEMENTS).unwrap_or_default();
                found.extend(wire::attributes(list).filter_map(|(_, e)| read(e)));
            }
        })
    }

    /// How many rules a chain has (`nft list chain`): 0 also when it is not there.
    ///
    /// # Errors
    /// [`ReadError`], also when others changed the rules during every attempt.
    pub fn count_rules(&mut self, family: Family, table: &str, chain: &str) -> Result<usize, ReadError> {
        Ok(self.of_rules(family, table, chain, |_, found| found.push(()))?.len())
    }

    /// The chains that a chain's rules jump to, in order (`jump CHAIN`, in a rule of its own or behind conditions): none also
    /// where the chain is not there.
    ///
    /// # Errors
    /// [`ReadError`], also when others changed the rules during every attempt.
    pub fn jumps(&mut self, family: Family, table: &str, chain: &str) -> Result<Vec<String>, ReadError> {
        const RULE_EXPRESSIONS: u16 = 4;
        self.of_rules(family, table, chain, |rule, found| {
            let expressions = wire::find(rule, RULE_EXPRESSIONS).unwrap_or_default();
            found.extend(wire::attributes(expressions).filter_map(|(_, e)| jump_of(e)));
        })
    }

    /// What is taken of a chain's rules, each given as its attributes, in order; of no chain nothing.
    pub(super) fn of_rules<T>(
        &mut self,
        family: Family,
        table: &str,
        chain: &str,
        take: impl Fn(&[u8], &mut Vec<T>),
    ) -> Result<Vec<T>, ReadError> {
        let what = format!("chain {family} {table} {chain}");
        let body = |w: &mut Writer| {
            w.name(1, table);
            w.name(2, chain);
        };
        self.dump(&what, Kind::GetRule, family, body, |frame, found| {
            if frame.kind == Kind::NewRule.number() {
                take(frame.body(), found);
            }
        })
    }

    /// A table, `None` if there is none of that name (`nft list table`, without what is in
    /// it).
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn table(&mut self, family: Family, name: &str) -> Result<Option<TableInfo>, ReadError> {
        const TABLE_USERDATA: u16 = 6;
        const UDATA_TABLE_COMMENT: u8 = 0;
        let what = || format!("table {family} {name}");
        let mut w = Writer::default();
        let first = self.numbers(1);
        w.message(Kind::GetTable, REQUEST, first, family.number(), |w| w.name(1, name));
        let mut table = None;
        self.ask(w, first, 1, what, |_, frame| {
            let comment = wire::find(frame.body(), TABLE_USERDATA).and_then(|udata| read_comment(udata, UDATA_TABLE_COMMENT));
            table = Some(TableInfo { comment });
        })?;
        Ok(table)
    }

    /// Whether there is such a table.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn has_table(&mut self, family: Family, name: &str) -> Result<bool, ReadError> {
        Ok(self.table(family, name)?.is_some())
    }

    /// Looks elements up by their keys (`nft get element`): for each, in order, what is
    /// there with the comment that it has there, or `None`. No table, no set: `None`.
    ///
    /// # Errors
    /// [`ReadError`]
    pub fn find(&mut self, wanted: &[SetElement]) -> Result<Vec<Option<Element>>, ReadError> {
        let mut found = vec![None; wanted.len()];
        for (wanted, found) in wanted.chunks(PER_SEND).zip(found.chunks_mut(PER_SEND)) {
            let first = self.numbers(wanted.len());
            let mut w = Writer::default();
            let mut sequence = first;
            for element in wanted {
                let family = element.family.number();
                w.message(Kind::GetElement, REQUEST, sequence, family, |w| element.write(w, false));
                sequence = sequence.wrapping_add(1);
            }
            let what = || wanted.first().map(ToString::to_string).unwrap_or_default();
            self.ask(w, first, wanted.len(), what, |i, frame| {
                let list = wire::find(frame.body(), LIST_ELEMENTS).unwrap_or_default();
                let read = wire::attributes(list).find_map(|(_, e)| Element::read(e));
                // A set of intervals answers with the one around the key.
                let same = |e: &Element| wanted.get(i).is_some_and(|w| w.element.is_at(e));
                if let Some(place) = found.get_mut(i) {
                    *place = read.filter(same);
                }
            })?;
        }
        Ok(found)
    }

    /// Deletes what is there of these elements, as one transaction up to a hundred. An
    /// element that is not there, as its set or table, is done already; one whose comment
    /// is another's has been given to another since, and stays. Without a comment an
    /// element is deleted whosever it is.
    ///
    /// # Errors
    /// [`DeleteError`]; repeat the whole call then, it is harmless.
    pub fn delete_missing_ok(&mut self, elements: &[SetElement]) -> Result<(), DeleteError> {
        for chunk in elements.chunks(PER_SEND) {
            let found = self.find(chunk)?;
            let ours = chunk.iter().zip(found).filter_map(|(wanted, found)| {
                let comment = found?.comment;
                let wants = &wanted.element.comment;
                (wants.is_none() || *wants == comment).then_some(wanted)
            });
            self.delete_those(ours.cloned().collect())?;
        }
        Ok(())
    }

    /// Deletes these elements. Those that vanish meanwhile abort a transaction: it is sent
    /// again without them.
    fn delete_those(&mut self, mut elements: Vec<SetElement>) -> Result<(), DeleteError> {
        loop {
            let steps = elements.iter().cloned().map(Step::DeleteElement);
            let error = match self.commit(&steps.collect::<Transaction>()) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let refusals = error.refusals();
            if refusals.is_empty() || refusals.iter().any(|r| r.errno != Errno::ENOENT) {
                return Err(error.into());
            }
            let mut place = 0;
            elements.retain(|_| {
                place += 1;
                !refusals.iter().any(|r| r.step == place - 1)
            });
        }
    }

    /// Sends questions with consecutive numbers from `first` that have one answer each:
    /// what was asked for, or an errno, of which ENOENT and EINVAL are no errors.
    pub(super) fn ask(
        &mut self,
        questions: Writer,
        first: u32,
        count: usize,
        what: impl Fn() -> String,
        mut answer: impl FnMut(usize, &Frame<'_>),
    ) -> Result<(), ReadError> {
        let bytes = questions.finish().ok_or_else(|| ReadError::TooLong { what: what() })?;
        self.send(&bytes).map_err(|errno| ReadError::Send { what: what(), errno })?;
        let mut missing = count;
        let mut buffer = Buffer::take();
        while missing > 0 {
            self.receive(&mut buffer).map_err(|errno| ReadError::Receive { what: what(), errno })?;
            for frame in wire::frames(&buffer) {
                let i = frame.sequence.wrapping_sub(first) as usize;
                if i >= count {
                    continue;
                }
                missing = missing.saturating_sub(1);
                if frame.kind != wire::ERROR {
                    answer(i, &frame);
                    continue;
                }
                let Some(verdict) = frame.verdict() else { continue };
                let errno = Errno::from_raw(verdict.errno);
                // EINVAL: the keys of that set have another length; it is somebody else's, in a table of the same name.
                if ![Errno::ENOENT, Errno::EINVAL].contains(&errno) {
                    return Err(ReadError::Refused { what: what(), errno, kernel: verdict.text });
                }
            }
        }
        Ok(())
    }

    /// Asks for a list and reads it to its end; again from the beginning if it changed
    /// meanwhile.
    pub(super) fn dump<T>(
        &mut self,
        what: &str,
        kind: Kind,
        family: Family,
        body: impl Fn(&mut Writer),
        take: impl Fn(&Frame<'_>, &mut Vec<T>),
    ) -> Result<Vec<T>, ReadError> {
        let named = || what.to_owned();
        for _ in 0..ATTEMPTS {
            let sequence = self.numbers(1);
            let mut w = Writer::default();
            w.message(kind, REQUEST | DUMP, sequence, family.number(), &body);
            let bytes = w.finish().ok_or_else(|| ReadError::TooLong { what: named() })?;
            self.send(&bytes).map_err(|errno| ReadError::Send { what: named(), errno })?;
            if let Some(found) = self.read_dump(what, sequence, &take)? {
                return Ok(found);
            }
        }
        Err(ReadError::Interrupted { what: named(), attempts: ATTEMPTS })
    }

    /// `None`: the list changed while it was read.
    fn read_dump<T>(&mut self, what: &str, sequence: u32, take: impl Fn(&Frame<'_>, &mut Vec<T>)) -> Result<Option<Vec<T>>, ReadError> {
        let mut found = Vec::new();
        let mut whole = true;
        let mut limit = self.limit;
        let mut buffer = Buffer::take();
        loop {
            self.receive(&mut buffer).map_err(|errno| ReadError::Receive { what: what.to_owned(), errno })?;
            for frame in wire::frames(&buffer).filter(|f| f.sequence == sequence) {
                whole &= frame.flags & DUMP_INTERRUPTED == 0;
                if !matches!(frame.kind, wire::ERROR | wire::DONE | wire::OVERRUN) {
                    if limit.keeps(frame.body().len()) {
                        take(&frame, &mut found);
                    }
                    continue;
                }
                let errno = frame.verdict().map(|verdict| (verdict.errno, verdict.text));
                let (errno, kernel) = errno.unwrap_or_default();
                if errno == 0 && whole {
                    self.limit = limit;
                }
                return match Errno::from_raw(errno) {
                    _ if errno == 0 => Ok(whole.then_some(found)),
                    Errno::ENOENT => Ok(Some(Vec::new())),
                    Errno::EINTR => Ok(None),
                    errno => Err(ReadError::Refused { what: what.to_owned(), errno, kernel }),
                };
            }
        }
    }
}

/// The chain that an expression jumps to.
fn jump_of(expression: &[u8]) -> Option<String> {
    const IMMEDIATE_DATA: u16 = 2;
    let data = wire::find(expression, EXPR_DATA)?;
    read_jump(wire::find(data, IMMEDIATE_DATA)?)
}
