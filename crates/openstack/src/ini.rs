//! The files of oslo.config: sections, `name = value` or `name: value`, comments on lines of their own.
//!
//! Written after `oslo_config/iniparser.py` 10.7: a line that begins with a space continues the value before it, quotes around a whole
//! value are taken off, and a `#` inside a line is part of the value.

/// One `name = value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) section: String,
    pub(crate) name: String,
    pub(crate) value: String,
    /// The first is 1.
    pub(crate) line: usize,
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct IniError {
    /// The first is 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: IniProblem,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IniProblem {
    /// `[name` without its end.
    #[error("a section must end with ]")]
    OpenSection,
    /// `[]`.
    #[error("the section has no name")]
    NamelessSection,
    /// Something before the first section.
    #[error("an option must stand in a section: write [DEFAULT] or its section above it")]
    NoSection,
    /// No `=` and no `:`.
    #[error("no = or : in this line; a line that continues a value must begin with a space")]
    NoAssignment,
    /// `= value`.
    #[error("the option has no name")]
    NamelessOption,
    /// A space at the beginning, and nothing before it.
    #[error("this line begins with a space, but there is no value above it that it could continue")]
    NothingToContinue,
}

/// Reads a file.
pub(crate) fn parse(text: &str) -> Result<Vec<Assignment>, IniError> {
    let mut found: Vec<Assignment> = Vec::new();
    let mut section = None;
    // Whether the last assignment may go on.
    let mut open = false;
    for (number, line) in text.lines().enumerate() {
        let (number, line) = (number + 1, line.trim_end());
        let wrong = |problem| IniError { line: number, problem };
        let continues = line.starts_with([' ', '\t']);
        if line.is_empty() {
            open = false;
        } else if continues {
            let last = found.last_mut().filter(|_| open).ok_or_else(|| wrong(IniProblem::NothingToContinue))?;
            last.value.push('\n');
            last.value.push_str(line.trim_start());
        } else if let Some(name) = line.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or_else(|| wrong(IniProblem::OpenSection))?;
            section = Some(name).filter(|name| !name.is_empty());
            section.ok_or_else(|| wrong(IniProblem::NamelessSection))?;
            open = false;
        } else if line.starts_with(['#', ';']) {
            open = false;
        } else {
            let (name, value) = line.split_once(['=', ':']).ok_or_else(|| wrong(IniProblem::NoAssignment))?;
            let name = Some(name.trim()).filter(|name| !name.is_empty()).ok_or_else(|| wrong(IniProblem::NamelessOption))?;
            let section = section.ok_or_else(|| wrong(IniProblem::NoSection))?.to_owned();
            found.push(Assignment { section, name: name.to_owned(), value: unquoted(value.trim()).to_owned(), line: number });
            open = true;
        }
    }
    Ok(found)
}

fn unquoted(value: &str) -> &str {
    // A quote alone is both of its ends to oslo.config.
    if matches!(value, "\"" | "'") {
        return "";
    }
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String, String)> {
        parse(text).unwrap().into_iter().map(|a| (a.section, a.name, a.value)).collect()
    }

    fn refused(text: &str) -> (usize, IniProblem) {
        let e = parse(text).unwrap_err();
        (e.line, e.problem)
    }

    /// Each text was given to oslo.config's own parser too.
    #[test]
    fn a_file_is_read_as_oslo_config_reads_it() {
        let all = read("# c\n[a]\nx = 1 # no comment\ny: b=c\nz=\"q r\"\n; c\n  \n[b]\nl = one,\n  two\n\tthree\n\nx='\nw==\n");
        let of = |s: &str, n: &str, v: &str| (s.to_owned(), n.to_owned(), v.to_owned());
        let wanted = [
            of("a", "x", "1 # no comment"),
            of("a", "y", "b=c"),
            of("a", "z", "q r"),
            of("b", "l", "one,\ntwo\nthree"),
            of("b", "x", ""),
            of("b", "w", "="),
        ];
        assert_eq!(all, wanted);
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        assert_eq!(refused("[a]\n[b"), (2, IniProblem::OpenSection));
        assert_eq!(refused("[]"), (1, IniProblem::NamelessSection));
        assert_eq!(refused("x = 1"), (1, IniProblem::NoSection));
        assert_eq!(refused("[a]\nhello"), (2, IniProblem::NoAssignment));
        assert_eq!(refused("[a]\n= 1"), (2, IniProblem::NamelessOption));
        assert_eq!(refused("[a]\nx=1\n\n  y"), (4, IniProblem::NothingToContinue));
    }
}
