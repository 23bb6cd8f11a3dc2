//! What `iptables-restore` reads, and `iptables-save` prints: lines of words, with double quotes and backslashes.

use super::IptablesError;

/// A rule without its chain: matches and target, as on the command line of `iptables`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule(String);

/// What is to happen to a table, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    table: String,
    lines: Vec<String>,
}

/// The words of a line, without what quotes them.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quoted, mut escaped, mut begun) = (String::new(), false, false, false);
    for c in line.chars() {
        match c {
            _ if escaped => {
                word.push(c);
                escaped = false;
            }
            '\\' if quoted => escaped = true,
            '"' => {
                quoted = !quoted;
                begun = true;
            }
            ' ' | '\t' if !quoted => {
                if begun || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            _ => word.push(c),
        }
    }
    if begun || !word.is_empty() {
        words.push(word);
    }
    words
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=!@+%[]".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let mut text = String::from("\"");
    for c in word.chars() {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
    text
}

// === impl Rule ===

impl Rule {
    /// Of these words, which are quoted where needed.
    pub fn new<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Self {
        let words: Vec<String> = words.into_iter().map(|word| quoted(word.as_ref())).collect();
        Rule(words.join(" "))
    }

    /// As `iptables-save` prints it behind `-A CHAIN`: the very same text deletes it.
    pub(super) fn saved(text: &str) -> Self {
        Rule(text.to_owned())
    }

    /// Its words.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        words(&self.0)
    }

    /// What stands behind this word, the last time that it is there: `after("-j")` is the target.
    #[must_use]
    pub fn after(&self, word: &str) -> Option<String> {
        let words = self.words();
        let at = words.iter().rposition(|w| w == word)?;
        words.get(at + 1).cloned()
    }

    /// The chain that it jumps to, or its target.
    #[must_use]
    pub fn target(&self) -> Option<String> {
        self.after("-j").or_else(|| self.after("-g"))
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

// === impl Changes ===

impl Changes {
    /// None yet, of this table.
    #[must_use]
    pub fn of(table: &str) -> Self {
        Changes { table: table.to_owned(), lines: Vec::new() }
    }

    /// A chain, empty from here on whether it was there or not.
    pub fn empty_chain(&mut self, chain: &str) {
        self.lines.push(format!(":{} - [0:0]", quoted(chain)));
    }

    /// A chain that is not there yet.
    pub fn new_chain(&mut self, chain: &str) {
        self.lines.push(format!("-N {}", quoted(chain)));
    }

    /// A chain that is there goes, with its rules. Nothing may jump to it any more.
    pub fn remove_chain(&mut self, chain: &str) {
        let chain = quoted(chain);
        self.lines.extend([format!("-F {chain}"), format!("-X {chain}")]);
    }

    /// A rule as the last one of a chain that is there.
    pub fn append(&mut self, chain: &str, rule: &Rule) {
        self.lines.push(format!("-A {} {rule}", quoted(chain)));
    }

    /// A rule as the first one of a chain that is there.
    pub fn insert(&mut self, chain: &str, rule: &Rule) {
        self.lines.push(format!("-I {} {rule}", quoted(chain)));
    }

    /// The first such rule of a chain goes; there must be one.
    pub fn delete(&mut self, chain: &str, rule: &Rule) {
        self.lines.push(format!("-D {} {rule}", quoted(chain)));
    }

    /// There must be such a rule.
    pub(super) fn look_for(&mut self, chain: &str, rule: &Rule) {
        self.lines.push(format!("-C {} {rule}", quoted(chain)));
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// All of it, as `iptables-restore` reads it.
    ///
    /// # Errors
    /// A word with a line break or another control character in it, which would be read as something else.
    pub(super) fn text(&self) -> Result<String, IptablesError> {
        let table = &self.table;
        if let Some(line) = self.lines.iter().find(|line| line.chars().any(char::is_control)) {
            return Err(IptablesError::ControlCharacter { line: line.clone() });
        }
        Ok(format!("*{table}\n{}\nCOMMIT\n", self.lines.join("\n")))
    }
}
