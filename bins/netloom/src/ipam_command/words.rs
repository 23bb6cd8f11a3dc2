//! Counts, moments and bars, as people read them.

use std::time::{Duration, SystemTime};

use anstyle::{AnsiColor, Style};
use k8s_openapi::jiff::Timestamp;
use pool::Moment;
use serde_json::Value;

use crate::output::{BAD, FAINT, speaks_unicode};

/// More than this is told as a power of two: no terminal has the room, and nobody reads it.
const PLAIN: u128 = 1 << 32;

/// The longest word for what is found.
pub(super) const KINDS: usize = 8;

/// How a cooling address is painted.
pub(super) const COOLING: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Cyan)));

/// A count, `~2^64` where it is that large.
pub(super) fn count(n: u128) -> String {
    if n <= PLAIN {
        return n.to_string();
    }
    if n.is_power_of_two() {
        return format!("2^{}", n.trailing_zeros());
    }
    // The nearest one: three quarters of a power of two and more are nearer to it than to its half.
    let low = 127_u32.saturating_sub(n.leading_zeros());
    let nearer = low > 0 && n >> (low - 1) == 3;
    format!("~2^{}", low + u32::from(nearer))
}

/// A count for programs: a number, as text where a reader of JSON would lose digits of it.
pub(super) fn exact(n: u128) -> Value {
    u64::try_from(n).ok().filter(|n| *n < 1 << 53).map_or_else(|| Value::from(n.to_string()), Value::from)
}

/// How long ago, in its two largest units: `3d 4h`.
pub(super) fn age(millis: u64) -> String {
    let seconds = millis / 1000;
    let units = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let mut parts = Vec::new();
    let mut left = seconds;
    for (i, (unit, name)) in units.iter().enumerate() {
        let n = left / unit;
        left %= unit;
        if n > 0 || (i == 3 && parts.is_empty()) {
            parts.push(format!("{n}{name}"));
        } else if !parts.is_empty() {
            break;
        }
        if parts.len() == 2 {
            break;
        }
    }
    parts.join(" ")
}

/// The time of day of a moment; `None` of one before the machine's last start, which nobody knows.
pub(super) fn clock(at: &Moment, now: &Moment) -> Option<String> {
    let ago = (at.boot == now.boot).then(|| Duration::from_millis(now.millis.saturating_sub(at.millis)))?;
    let then = SystemTime::now().checked_sub(ago)?;
    Timestamp::try_from(then).ok().map(|t| format!("{t:.0}"))
}

/// What a bar consists of: how much, in which style and sign.
struct SummaryPart {
    n: u128,
    style: Style,
    unicode: char,
    ascii: char,
}

/// A bar of so many columns, painted. Whatever there is at all has a column.
pub(super) fn bar(width: usize, held: u128, cooling: u128, quarantined: u128, total: u128) -> String {
    let parts = [
        SummaryPart { n: held, style: Style::new(), unicode: '█', ascii: '#' },
        SummaryPart { n: quarantined, style: BAD, unicode: '▓', ascii: '!' },
        SummaryPart { n: cooling, style: COOLING, unicode: '▒', ascii: '~' },
    ];
    let unicode = speaks_unicode();
    let mut text = String::new();
    let (mut left, mut sum) = (width, 0_u128);
    for SummaryPart { n, style, unicode: u, ascii: a } in parts {
        sum = sum.saturating_add(n);
        // Up to where all so far reach: what one part loses in rounding the next one has.
        let end = share(sum, total, width);
        let columns = end.saturating_sub(width - left).max(usize::from(n > 0)).min(left);
        left -= columns;
        if columns == 0 {
            continue;
        }
        let signs: String = std::iter::repeat_n(if unicode { u } else { a }, columns).collect();
        text += &format!("{style}{signs}{style:#}");
    }
    let rest: String = std::iter::repeat_n(if unicode { '░' } else { '.' }, left).collect();
    text + &format!("{FAINT}{rest}{FAINT:#}")
}

/// The columns of a part; all of them only where it is all.
fn share(n: u128, total: u128, width: usize) -> usize {
    if n == 0 || width == 0 {
        return 0;
    }
    if n >= total {
        return width;
    }
    // Not multiplied where that is too large: a count may have all bits.
    let columns = n.checked_mul(width as u128).map_or_else(|| n / (total / width as u128).max(1), |n| n / total);
    usize::try_from(columns).unwrap_or(width).clamp(1, width.saturating_sub(1).max(1))
}

/// How much of it, in percent: `<1%` where it is something, never `100%` before it is all.
pub(super) fn percent(n: u128, total: u128) -> String {
    match (n, total) {
        (0, _) => "0%".to_owned(),
        (n, total) if n >= total => "100%".to_owned(),
        // Not multiplied where that is too large: a count may have all bits.
        (n, total) => match n.checked_mul(100).map_or_else(|| n / (total / 100).max(1), |n| n / total.max(1)) {
            0 => "<1%".to_owned(),
            percent => format!("{}%", percent.min(99)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_any_size() {
        let told = [(0, "0"), (254, "254"), (1 << 32, "4294967296"), (1 << 64, "2^64"), ((1 << 64) - 1, "~2^64"), (u128::MAX, "~2^128")];
        told.iter().for_each(|(n, text)| assert_eq!(count(*n), *text, "{n}"));
        assert_eq!(count((1 << 56) - 300), "~2^56");
        assert_eq!((exact(7), exact(1 << 60)), (Value::from(7), Value::from("1152921504606846976")));
    }

    #[test]
    fn ages() {
        let told = [(0, "0s"), (61_000, "1m 1s"), (3_600_000, "1h"), (3_601_000, "1h"), (90_000_000, "1d 1h"), (172_800_000, "2d")];
        told.iter().for_each(|(millis, text)| assert_eq!(age(*millis), *text, "{millis}"));
    }

    #[test]
    fn a_bar_is_as_wide_as_it_is_told() {
        let plain = |text: String| anstream::adapter::strip_str(&text).to_string();
        for (held, cooling, quarantined, total) in
            [(0, 0, 0, 0), (1, 1, 1, 1 << 64), (253, 1, 0, 254), (254, 0, 0, 254), (u128::MAX, 1, 1, u128::MAX)]
        {
            let bar = plain(bar(10, held, cooling, quarantined, total));
            assert_eq!(bar.chars().count(), 10, "{bar}");
            assert_eq!(bar.contains(['█', '#']), held > 0, "{bar}");
        }
        // As long as the percent beside it say.
        for (held, cooling, total, columns) in
            [(20, 0, 21, [19, 0]), (1, 0, 2, [10, 0]), (8, 0, 10, [16, 0]), (1, 2, 3, [6, 14]), (1, 0, 254, [1, 0]), (99, 0, 100, [19, 0])]
        {
            let bar = plain(bar(20, held, cooling, 0, total));
            let signs = |signs: [char; 2]| bar.chars().filter(|c| signs.contains(c)).count();
            assert_eq!([signs(['█', '#']), signs(['▒', '~'])], columns, "{held} and {cooling} of {total}: {bar}");
        }
        assert_eq!((percent(1, 1 << 64), percent(253, 254), percent(254, 254)), ("<1%".into(), "99%".into(), "100%".into()));
    }
}
