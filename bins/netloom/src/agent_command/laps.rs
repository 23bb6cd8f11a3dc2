//! Durations, each with a bar that shows its part of the whole.

use std::time::Duration;

use anstyle::Style;

use crate::page::{Hang, Page};

/// Columns of the longest bar.
const LONGEST: usize = 24;

/// Milliseconds with a digit behind the point; from ten seconds on, seconds.
pub(super) fn shown(took: Duration) -> String {
    let millis = took.as_secs_f64() * 1e3;
    if millis < 10_000.0 { format!("{millis:.1} ms") } else { format!("{:.1} s", took.as_secs_f64()) }
}

/// A line for each part of a whole, numbers aligned; `keys` is the width of the names.
pub(super) fn draw(page: &mut Page, hang: Hang, keys: usize, parts: &[(String, Duration)], whole: Duration) {
    let width = parts.iter().map(|(_, took)| shown(*took).chars().count()).max().unwrap_or(0);
    for (name, took) in parts {
        let bar = page.look.bar().repeat(length(*took, whole));
        page.pair(hang, name, keys, Style::new(), &format!("{:>width$}  {bar}", shown(*took)));
    }
}

fn length(part: Duration, whole: Duration) -> usize {
    let (part, whole) = (part.as_micros(), whole.as_micros().max(1));
    usize::try_from(part * LONGEST as u128 / whole).unwrap_or(LONGEST).min(LONGEST)
}
