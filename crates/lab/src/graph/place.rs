//! Where on a vertical line boxes go: each as near to its wish as its neighbours allow.

/// A box that wants to begin at `wish` and takes `size` rows, gaps included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WantedRows {
    /// Row at which it would best begin.
    pub(super) wish: f64,
    /// Rows that it takes.
    pub(super) size: usize,
}

/// Rows at which boxes begin that are kept in their order, do not overlap and together deviate least from their
/// wishes (least squares: the pool-adjacent-violators algorithm).
pub(super) fn stack(boxes: &[WantedRows]) -> Vec<usize> {
    // A run of boxes that touch each other: the sum of what its first box would have to begin at, and how many.
    struct Run {
        sum: f64,
        count: usize,
        rows: usize,
    }
    let begin = |run: &Run| (run.sum / run.count as f64).max(0.0);
    let mut runs: Vec<Run> = Vec::new();
    for one in boxes {
        let mut run = Run { sum: one.wish, count: 1, rows: one.size };
        while let Some(above) = runs.pop_if(|above| begin(above) + above.rows as f64 > begin(&run)) {
            let shift = (above.rows * run.count) as f64;
            run = Run { sum: above.sum + run.sum - shift, count: above.count + run.count, rows: above.rows + run.rows };
        }
        runs.push(run);
    }
    let mut sizes = boxes.iter().map(|one| one.size);
    let mut rows = Vec::with_capacity(boxes.len());
    let mut free = 0;
    for run in &runs {
        let mut row = (begin(run).round() as usize).max(free);
        for size in sizes.by_ref().take(run.count) {
            rows.push(row);
            row += size;
        }
        free = row;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_keep_order_and_distance() {
        let at =
            |wishes: &[(f64, usize)]| stack(&wishes.iter().map(|(wish, size)| WantedRows { wish: *wish, size: *size }).collect::<Vec<_>>());
        assert_eq!(at(&[]), Vec::<usize>::new());
        assert_eq!(at(&[(3.0, 4), (9.0, 2)]), [3, 9]);
        assert_eq!(at(&[(10.0, 4), (10.0, 4), (10.0, 4)]), [6, 10, 14]);
        assert_eq!(at(&[(0.0, 4), (0.0, 4), (20.0, 1)]), [0, 4, 20]);
        assert_eq!(at(&[(-9.0, 4), (1.0, 4)]), [0, 4]);
    }
}
