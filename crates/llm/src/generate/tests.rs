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
fn speeds_count_only_computed_tokens() {
    assert_eq!(report().prefill_speed(), 2.0, "reused tokens took no time");
    assert_eq!(
        report().decode_speed(),
        3.0,
        "the first token belongs to prefill"
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
fn every_finish_has_a_name() {
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
