//! Drawings compared with those kept in `golden/`, which `UPDATE_GOLDEN=1` writes anew, and what holds for every
//! drawing: no line too long, no name that is taken for anything else.

use std::path::Path;

use super::*;

fn style(width: usize) -> Style {
    Style { width, ..Style::default() }
}

fn sample(name: &str) -> Topology {
    samples::all().into_iter().find(|(known, _)| *known == name).unwrap().1
}

fn is_golden(file: &str, drawn: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/graph/golden").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error} (UPDATE_GOLDEN=1 writes it)", path.display()));
    assert!(kept == drawn, "{file} is drawn differently (UPDATE_GOLDEN=1 renews it):\n{drawn}");
}

#[test]
fn terminal_drawings_are_as_kept() {
    for (name, topology) in samples::all() {
        is_golden(&format!("{name}.txt"), &draw(&topology, Format::Terminal, &style(120)));
    }
    is_golden("demo-80.txt", &draw(&sample("demo"), Format::Terminal, &style(80)));
    is_golden("demo-50.txt", &draw(&sample("demo"), Format::Terminal, &style(50)));
    is_golden("cluster-ascii.txt", &draw(&sample("cluster"), Format::Terminal, &Style { unicode: false, ..style(100) }));
    is_golden("demo-color.txt", &draw(&sample("demo"), Format::Terminal, &Style { color: true, ..style(120) }));
}

#[test]
fn other_drawings_are_as_kept() {
    for name in ["one", "demo", "cluster", "hostile"] {
        for (format, extension) in [(Format::Svg, "svg"), (Format::Mermaid, "mmd"), (Format::Dot, "dot")] {
            is_golden(&format!("{name}.{extension}"), &draw(&sample(name), format, &style(80)));
        }
    }
}

#[test]
fn no_line_is_longer_than_the_terminal() {
    for (name, topology) in samples::all() {
        for width in (1..160).chain([1_000_000, usize::MAX]) {
            for unicode in [true, false] {
                let drawn = draw(&topology, Format::Terminal, &Style { unicode, color: false, width });
                let widest = drawn.lines().map(text::columns).max().unwrap_or(0);
                assert!(widest <= width, "{name} at {width}: {widest}\n{drawn}");
                assert!(unicode || drawn.is_ascii(), "{name} at {width}: {drawn}");
                assert!(drawn.ends_with('\n') && !drawn.ends_with("\n\n"), "{name} at {width}");
                assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'), "{name} at {width}");
            }
        }
    }
}

/// What is drawn without its colours.
fn bare(drawn: &str) -> String {
    let mut parts = drawn.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |sum, part| sum + part.split_once('m').unwrap().1)
}

#[test]
fn colors_add_nothing_but_colors() {
    for (name, topology) in samples::all() {
        for width in [40, 80, 120] {
            let plain = draw(&topology, Format::Terminal, &style(width));
            let colored = draw(&topology, Format::Terminal, &Style { color: true, ..style(width) });
            assert_eq!(bare(&colored), plain, "{name} at {width}");
        }
    }
}

#[test]
fn every_pod_interface_and_address_is_drawn() {
    for name in ["one", "demo", "cluster", "eight", "hundred"] {
        let topology = sample(name);
        for (format, width) in [(Format::Terminal, 120), (Format::Terminal, 100), (Format::Terminal, 45), (Format::Svg, 0)] {
            let drawn = draw(&topology, format, &style(width));
            for pod in topology.pods() {
                assert!(drawn.contains(&*pod.title()), "{name} {format} {width}: {}", pod.title());
                for address in pod.interfaces.iter().flat_map(|one| &one.addresses) {
                    assert!(drawn.contains(&address.to_string()), "{name} {format} {width}: {address}");
                }
            }
        }
    }
}

/// On the right of every interface's row there is a line, and following lines from it leads to the title of its link
/// and to no other.
#[test]
fn lines_lead_where_the_interface_is_attached() {
    for name in ["one", "demo", "cluster", "eight", "hundred"] {
        let topology = sample(name);
        let drawn = draw(&topology, Format::Terminal, &style(140));
        let grid: Vec<Vec<char>> = drawn.lines().map(|line| line.chars().collect()).collect();
        for interface in topology.pods().flat_map(|pod| &pod.interfaces) {
            let address = interface.addresses[0].to_string();
            let row = drawn.lines().position(|line| line.contains(&format!("{address} ")) && line.contains(&interface.network)).unwrap();
            let start = grid[row].iter().skip(4).position(|c| "├┼".contains(*c)).unwrap() + 4;
            let mut reached = follow(&grid, (row, start + 1));
            reached.dedup();
            assert_eq!(reached, [interface.attached_to.clone().unwrap()], "{name} {address}\n{drawn}");
        }
    }
}

