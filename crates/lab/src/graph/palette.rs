//! One colour per network, the same in every format. Red is for failures alone.

use anstyle::{AnsiColor, Effects, Style};

/// A network's colour on a terminal, on a light page and on a dark one.
pub(super) struct Hue {
    ansi: AnsiColor,
    /// `#rrggbb`, at least 4.5:1 against white.
    pub(super) light: &'static str,
    /// `#rrggbb`, at least 4.5:1 against black.
    pub(super) dark: &'static str,
}

/// The colours, in the order in which networks take them; a lab of more networks begins anew.
pub(super) const HUES: [Hue; 10] = [
    Hue { ansi: AnsiColor::Cyan, light: "#0e7490", dark: "#22d3ee" },
    Hue { ansi: AnsiColor::Green, light: "#15803d", dark: "#4ade80" },
    Hue { ansi: AnsiColor::Yellow, light: "#b45309", dark: "#fbbf24" },
    Hue { ansi: AnsiColor::Magenta, light: "#7e22ce", dark: "#c084fc" },
    Hue { ansi: AnsiColor::Blue, light: "#1d4ed8", dark: "#60a5fa" },
    Hue { ansi: AnsiColor::BrightMagenta, light: "#be185d", dark: "#f472b6" },
    Hue { ansi: AnsiColor::BrightGreen, light: "#4d7c0f", dark: "#a3e635" },
    Hue { ansi: AnsiColor::BrightYellow, light: "#c2410c", dark: "#fb923c" },
    Hue { ansi: AnsiColor::BrightBlue, light: "#4338ca", dark: "#818cf8" },
    Hue { ansi: AnsiColor::BrightCyan, light: "#0f766e", dark: "#2dd4bf" },
];

/// What a piece of a terminal's drawing is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Paint {
    /// Text.
    #[default]
    Plain,
    /// Frames and what matters less.
    Faint,
    /// Titles.
    Strong,
    /// Of the network with this number.
    Network(usize),
    /// The default network's name, or a link's: a network's colour, strong.
    StrongNetwork(usize),
    /// Wires between nodes.
    Wire,
    /// What failed.
    Bad,
    /// The name of what failed.
    StrongBad,
}

// === impl Paint ===

impl Paint {
    /// The sequence that a terminal understands.
    pub(super) fn style(self) -> Style {
        let hue = |number: usize| HUES.get(number % HUES.len()).map_or(AnsiColor::White, |hue| hue.ansi);
        match self {
            Paint::Plain => Style::new(),
            Paint::Faint => Style::new().effects(Effects::DIMMED),
            Paint::Strong | Paint::Wire => Style::new().effects(Effects::BOLD),
            Paint::Network(number) => Style::new().fg_color(Some(hue(number).into())),
            Paint::StrongNetwork(number) => Style::new().fg_color(Some(hue(number).into())).effects(Effects::BOLD),
            Paint::Bad => Style::new().fg_color(Some(AnsiColor::Red.into())),
            Paint::StrongBad => Style::new().fg_color(Some(AnsiColor::Red.into())).effects(Effects::BOLD),
        }
    }
}
