//! Checks `docs/systems.md`: every row has a line and a state, and a done row names existing tests.

use std::fmt::Write as _;

/// Sections of the table with the number of their rows.
const SECTIONS: [(&str, usize); 6] = [
    ("A", 36),
    ("B", 36),
    ("C", 24),
    ("D", 22),
    ("E", 22),
    ("fail", 8),
];
const HEADER: [&str; 4] = ["row", "state", "what it is here", "shown by"];
const STATES: [&str; 4] = ["done", "unmeasured", "planned", "will not be built"];

/// Ids of all rows in order: `A-01` to `E-22`, then `fail-1` to `fail-8`.
fn ids() -> Vec<String> {
    let number = |section: &str, n: usize| match section {
        "fail" => format!("fail-{n}"),
        _ => format!("{section}-{n:02}"),
    };
    SECTIONS
        .iter()
        .flat_map(|&(section, count)| (1..=count).map(move |n| number(section, n)))
        .collect()
}

/// One line of the table.
struct Row<'a> {
    id: &'a str,
    state: &'a str,
    text: &'a str,
    shown_by: &'a str,
}

/// The rows of the page; every line with a `|` must be one, or a header.
fn rows<'a>(page: &'a str, problems: &mut Vec<String>) -> Vec<Row<'a>> {
    let mut rows = Vec::new();
    for (line, text) in page.lines().enumerate() {
        if !text.contains('|') {
            continue;
        }
        let cells: Vec<_> = text.split('|').map(str::trim).collect();
        match cells[..] {
            ["", "---", "---", "---", "---", ""] => {}
            ["", a, b, c, d, ""] if [a, b, c, d] == HEADER => {}
            ["", id, state, text, shown_by, ""] => rows.push(Row {
                id,
                state,
                text,
                shown_by,
            }),
            _ => problems.push(format!("line {}: malformed: {text}", line + 1)),
        }
    }
    rows
}

/// All problems of the page. `read` returns a file of the repository by its path.
pub(crate) fn problems(page: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut problems = Vec::new();
    let rows = rows(page, &mut problems);
    let expected = ids();
    for id in &expected {
        match rows.iter().filter(|row| row.id == id).count() {
            1 => {}
            0 => problems.push(format!("{id}: missing")),
            n => problems.push(format!("{id}: {n} lines")),
        }
    }
    for row in &rows {
        if !expected.iter().any(|id| id == row.id) {
            problems.push(format!("{}: no such row", row.id));
        }
        if let Some(problem) = problem(row, read) {
            problems.push(format!("{}: {problem}", row.id));
        }
    }
    problems
}

fn problem(row: &Row<'_>, read: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    if row.text.is_empty() {
        return Some("has no text".to_owned());
    }
    match row.state {
        "done" => tests(row.shown_by, read),
        "planned" if row.shown_by == "-" => None,
        // Tests of the finished part.
        "planned" => tests(row.shown_by, read),
        "unmeasured" => {
            let command = row.shown_by.strip_prefix("`bessemer-bench ");
            let known = command.is_some_and(|c| c.ends_with('`'));
            (!known).then(|| format!("{} is not a command of bessemer-bench", row.shown_by))
        }
        "will not be built" => (row.shown_by != "-").then(|| "has a test".to_owned()),
        state => Some(format!("state `{state}` is none of {STATES:?}")),
    }
}

/// The problems of a list of `file::test`.
fn tests(list: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let mut wrong = String::new();
    for test in list.split(", ") {
        let Some((file, name)) = test.split_once("::") else {
            let _ = write!(wrong, "`{test}` is not file::test; ");
            continue;
        };
        match read(file) {
            None => _ = write!(wrong, "there is no file {file}; "),
            Some(source) if !has_test(file, &source, name) => {
                _ = write!(wrong, "{file} has no test {name}; ");
            }
            Some(_) => {}
        }
    }
    (!wrong.is_empty()).then_some(wrong)
}

/// Returns whether a file has a test of this name: a function under `#[test]` that is not ignored, or one of pytest.
fn has_test(file: &str, source: &str, name: &str) -> bool {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    if file.ends_with(".py") {
        let start = format!("def {name}(");
        return name.starts_with("test_") && lines.iter().any(|line| line.starts_with(&start));
    }
    let start = format!("fn {name}(");
    lines.iter().enumerate().any(|(at, line)| {
        // Attributes and comments above the function, back to the end of the item before.
        let above = || {
            lines[..at].iter().rev().take_while(|line| {
                !line.is_empty() && !line.ends_with(['}', ';', '{']) && !line.starts_with("#!")
            })
        };
        line.starts_with(&start)
            && above().any(|line| *line == "#[test]")
            && !above().any(|line| line.starts_with("#[ignore"))
    })
}

