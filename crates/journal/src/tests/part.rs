//! Of a snapshot what somebody looks for, and nothing else.

use super::*;

/// What is found of a name: `b`rief, `n`amed or `l`og, and the record. A record `of X` of the log is about the name `X`.
fn part(dir: &Dir, name: &str, most: u64) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let journal = Journal::open_part(
        &dir.0,
        soon(),
        Name::of(&[name.as_bytes()]),
        |_| most,
        |part, record| {
            let part = match part {
                RecordSource::Brief => "b",
                RecordSource::Named => "n",
                RecordSource::Log => "l",
            };
            found.push(format!("{part} {}", String::from_utf8_lossy(record)));
            record.strip_prefix(b"of ").map(|name| Name::of(&[name]))
        },
    );
    journal.unwrap().map(|_| found)
}

/// A snapshot of so many records with names, one for every second of them, and a log.
fn in_short(count: usize) -> Dir {
    let dir = Dir::new();
    let (journal, _) = open(&dir);
    put(&journal, "old");
    let turn = journal.turn().unwrap();
    let record = |n: usize| (n.is_multiple_of(2).then(|| Name::of(&[format!("name{}", n / 4).as_bytes()])), format!("record{n}"));
    turn.write_in_short((0..count).map(record), ["in", "short"]).unwrap();
    put(&journal, "since");
    dir
}

#[test]
fn what_has_a_name_is_found_and_nothing_else_is_read() {
    for count in [0, 1, 30, 5000] {
        let dir = in_short(count);
        for n in (0..count / 4).step_by(7) {
            let named = [4 * n, 4 * n + 2].map(|n| format!("n record{n}"));
            let mut found = part(&dir, &format!("name{n}"), 1000).unwrap();
            // In no order, and with those of a name that has the same hash.
            found.retain(|record| !record.starts_with("n ") || named.contains(record));
            found.sort();
            let expected = ["b in", "b short", "l since"].map(str::to_owned).into_iter().chain(named).collect::<BTreeSet<_>>();
            assert!(found.iter().eq(expected.iter()), "{n} of {count}: {found:?}");
        }
        assert_eq!(part(&dir, "nobody", 1000).unwrap(), ["b in", "b short", "l since"]);
        // All of it, as ever.
        assert_eq!(open(&dir).1.len(), count + 1);
    }
}

/// What the log is about is found, too, once and behind it.
#[test]
fn what_a_record_of_the_log_is_about() {
    let dir = in_short(40);
    let (journal, _) = open(&dir);
    ["of name2", "of nobody", "x", "of name2", "of name1"].iter().for_each(|record| put(&journal, record));
    drop(journal);
    let found = part(&dir, "name1", 1000).unwrap();
    let log = found.iter().position(|record| record.starts_with("l ")).unwrap();
    let (before, behind) = found.split_at(log);
    let sorted = |records: &[String]| records.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(before.len(), 4, "{found:?}");
    assert_eq!(sorted(&before[2..]), ["n record4", "n record6"].map(str::to_owned).into());
    assert_eq!(behind[..6], ["l since", "l of name2", "l of nobody", "l x", "l of name2", "l of name1"]);
    assert_eq!(behind.len(), 10, "{found:?}");
    assert_eq!(sorted(&behind[6..]), ["n record4", "n record6", "n record8", "n record10"].map(str::to_owned).into());
}

#[test]
fn what_is_appended_to_a_part_is_there_for_all() {
    let dir = in_short(40);
    let name = Name::of(&[b"name1"]);
    let journal = Journal::open_part(&dir.0, soon(), name, |_| 1000, |_, _| None).unwrap().unwrap();
    put(&journal, "new");
    assert!(matches!(Journal::open_part(&dir.0, at_once(), name, |_| 1000, |_, _| None), Err(OpenError::Locked(_))));
    drop(journal);
    assert_eq!(part(&dir, "nobody", 1000).unwrap(), ["b in", "b short", "l since", "l new"]);
    assert_eq!(open(&dir).1[39..], ["record39", "since", "new"]);
}

#[test]
fn where_there_is_no_part_all_is_read() {
    let dir = Dir::new();
    assert_eq!(part(&dir, "name0", 1000), None);
    assert!(!dir.0.exists());
    written(&dir, &["a"]);
    assert_eq!(part(&dir, "name0", 1000), None);
    let (journal, _) = open(&dir);
    journal.turn().unwrap().write(["a"]).unwrap();
    drop(journal);
    assert_eq!(part(&dir, "name0", 1000), None);
    let dir = in_short(40);
    assert_eq!(part(&dir, "name0", 50), None, "a long log");
    let (journal, _) = open(&dir);
    drop(journal.turn().unwrap());
    drop(journal);
    assert_eq!(part(&dir, "name0", 1000), None, "a snapshot that was begun");
    assert_eq!(open(&dir).1.len(), 41);
}

/// What is found of a damaged file is what was written; what stands behind the records is nobody's loss.
#[test]
fn damage_is_seen_before_it_is_believed() {
    let dir = in_short(60);
    let path = dir.path("0000000000000001.snapshot");
    let whole = fs::read(&path).unwrap();
    let (sound, all) = (part(&dir, "name7", 1000).unwrap(), open(&dir).1);
    assert_eq!(sound.len(), 5);
    let (mut unseen, mut unharmed) = (0, 0);
    for at in (0..whole.len()).step_by(5) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let found = part(&dir, "name7", 1000);
        assert!(found.as_ref().is_none_or(|found| *found == sound), "at {at}: {found:?}");
        unseen += usize::from(found.is_some());
        match try_open(&dir.0) {
            Ok((_, records)) => {
                assert_eq!(records, all, "at {at}");
                unharmed += 1;
            }
            Err(e) => assert!(matches!(e, OpenError::Damaged { .. }), "at {at}: {e}"),
        }
    }
    // Other records, and what stands behind all of them.
    assert!(unseen > 100 && unharmed > 100 && unseen + unharmed < 2 * whole.len() / 5, "{unseen} {unharmed} of {}", whole.len());
    for length in (0..whole.len()).step_by(31) {
        fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(part(&dir, "name7", 1000), None, "{length} bytes");
    }
}
