//! GitHub annotations: workflow commands that show findings next to the lines of a pull request.

use std::io::{self, Write};

use crate::excerpt::Sources;
use crate::msl::finding::{Finding, Findings};

/// Writes one line per finding.
pub(crate) fn write(
    out: &mut impl Write,
    findings: &Findings<'_>,
    sources: &mut Sources,
) -> io::Result<()> {
    for finding in findings.findings {
        write_finding(out, finding, sources)?;
    }
    for failure in findings.failures {
        writeln!(out, "::error title=bessemer::{}", escape_data(failure))?;
    }
    Ok(())
}

fn write_finding(out: &mut impl Write, finding: &Finding, sources: &mut Sources) -> io::Result<()> {
    let mut properties = Vec::new();
    let location = &finding.location;
    if let Some(path) = location.relative_path() {
        properties.push(("file", path));
        if location.line > 0 {
            properties.push(("line", location.line.to_string()));
        }
        let column = location.column_in_characters(sources);
        if location.line > 0 && column > 0 {
            properties.push(("col", column.to_string()));
        }
    }
    properties.push(("title", format!("bessemer: {}", finding.rule)));
    let properties: Vec<_> = properties
        .into_iter()
        .map(|(name, value)| format!("{name}={}", escape_property(&value)))
        .collect();
    let mut message = finding.message.clone();
    for (location, note) in &finding.related {
        message += &format!("\n{}:{}: note: {note}", location.file, location.line);
    }
    let level = if finding.is_error { "error" } else { "warning" };
    writeln!(
        out,
        "::{level} {}::{}",
        properties.join(","),
        escape_data(&message)
    )
}

/// Escapes a message for the runner.
fn escape_data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes a property, in which `:` and `,` are special too.
fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Outcome;
    use crate::msl::finding::Location;

    fn written(finding: Finding, failures: &[String]) -> String {
        let mut out = Vec::new();
        let findings = Findings {
            findings: &[finding],
            failures,
            outcome: Outcome::NotCompiled,
        };
        write(&mut out, &findings, &mut Sources::default()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn properties_and_messages_are_escaped() {
        let location = Location {
            file: "a,b/c:d 100%.metal".to_owned(),
            line: 3,
            column: 7,
        };
        let finding = Finding {
            rule: "compile/compiler".to_owned(),
            is_error: true,
            message: "a: b, 50%\nsecond\r".to_owned(),
            location: location.clone(),
            related: vec![(location, "from here".to_owned())],
        };
        assert_eq!(
            written(finding, &["no\nclang".to_owned()]),
            "::error file=a%2Cb/c%3Ad 100%25.metal,line=3,col=7,title=bessemer%3A compile/compiler\
             ::a: b, 50%25%0Asecond%0D%0Aa,b/c:d 100%25.metal:3: note: from here\n\
             ::error title=bessemer::no%0Aclang\n"
        );
    }

    #[test]
    fn findings_without_a_file_have_only_a_title() {
        let finding = Finding {
            rule: "check/race".to_owned(),
            is_error: false,
            message: "a race".to_owned(),
            location: Location::default(),
            related: Vec::new(),
        };
        assert_eq!(
            written(finding, &[]),
            "::warning title=bessemer%3A check/race::a race\n"
        );
    }
}
