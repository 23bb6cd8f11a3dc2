//! The Markdown of the tree: links and anchors lead somewhere, JSON is JSON, the book's table of contents names every page.
//!
//! ```text
//!   *.md, docs/**/*.md --> Page { anchors, links, blocks of JSON } --> faults: FILE:LINE: what is wrong
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// The book's table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The index that a reader of the repository sees. Pages of plugins are in an index of their own.
const INDEX: &str = "docs/README.md";
const PLUGINS: &str = "docs/use/plugins.md";
const PLUGIN_PAGES: &str = "docs/use/plugins/";

/// One document.
#[derive(Debug, Default)]
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<Link>,
    faults: Vec<String>,
}

/// A link, or the source of an image.
#[derive(Debug)]
struct Link {
    line: usize,
    target: String,
}

/// How many documents there are, and what is wrong in them.
///
/// # Errors
/// What cannot be read.
pub(crate) fn faults(root: &Path) -> Result<(usize, Vec<String>)> {
    let mut pages = BTreeMap::new();
    for path in paths(root)? {
        let text = std::fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        pages.insert(path, read(&text));
    }
    let mut faults = Vec::new();
    for (path, page) in &pages {
        faults.extend(page.faults.iter().map(|fault| format!("{path}:{fault}")));
        for link in &page.links {
            if let Some(fault) = fault_of(root, &pages, path, &link.target) {
                faults.push(format!("{path}:{}: {}: {fault}", link.line, link.target));
            }
        }
    }
    faults.extend(unlisted(&pages));
    Ok((pages.len(), faults))
}

/// The documents at the root, and all below docs/.
fn paths(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new(), PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder)).with_context(|| folder.display().to_string())? {
            let path = folder.join(entry?.file_name());
            if path.extension().is_some_and(|e| e == "md") {
                found.push(path.display().to_string());
            } else if path.starts_with("docs") && root.join(&path).is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(found)
}

fn read(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    let mut json: Option<(usize, String)> = None;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let line = text.get(..range.start).unwrap_or_default().matches('\n').count() + 1;
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let again = (1..).map(|n| format!("{slug}-{n}")).find(|s| !page.anchors.contains(s));
                let free = if page.anchors.contains(&slug) { again.unwrap_or_default() } else { slug };
                page.anchors.insert(free);
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(Link { line, target: dest_url.to_string() });
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) if &*language == "json" => json = Some((line, String::new())),
            Event::End(TagEnd::CodeBlock) => {
                if let Some((line, block)) = json.take() {
                    page.faults.extend(serde_json::from_str::<serde_json::Value>(&block).err().map(|e| format!("{line}: bad JSON: {e}")));
                }
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                let sources = html.split("src=\"").chain(html.split("srcset=\"")).skip(1);
                let sources = sources.filter(|rest| !rest.starts_with('<')).filter_map(|rest| rest.split('"').next());
                page.links.extend(sources.map(|target| Link { line, target: target.to_owned() }));
            }
            Event::Text(words) | Event::Code(words) => {
                heading.iter_mut().for_each(|heading| heading.push_str(&words));
                json.iter_mut().for_each(|(_, block)| block.push_str(&words));
            }
            _ => {}
        }
    }
    page
}

/// A heading's anchor, as GitHub and mdBook make it.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn fault_of(root: &Path, pages: &BTreeMap<String, Page>, from: &str, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { from.to_owned() } else { resolved(from, file) };
    if !root.join(&path).exists() {
        return Some("no such file");
    }
    let anchor = anchor?;
    match pages.get(&path) {
        Some(page) if page.anchors.contains(anchor) => None,
        Some(_) => Some("the page has no such heading"),
        None => Some("an anchor in a file that is no document"),
    }
}

/// Where a link leads, from the root of the tree.
fn resolved(from: &str, file: &str) -> String {
    let mut path = Path::new(from).parent().map(Path::to_path_buf).unwrap_or_default();
    for component in Path::new(file).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(part) => path.push(part),
            _ => {}
        }
    }
    path.display().to_string()
}

/// Pages that the table of contents or their index leaves out.
fn unlisted(pages: &BTreeMap<String, Page>) -> Vec<String> {
    let listed = |list: &str| -> BTreeSet<String> {
        let links = pages.get(list).map(|page| page.links.as_slice()).unwrap_or_default();
        links.iter().map(|link| resolved(list, link.target.split('#').next().unwrap_or_default())).collect()
    };
    let (summary, index, plugins) = (listed(SUMMARY), listed(INDEX), listed(PLUGINS));
    let mut faults = Vec::new();
    for page in pages.keys().filter(|p| p.starts_with("docs/") && *p != SUMMARY) {
        if !summary.contains(page) {
            faults.push(format!("{SUMMARY}: does not name {page}"));
        }
        let (list, pages) = if page.starts_with(PLUGIN_PAGES) { (PLUGINS, &plugins) } else { (INDEX, &index) };
        if page != INDEX && !pages.contains(page) {
            faults.push(format!("{list}: does not name {page}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_github() {
        let page = read("# A `pool` in a file\n\n## What's new?\n\n## up\n\n## up\n");
        let anchors: Vec<&str> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(anchors, ["a-pool-in-a-file", "up", "up-1", "whats-new"]);
    }

    #[test]
    fn links_images_and_json_are_found_with_their_lines() {
        let page = read("[a](b.md#c)\n\n| x |\n|---|\n| ![i](j.svg) |\n\n```json\n{\n```\n\n`[no](link)`\n");
        let links: Vec<(usize, &str)> = page.links.iter().map(|l| (l.line, l.target.as_str())).collect();
        assert_eq!(links, [(1, "b.md#c"), (5, "j.svg")]);
        assert_eq!(page.faults.len(), 1);
        assert!(page.faults.iter().all(|f| f.starts_with("7: bad JSON")), "{:?}", page.faults);
    }

    #[test]
    fn a_link_is_followed_from_its_page() {
        assert_eq!(resolved("docs/use/lab.md", "../../deploy/agent.yaml"), "deploy/agent.yaml");
        assert_eq!(resolved("README.md", "docs/use/lab.md"), "docs/use/lab.md");
    }
}
