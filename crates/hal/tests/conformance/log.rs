//! `os_log`.

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("log.metal");

#[test]
fn logged_lines_have_their_level_and_subsystem() {
    let outcome = Run::kernel(&SOURCE, "speak")
        .output::<u32>(0, 8)
        .threads(8, 8);
    outcome.expect(0, &[0_u32, 1, 2, 3, 4, 5, 6, 7]);
    for (launch, lines) in outcome.logs() {
        let lines: Vec<_> = lines
            .iter()
            .map(|l| (&*l.level, &*l.subsystem, &*l.category, &*l.message))
            .collect();
        let (subsystem, category) = ("org.bessemer.test", "numbers");
        assert_eq!(
            lines,
            [
                ("default", "", "", "thread 3 of 8"),
                ("info", subsystem, category, "half of 5 is 2.50"),
                ("error", subsystem, category, "hex ff, wide 1099511627776"),
                (
                    "error",
                    subsystem,
                    category,
                    "1.0,2.0,3.0,-4.0 and 5,-6 of 3",
                ),
                ("debug", subsystem, category, "debug -1"),
                ("fault", subsystem, category, "fault"),
            ],
            "{launch}"
        );
    }
}
