//! A lab, drawn: pods on the left, the bridges and parents that they reach on the right, the wires outside.
//!
//! ```text
//! Topology -> Scene (sorted, nothing dangling, a colour per network) -+-> NodePlan (rows, tracks) -+-> terminal
//!                                                                     |                            `-> SVG
//!                                                                     +-> tree (narrow terminals)
//!                                                                     +-> Mermaid, Graphviz (which place themselves)
//! ```
//!
//! Everything here is a pure function of a [`Topology`]: the same lab gives the same bytes. Names come from manifests
//! and from kernels, and are foreign text to every format: each has one function that all of them pass through.

mod canvas;
mod columns;
mod dot;
mod layout;
mod mermaid;
mod palette;
mod place;
mod scene;
mod signs;
pub mod svg;
mod terminal;
mod text;
mod tracks;
mod tree;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use crate::topology::Topology;

/// What a drawing is written in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Boxes and lines for a terminal, as [`Style`] says.
    #[default]
    Terminal,
    /// A self-contained picture, for light and dark pages.
    Svg,
    /// A Mermaid flowchart, which GitHub and many wikis draw.
    Mermaid,
    /// Graphviz: `netloom lab graph --format dot | dot -Tsvg`.
    Dot,
}

/// How to draw on a terminal; the other formats have styles of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether box drawing characters may be used; ASCII otherwise.
    pub unicode: bool,
    /// Whether to colour with ANSI sequences. No meaning hangs on colour alone.
    pub color: bool,
    /// Columns of the terminal; no line is longer. Below about 60 the drawing becomes an indented tree.
    pub width: usize,
}

/// A name that is no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a drawing format: use one of {}", Format::names())]
pub struct FormatError {
    given: String,
}

/// Draws a lab. The text ends with a newline.
pub fn draw(topology: &Topology, format: Format, style: &Style) -> String {
    let scene = scene::Scene::new(topology);
    match format {
        Format::Terminal => terminal::draw(&scene, style),
        Format::Svg => svg::draw(&scene),
        Format::Mermaid => mermaid::draw(&scene),
        Format::Dot => dot::draw(&scene),
    }
}

// === impl Format ===

impl Format {
    /// Every format, in the order in which help lists them.
    pub const ALL: [Format; 4] = [Format::Terminal, Format::Svg, Format::Mermaid, Format::Dot];

    /// The name that selects it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Terminal => "terminal",
            Format::Svg => "svg",
            Format::Mermaid => "mermaid",
            Format::Dot => "dot",
        }
    }

    fn names() -> String {
        Format::ALL.map(Format::name).join(", ")
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        Format::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| FormatError { given: text.chars().take(40).collect() })
    }
}

// === impl Style ===

impl Default for Style {
    /// Unicode without colour on 80 columns.
    fn default() -> Self {
        Style { unicode: true, color: false, width: 80 }
    }
}
