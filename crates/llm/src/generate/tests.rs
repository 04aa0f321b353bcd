use super::*;

fn report() -> Report {
    Report {
        ids: vec![1; 7],
        finish: Finish::MaxTokens,
        reused: 3,
        prefilled: 8,
        prefill: Duration::from_secs(4),
        first: Duration::from_secs(4),
        decode: Duration::from_secs(2),
        shifts: 0,
    }
}

#[test]
fn speeds_are_tokens_that_were_computed_per_second() {
    assert_eq!(
        report().prefill_speed(),
        2.0,
        "what was reused took no time"
    );
    assert_eq!(
        report().decode_speed(),
        3.0,
        "the first one belongs to prefill"
    );
    let one = Report {
        ids: vec![1],
        decode: Duration::ZERO,
        ..report()
    };
    assert_eq!(one.decode_speed(), 0.0);
    let none = Report {
        prefilled: 0,
        ..report()
    };
    assert_eq!(none.prefill_speed(), 0.0);
}

#[test]
fn every_end_of_a_text_has_its_name() {
    let names = [
        (Finish::Stop, "stop"),
        (Finish::MaxTokens, "length"),
        (Finish::Context, "context"),
        (Finish::Reader, "reader"),
    ];
    for (finish, name) in names {
        assert_eq!(finish.name(), name);
    }
}
