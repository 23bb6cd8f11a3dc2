//! From the command line to documents: files, folders and standard input, read and split.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use yaml::DocumentText;

use super::Origin;
use super::error::ManifestProblem;
use super::relations::Reading;

/// The bytes of one file at the most.
pub const MAX_FILE: usize = 16 << 20;

/// The documents of all files at the most.
pub const MAX_DOCUMENTS: usize = 10_000;

/// What files of a folder are manifests: the same as for `kubectl`.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// One document of one file.
#[derive(Debug)]
pub(crate) struct Document {
    /// Where it is.
    pub(crate) placement: Placement,
    /// Its text, with the marker before it.
    pub(crate) text: String,
}

/// Where a document is.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    /// The file as it was named.
    file: Arc<str>,
    /// Which document of the file; the first is 1.
    number: usize,
    /// The lines of the file before it.
    lines_before: usize,
    /// The columns of its first line before it.
    columns_before: usize,
}

// === impl Placement ===

impl Placement {
    /// A place in the document, whose first line is 1, as a place in its file.
    pub(crate) fn origin(&self, line: usize, column: usize) -> Origin {
        let before = if line == 1 { self.columns_before } else { 0 };
        Origin { file: self.file.clone(), document: self.number, line: line + self.lines_before, column: column + before }
    }
}

// === impl Document ===

impl Document {
    /// A place in the document, whose first line is 1, as a place in its file.
    pub(crate) fn origin(&self, line: usize, column: usize) -> Origin {
        self.placement.origin(line, column)
    }

    /// The document as a whole.
    pub(crate) fn whole(&self) -> Origin {
        Origin { file: self.placement.file.clone(), document: self.placement.number, line: 0, column: 0 }
    }

    /// Its file as a whole.
    pub(crate) fn file_origin(&self) -> Origin {
        Origin::of_file(self.placement.file.clone())
    }

    /// The line of the file that a place in it is in.
    pub(crate) fn line(&self, origin: &Origin) -> Option<&str> {
        let Placement { file, number, lines_before, columns_before } = &self.placement;
        let is_here = *file == origin.file && *number == origin.document && *columns_before == 0;
        self.text.lines().nth(origin.line.checked_sub(lines_before + 1)?).filter(|_| is_here)
    }
}

/// Reads all files and splits them. What cannot be read is reported.
pub(crate) fn read(files: &[PathBuf], stdin: &mut dyn Read, reading: &mut Reading) -> Vec<Document> {
    let mut documents = Vec::new();
    let mut stdin = Some(stdin);
    for file in files {
        if file.as_os_str() == "-" {
            let name: Arc<str> = "standard input".into();
            match stdin.take() {
                Some(input) => one(name, text_of(input), &mut documents, reading),
                None => reading.unreadable(Origin::of_file(name), ManifestProblem::StdinTwice),
            }
        } else if file.is_dir() {
            match manifests_in(file) {
                Ok(found) => found.iter().for_each(|path| one(name_of(path), text_at(path), &mut documents, reading)),
                Err(problem) => reading.unreadable(Origin::of_file(name_of(file)), problem),
            }
        } else {
            one(name_of(file), text_at(file), &mut documents, reading);
        }
    }
    documents
}

fn name_of(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

fn unreadable(e: &io::Error) -> ManifestProblem {
    ManifestProblem::Unreadable { kind: e.kind(), errno: e.raw_os_error() }
}

/// The manifests of a folder in the order of their names.
fn manifests_in(folder: &Path) -> Result<Vec<PathBuf>, ManifestProblem> {
    let mut found = Vec::new();
    let mut folders = false;
    for entry in fs::read_dir(folder).map_err(|e| unreadable(&e))? {
        let path = entry.map_err(|e| unreadable(&e))?.path();
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if path.is_dir() {
            folders = true;
        } else if EXTENSIONS.contains(&extension) {
            found.push(path);
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err(ManifestProblem::EmptyFolder { folders }),
        false => Ok(found),
    }
}

fn text_at(path: &Path) -> Result<String, (usize, ManifestProblem)> {
    let mut file = fs::File::open(path).map_err(|e| match path.to_str() {
        Some(url) if url.starts_with("https://") || url.starts_with("http://") => (0, ManifestProblem::Remote),
        _ => (0, unreadable(&e)),
    })?;
    text_of(&mut file)
}

/// All that `input` has, without a byte order mark; or the line where it is wrong, and why.
fn text_of(input: &mut dyn Read) -> Result<String, (usize, ManifestProblem)> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that is too large, and an endless one ends there.
    let limit = MAX_FILE as u64 + 1;
    input.take(limit).read_to_end(&mut bytes).map_err(|e| (0, unreadable(&e)))?;
    if bytes.len() > MAX_FILE {
        return Err((0, ManifestProblem::TooLarge { max: MAX_FILE }));
    }
    let utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
    let text = String::from_utf8(bytes).map_err(|e| {
        let good = e.as_bytes().iter().take(e.utf8_error().valid_up_to());
        (1 + good.filter(|b| **b == b'\n').count(), ManifestProblem::NotText { utf16 })
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn one(file: Arc<str>, text: Result<String, (usize, ManifestProblem)>, documents: &mut Vec<Document>, reading: &mut Reading) {
    let text = match text {
        Ok(text) => text,
        Err((line, problem)) => {
            let column = usize::from(line > 0);
            return reading.unreadable(Origin { file, document: 0, line, column }, problem);
        }
    };
    for (index, part) in yaml::documents(&text).into_iter().flat_map(json_values).enumerate() {
        let DocumentText { text, lines_before, columns_before } = part;
        let placement = Placement { file: file.clone(), number: index + 1, lines_before, columns_before };
        let document = Document { placement, text: text.to_owned() };
        // One past the last is enough to say so, whatever else follows.
        match documents.len() {
            MAX_DOCUMENTS => return reading.unreadable(document.whole(), ManifestProblem::TooManyDocuments { max: MAX_DOCUMENTS }),
            _ => documents.push(document),
        }
    }
}

/// JSON objects one after another, as `jq '.items[]'` prints them and `kubectl` takes them; YAML has no such thing.
fn json_values(part: DocumentText<'_>) -> Vec<DocumentText<'_>> {
    if !part.text.trim_start().starts_with('{') {
        return vec![part];
    }
    let mut values = serde_json::Deserializer::from_str(part.text).into_iter::<serde::de::IgnoredAny>();
    let mut parts = Vec::new();
    let mut start = 0;
    while let Some(value) = values.next() {
        if value.is_err() {
            return vec![part];
        }
        let end = values.byte_offset();
        let (before, text) = (part.text.get(..start).unwrap_or_default(), part.text.get(start..end).unwrap_or_default());
        let lines_before = part.lines_before + before.matches('\n').count();
        let columns_before = before.chars().rev().take_while(|c| *c != '\n').count();
        parts.push(DocumentText { text, lines_before, columns_before });
        start = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_objects_split() {
        let whole = |text| json_values(DocumentText { text, lines_before: 4, columns_before: 0 });
        let parts = whole("{\"a\": \"}{\"}\n{} {}\n");
        let places: Vec<_> = parts.iter().map(|p| (p.text.trim(), p.lines_before, p.columns_before)).collect();
        assert_eq!(places, [("{\"a\": \"}{\"}", 4, 0), ("{}", 4, 11), ("{}", 5, 2)]);
        assert_eq!(whole("{a: 1}\n{").len(), 1);
        assert_eq!(whole("a: {}").len(), 1);
    }
}
