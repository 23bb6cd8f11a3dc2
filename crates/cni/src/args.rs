//! `CNI_ARGS`: `KEY=VALUE;KEY=VALUE`.

use crate::{CniError, Code};

/// So many unknown pairs are named by an error.
const SHOWN: usize = 8;

/// The pairs of `CNI_ARGS`, in order; the last of equal keys counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CniArgs {
    pairs: Vec<(String, String)>,
    /// The variable as it came, where a part of it is no pair: others may be told it unchanged.
    malformed: Option<String>,
}

// === impl CniArgs ===

impl CniArgs {
    /// Reads the variable; an empty one has no pairs, a trailing `;` is tolerated.
    ///
    /// # Errors
    /// Code 4 naming the pair that has no `=`.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        let args = Self::read(text);
        args.well_formed()?;
        Ok(args)
    }

    /// Reads the variable for a call that may not need it: whoever does asks [`CniArgs::well_formed`]. What is no pair is
    /// skipped, and printed again.
    pub fn read(text: &str) -> Self {
        let pairs: Vec<_> = parts(text).filter_map(pair).map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let malformed = (pairs.len() != parts(text).count()).then(|| text.to_owned());
        CniArgs { pairs, malformed }
    }

    /// Whether everything that came is a pair.
    ///
    /// # Errors
    /// Code 4 naming the first that has no `=`.
    pub fn well_formed(&self) -> Result<(), CniError> {
        let text = self.malformed.as_deref().unwrap_or_default();
        match parts(text).find(|part| pair(part).is_none()) {
            None => Ok(()),
            Some(part) => {
                let shown: String = part.chars().take(80).collect();
                let msg = format!("CNI_ARGS: invalid pair {shown:?}: expected KEY=VALUE;KEY=VALUE");
                Err(CniError::new(Code::INVALID_ENVIRONMENT, msg))
            }
        }
    }

    /// All but these keys.
    #[must_use]
    pub fn without(&self, keys: &[&str]) -> Self {
        CniArgs { pairs: self.pairs.iter().filter(|(key, _)| !keys.contains(&key.as_str())).cloned().collect(), malformed: None }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// All pairs, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Adds a pair.
    pub fn push(&mut self, key: &str, value: &str) {
        self.pairs.push((key.to_owned(), value.to_owned()));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// What the reference plugins do with pairs that they do not know (`types.LoadArgs`): an error, unless the caller
    /// says `IgnoreUnknown=1` or `true`.
    ///
    /// # Errors
    /// Code 4 naming what is no pair, the pairs, or an `IgnoreUnknown` that says neither yes nor no.
    pub fn only(&self, known: &[&str]) -> Result<(), CniError> {
        self.well_formed()?;
        let lenient = match self.get("IgnoreUnknown").map(str::to_ascii_lowercase).as_deref() {
            Some("1" | "true") => true,
            None | Some("0" | "false") => false,
            Some(other) => {
                let shown: String = other.chars().take(80).collect();
                let msg = format!("CNI_ARGS: IgnoreUnknown={shown}: expected 1, true, 0 or false");
                return Err(CniError::new(Code::INVALID_ENVIRONMENT, msg));
            }
        };
        let unknown = || self.iter().filter(|(k, _)| !known.contains(k) && *k != "IgnoreUnknown");
        if lenient || unknown().next().is_none() {
            return Ok(());
        }
        // There may be 128 KiB of them, and the message goes into a log for each attempt.
        let shown: Vec<String> = unknown().take(SHOWN).map(|(k, v)| format!("{k}={v}").chars().take(80).collect()).collect();
        let more = match unknown().count().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let msg =
            format!("CNI_ARGS: unknown args [{}{more}]: known are {}; IgnoreUnknown=1 ignores others", shown.join(" "), known.join(", "));
        Err(CniError::new(Code::INVALID_ENVIRONMENT, msg))
    }
}

impl std::fmt::Display for CniArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(text) = &self.malformed {
            return f.write_str(text);
        }
        for (i, (key, value)) in self.iter().enumerate() {
            let semicolon = if i == 0 { "" } else { ";" };
            write!(f, "{semicolon}{key}={value}")?;
        }
        Ok(())
    }
}

/// What stands between semicolons.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').filter(|part| !part.is_empty())
}

fn pair(part: &str) -> Option<(&str, &str)> {
    part.split_once('=').filter(|(key, _)| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs() {
        let args = CniArgs::parse("IgnoreUnknown=1;IP=10.0.0.1;X=a=b;").unwrap();
        assert_eq!(args.get("IP"), Some("10.0.0.1"));
        assert_eq!(args.get("X"), Some("a=b"));
        assert_eq!(args.to_string(), "IgnoreUnknown=1;IP=10.0.0.1;X=a=b");
        assert!(args.only(&["IP"]).is_ok());
        for bad in ["x", "=1", "a=1;b"] {
            assert_eq!(CniArgs::parse(bad).unwrap_err().code, Code::INVALID_ENVIRONMENT);
            assert_eq!(CniArgs::read(bad).only(&["a"]).unwrap_err().code, Code::INVALID_ENVIRONMENT);
            assert_eq!(CniArgs::read(bad).to_string(), bad, "others are told what came");
        }
        assert_eq!(CniArgs::read("a=1;b").get("a"), Some("1"));
        let e = CniArgs::parse("FOO=1").unwrap().only(&["IP"]).unwrap_err();
        assert!(e.msg.contains("FOO=1"), "{e}");
        assert!(CniArgs::parse("IgnoreUnknown=perhaps").unwrap().only(&[]).unwrap_err().msg.contains("IgnoreUnknown=perhaps"));
        let many = "K=v;".repeat(300_000) + "L=" + &"x".repeat(1 << 20);
        let args = CniArgs::parse(&many).unwrap();
        assert_eq!(args.get("L").map(str::len), Some(1 << 20));
        let e = args.only(&["IP"]).unwrap_err();
        assert!(e.msg.contains("K=v") && e.msg.contains("and 299993 more") && e.msg.len() < 300, "{e}");
        assert!(CniArgs::parse(&"x".repeat(1 << 20)).unwrap_err().msg.len() < 200);
    }
}