/// A page in which every row is done and shown by `t.rs::works`.
fn page() -> String {
    let mut page =
        "Prose.\n\n| row | state | what it is here | shown by |\n|---|---|---|---|\n".to_owned();
    for id in ids() {
        let _ = writeln!(page, "| {id} | done | something | t.rs::works |");
    }
    page
}

/// The problems of that page after one change.
fn found(line: &str, instead: &str) -> Vec<String> {
    let page = page();
    assert!(page.contains(line), "{line}");
    problems(&page.replacen(line, instead, 1), &|file| {
        let source = match file {
            "t.rs" => {
                "#[test]\nfn works() {}\n\n#[test]\n#[ignore]\nfn sleeps() {}\n\nfn helps() {}\n\n// #[test]\nfn is_off() {}"
            }
            "t.py" => "def test_works(tmp_path):\n    pass\ndef helps():\n    pass\n",
            _ => return None,
        };
        Some(source.to_owned())
    })
}

/// Line `C-07` of that page.
const TABLE_LINE: &str = "| C-07 | done | something | t.rs::works |\n";

#[test]
fn the_table_has_one_hundred_and_forty_promises_and_eight_failures() {
    assert_eq!(ids().len(), 140 + 8);
    assert_eq!(found("Prose", "Text"), [""; 0]);
}

#[test]
fn a_row_that_is_missing_doubled_or_unknown_is_found() {
    assert_eq!(found(TABLE_LINE, ""), ["C-07: missing"]);
    assert_eq!(found(TABLE_LINE, &TABLE_LINE.repeat(2)), ["C-07: 2 lines"]);
    let unknown = TABLE_LINE.replace("07", "25");
    assert_eq!(
        found(TABLE_LINE, &unknown),
        ["C-07: missing", "C-25: no such row"]
    );
}

#[test]
fn a_malformed_line_is_found() {
    for line in [
        "| C-07 | something | t.rs::works |",
        "| C-07 | done | one | two | t.rs::works |",
        "C-07 | done | something | t.rs::works",
        "| C-07 | done | something | t.rs::works",
    ] {
        let found = found(TABLE_LINE, &format!("{line}\n"));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("malformed"), "{found:?}");
        assert_eq!(found[1], "C-07: missing");
    }
}

#[test]
fn every_state_is_checked() {
    let problem = |state: &str, text: &str, shown_by: &str| {
        found(
            TABLE_LINE,
            &format!("| C-07 | {state} | {text} | {shown_by} |\n"),
        )
        .concat()
    };
    assert!(problem("Done", "x", "t.rs::works").contains("is none of"));
    assert!(problem("", "x", "t.rs::works").contains("is none of"));
    assert!(problem("done", "", "t.rs::works").contains("has no text"));
    assert!(problem("done", "x", "-").contains("is not file::test"));
    assert_eq!(problem("planned", "x", "-"), "");
    assert!(problem("planned", "x", "t.rs::walks").contains("no test walks"));
    assert_eq!(problem("unmeasured", "x", "`bessemer-bench metal`"), "");
    assert!(problem("unmeasured", "x", "-").contains("is not a command"));
    assert!(problem("unmeasured", "x", "`ls`").contains("is not a command"));
    assert_eq!(problem("will not be built", "x", "-"), "");
    assert!(problem("will not be built", "x", "t.rs::works").contains("has a test"));
}

#[test]
fn a_test_is_a_function_that_the_test_runner_runs() {
    let problem =
        |shown_by: &str| found(TABLE_LINE, &format!("| C-07 | done | x | {shown_by} |\n")).concat();
    assert_eq!(problem("t.rs::works, t.py::test_works"), "");
    for name in ["helps", "sleeps", "is_off", "work", "works_not"] {
        assert!(
            problem(&format!("t.rs::{name}")).contains("has no test"),
            "{name}"
        );
    }
    assert!(problem("t.py::helps").contains("has no test"));
    assert!(problem("t.py::test_work").contains("has no test"));
    assert!(problem("u.rs::works").contains("there is no file"));
    assert!(problem("t.rs::works, t.rs::helps").contains("no test helps"));
}
