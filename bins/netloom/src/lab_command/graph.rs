//! `netloom lab graph`

use std::process::ExitCode;

use lab::graph::{Format, Style, draw};

use super::open;
use crate::cli::{GraphFormat, Structured, Which};
use crate::output::{columns, put, speaks_unicode, structured};

pub(crate) fn run(which: &Which, format: GraphFormat) -> anyhow::Result<ExitCode> {
    super::must_be_root()?;
    let topology = lab::observe(&open(which)?)?;
    let format = match format {
        GraphFormat::Terminal => Format::Terminal,
        GraphFormat::Svg => Format::Svg,
        GraphFormat::Mermaid => Format::Mermaid,
        GraphFormat::Dot => Format::Dot,
        GraphFormat::Json => {
            structured(&topology, Structured::Json)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    // Colours go out with the drawing and are taken away where nobody sees them.
    let style = Style { unicode: speaks_unicode(), color: format == Format::Terminal, width: columns().unwrap_or(120) };
    put!("{}", draw(&topology, format, &style));
    Ok(ExitCode::SUCCESS)
}
