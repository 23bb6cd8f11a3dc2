//! From one plan to the next.

use super::*;

#[test]
fn what_leads_a_route_is_there_before_it_and_goes_after_it() {
    let (vxlan, none) = (of_a(Mode::Vxlan, &[a(), b()]), of_a(Mode::Vxlan, &[a()]));
    let kind = |entry: &Entry| match entry {
        Entry::Device(..) => 0,
        Entry::Peer(..) => 1,
        Entry::Forwarding(..) => 2,
        Entry::Neighbour(..) => 3,
        Entry::Route(..) => 4,
        Entry::Closed(_) => 5,
    };
    let of = |changes: &[Change]| -> Vec<(char, i32)> {
        let one = |change: &Change| match change {
            Change::Add(entry) => ('+', kind(entry)),
            Change::Replace(entry) => ('=', kind(entry)),
            Change::Remove(entry) => ('-', kind(entry)),
        };
        changes.iter().map(one).collect()
    };
    let (add, remove) = (none.difference(&vxlan), vxlan.difference(&none));
    assert_eq!(of(&add), [('+', 0), ('+', 2), ('+', 3), ('+', 3), ('+', 4), ('+', 4)]);
    assert_eq!(of(&remove), [('-', 4), ('-', 4), ('-', 3), ('-', 3), ('-', 2), ('-', 0)]);
    assert!(vxlan.difference(&vxlan).is_empty());
    // From direct to vxlan no route is away for a moment.
    let direct = of_a(Mode::Direct, &[a(), b()]);
    assert_eq!(of(&direct.difference(&vxlan)), [('+', 0), ('+', 2), ('+', 3), ('+', 3), ('=', 4), ('=', 4)]);
    // A node that was created again: its ranges have another VTEP from one moment to the next, of IPv4 by the neighbour, of IPv6 by the route.
    let mut again = b();
    again.uid = "another".into();
    let recreated = of_a(Mode::Vxlan, &[a(), again]);
    assert_eq!(of(&vxlan.difference(&recreated)), [('+', 2), ('=', 3), ('+', 3), ('=', 4), ('-', 3), ('-', 2)]);
}

#[test]
fn a_range_that_moves_is_given_before_it_is_taken() {
    let b = b();
    let mut b_after = b.clone();
    let moved = b_after.ranges.pop().unwrap();
    let c = node("c", &["10.1.3.0/24"], &["192.0.2.3"]);
    let mut c_after = c.clone();
    c_after.ranges.push(moved);
    let now = of_a(Mode::WireGuard, &[a(), b_after, c_after]);
    let first_two = |before: &[NodeSeen]| {
        let changes = of_a(Mode::WireGuard, before).difference(&now);
        let key = |change: &Change| match change {
            Change::Add(Entry::Peer(_, key, _)) => Some(('+', key[0])),
            Change::Replace(Entry::Peer(_, key, _)) => Some(('=', key[0])),
            Change::Add(Entry::Closed(_)) => None,
            other => panic!("{other:?}"),
        };
        changes.iter().filter_map(key).take(2).collect::<Vec<_>>()
    };
    assert_eq!(first_two(&[a(), b.clone(), c]), [('=', b'c'), ('=', b'b')]);
    assert_eq!(first_two(&[a(), b]), [('+', b'c'), ('=', b'b')]);
}
