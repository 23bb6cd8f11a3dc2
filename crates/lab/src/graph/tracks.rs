//! The lines between interfaces and links: which stands left of which, so that they cross as seldom as possible.

/// An interface that joins a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Join {
    /// Row of the interface.
    pub(super) row: usize,
    /// Number of its pod in the node.
    pub(super) pod: usize,
    /// Its number in the pod.
    pub(super) interface: usize,
}

/// A vertical line that gathers the interfaces of one link and leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Track {
    /// Number of the link in the node.
    pub(super) link: usize,
    /// What comes from the left, by rows.
    pub(super) joins: Vec<Join>,
    /// Row at which it leaves to the right.
    pub(super) exit: usize,
    /// First row.
    pub(super) from: usize,
    /// Last row.
    pub(super) to: usize,
    /// Position among the tracks, the leftmost being 0.
    pub(super) column: usize,
    /// Whether it is named at its lower end.
    pub(super) tail: bool,
}

// === impl Track ===

impl Track {
    /// A track over its joins, which are in the order of their rows, and its exit.
    pub(super) fn new(link: usize, joins: Vec<Join>, exit: usize) -> Self {
        let from = joins.first().map_or(exit, |join| join.row.min(exit));
        let to = joins.last().map_or(exit, |join| join.row.max(exit));
        Track { link, joins, exit, from, to, column: 0, tail: false }
    }

    fn spans(&self, row: usize) -> bool {
        (self.from..=self.to).contains(&row)
    }

    /// How often lines cross with `self` left of `right`.
    fn crossings(&self, right: &Track) -> usize {
        let joins = right.joins.iter().filter(|join| self.spans(join.row)).count();
        joins + usize::from(right.spans(self.exit))
    }
}

/// Gives every track its column and returns how many columns there are. Tracks that share no row share a column.
pub(super) fn arrange(tracks: &mut [Track]) -> usize {
    // Each pair's preference, once: a node of 100 pods has long lists of joins.
    let cost: Vec<Vec<usize>> = tracks.iter().map(|left| tracks.iter().map(|right| left.crossings(right)).collect()).collect();
    let cost = |left: usize, right: usize| cost.get(left).and_then(|row| row.get(right)).copied().unwrap_or(0);
    let mut order: Vec<usize> = (0..tracks.len()).collect();
    order.sort_by_key(|n| std::cmp::Reverse(tracks.get(*n).map_or(0, |track| track.joins.len())));
    // Exchanging neighbours changes only that pair's crossings: it ends, for the total falls each time.
    while let Some(place) = order.windows(2).position(|pair| matches!(pair, [left, right] if cost(*right, *left) < cost(*left, *right))) {
        order.swap(place, place + 1);
    }
    let mut columns = 0;
    for (place, number) in order.iter().enumerate() {
        let Some(track) = tracks.get(*number) else { continue };
        let earlier = order.iter().take(place).filter_map(|other| tracks.get(*other));
        let meets = |other: &&Track| other.from <= track.to && track.from <= other.to;
        let column = earlier.filter(meets).map(|other| other.column + 1).max().unwrap_or(0);
        columns = columns.max(column + 1);
        if let Some(track) = tracks.get_mut(*number) {
            track.column = column;
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(link: usize, rows: &[usize], exit: usize) -> Track {
        Track::new(link, rows.iter().map(|row| Join { row: *row, pod: 0, interface: 0 }).collect(), exit)
    }

    #[test]
    fn tracks_that_fan_out_downwards_do_not_cross() {
        let mut tracks = [track(0, &[1], 4), track(1, &[2], 8), track(2, &[3], 12)];
        assert_eq!(arrange(&mut tracks), 3);
        assert_eq!(tracks.map(|track| track.column), [2, 1, 0]);
    }

    #[test]
    fn tracks_that_share_no_row_share_a_column() {
        let mut tracks = [track(0, &[1, 3], 2), track(1, &[7, 9], 8)];
        assert_eq!(arrange(&mut tracks), 1);
    }

    #[test]
    fn the_track_of_most_interfaces_is_the_leftmost() {
        let mut tracks = [track(0, &[2, 6], 5), track(1, &[1, 4, 7, 10], 9)];
        assert_eq!(arrange(&mut tracks), 2);
        assert_eq!(tracks.map(|track| track.column), [1, 0]);
    }
}