/// Walks a line from a cell to its right, through labels, and collects the names of the links that it ends at.
fn follow(grid: &[Vec<char>], begin: (usize, usize)) -> Vec<String> {
    let at = |row: usize, column: usize| grid.get(row).and_then(|line| line.get(column)).copied().unwrap_or(' ');
    let arms = |c: char| match c {
        '┤' => "news".replace('e', ""),
        '├' => "nes".to_owned(),
        '┼' => "news".to_owned(),
        '╮' => "ws".to_owned(),
        '╯' => "nw".to_owned(),
        '╭' => "es".to_owned(),
        '╰' => "ne".to_owned(),
        '┬' => "ews".to_owned(),
        '┴' => "new".to_owned(),
        _ => String::new(),
    };
    let (mut heads, mut seen, mut reached) = (vec![(begin, 'e')], Vec::new(), Vec::new());
    while let Some(((row, column), way)) = heads.pop() {
        if seen.contains(&((row, column), way)) || at(row, column.saturating_sub(1)) == '╞' {
            continue;
        }
        seen.push(((row, column), way));
        let c = at(row, column);
        let title: String = grid[row - 1].iter().skip(column).collect();
        if way == 'e' && title.starts_with('┌') {
            reached.push(title.trim_matches(['┌', '─', ' ', '┐', '│', '║']).split(' ').next().unwrap().to_owned());
            continue;
        }
        if way == 'e'
            && at(row, column - 1) == '─'
            && c == ' '
            && at(row, column + 1).is_alphanumeric()
            && reached.is_empty()
            && at(row, column.saturating_sub(2)) == '╰'
        {
            continue; // The name at the lower end of a long line.
        }
        let passes = way == 'e' && !"┤├┼╮╯╭╰┬┴".contains(c) || "ns".contains(way) && c == '│' || way == 'w' && "─│".contains(c);
        let back = match way {
            'e' => 'w',
            'w' => 'e',
            'n' => 's',
            _ => 'n',
        };
        let ways = if passes { way.to_string() } else { arms(c).replace(back, "") };
        for next in ways.chars() {
            let place = match next {
                'e' => (row, column + 1),
                'w' => (row, column - 1),
                'n' => (row - 1, column),
                _ => (row + 1, column),
            };
            if next != 'w' && place.1 < grid[place.0].len() {
                heads.push((place, next));
            }
        }
    }
    reached
}

/// A document without its quoted strings.
fn unquoted(text: &str) -> String {
    text.split('"').step_by(2).collect()
}

#[test]
fn hostile_names_stay_inside_their_quotes() {
    for format in [Format::Mermaid, Format::Dot] {
        let (evil, good) = (draw(&sample("hostile"), format, &style(80)), draw(&sample("cluster"), format, &style(80)));
        for foreign in ["script", "漢", "end\n\x1b", "alert", "31m"] {
            let outside = unquoted(&evil);
            let outside = if format == Format::Dot { outside.split(['<', '>']).step_by(2).collect() } else { outside };
            assert!(!outside.contains(foreign), "{format}: {foreign} in {outside}");
        }
        assert_eq!(evil.matches('"').count() % 2, 0);
        assert!(good.lines().all(|line| line.matches('"').count() % 2 == 0), "{format}");
        assert!(evil.lines().all(|line| line.matches('"').count() % 2 == 0), "{format}");
    }
}

#[test]
fn svg_is_well_formed_and_does_nothing() {
    for (name, topology) in samples::all() {
        let drawn = draw(&topology, Format::Svg, &style(80));
        let mut open: Vec<&str> = Vec::new();
        for tag in drawn.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("{name}: no end of {tag}"));
            let element = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
            assert!(["svg", "title", "desc", "style", "rect", "g", "text", "circle", "path"].contains(&element), "{name}: {element}");
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) => assert_eq!(open.pop(), Some(element), "{name}"),
                (false, false) => open.push(element),
                (false, true) => {}
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{name}: {tag}");
        }
        assert!(open.is_empty(), "{name}: {open:?}");
        assert!(!drawn.contains("url(") && !drawn.contains("href") && !drawn.contains("<script"), "{name}");
    }
}

#[test]
fn what_a_wire_or_an_interface_names_is_drawn_though_it_is_missing() {
    let drawn = draw(&sample("hostile"), Format::Terminal, &style(200));
    assert!(drawn.contains("nowhere") && drawn.contains("missing"), "{drawn}");
    let cluster = draw(&sample("cluster"), Format::Terminal, &style(200));
    assert!(cluster.contains("wire storage") && cluster.contains("eth9"), "{cluster}");
}

#[test]
fn the_order_of_what_is_given_does_not_matter() {
    let topology = sample("cluster");
    let mut turned = topology.clone();
    turned.nodes.reverse();
    turned.wires.reverse();
    for node in &mut turned.nodes {
        node.links.reverse();
        node.pods.reverse();
        node.pods.iter_mut().for_each(|pod| pod.interfaces.reverse());
    }
    for format in Format::ALL {
        assert_eq!(draw(&topology, format, &style(120)), draw(&turned, format, &style(120)), "{format}");
    }
}

#[test]
fn formats_are_read_by_name() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    let error = "png".parse::<Format>().unwrap_err();
    assert_eq!(error.to_string(), "\"png\" is not a drawing format: use one of terminal, svg, mermaid, dot");
}
