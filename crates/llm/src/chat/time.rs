//! Date formatting for templates.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Year, month (from 1) and day (from 1) of a day counted from 1970-01-01.
fn date(days: u64) -> (u64, usize, u64) {
    let is_leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
    // A 400-year cycle has 146097 days.
    let mut year = 1970 + days / 146_097 * 400;
    let mut left = days % 146_097;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

/// Formats a UTC time as C's `strftime` does. Supports the specifiers that templates use and leaves others unchanged.
pub(super) fn format(format: &str, time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (month_name, day_name) = (MONTHS[month - 1], DAYS[(days + 4) as usize % 7]);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(char) = chars.next() {
        if char != '%' {
            out.push(char);
            continue;
        }
        // Writing to a string cannot fail.
        let _ = match chars.next() {
            Some('Y') => write!(out, "{year}"),
            Some('y') => write!(out, "{:02}", year % 100),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{day:02}"),
            Some('e') => write!(out, "{day:2}"),
            Some('B') => write!(out, "{month_name}"),
            Some('b') => write!(out, "{}", &month_name[..3]),
            Some('A') => write!(out, "{day_name}"),
            Some('a') => write!(out, "{}", &day_name[..3]),
            Some('H') => write!(out, "{:02}", second / 3600),
            Some('I') => write!(out, "{:02}", (second / 3600 + 11) % 12 + 1),
            Some('p') => write!(out, "{}", if second < 43_200 { "AM" } else { "PM" }),
            Some('M') => write!(out, "{:02}", second / 60 % 60),
            Some('S') => write!(out, "{:02}", second % 60),
            Some('%') => write!(out, "%"),
            Some(other) => write!(out, "%{other}"),
            None => write!(out, "%"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn strftime_formats_known_dates() {
        struct Case(u64, &'static str);
        let cases = [
            Case(0, "1970-01-01 Thursday 00:00:00"),
            Case(951_782_400, "2000-02-29 Tuesday 00:00:00"),
            Case(1_709_251_199, "2024-02-29 Thursday 23:59:59"),
            Case(4_107_542_400, "2100-03-01 Monday 00:00:00"),
            Case(12_622_780_799, "2369-12-31 Wednesday 23:59:59"),
            Case(12_622_780_800, "2370-01-01 Thursday 00:00:00"),
            Case(34_377_307_445, "3059-05-17 Tuesday 12:04:05"),
            Case(1_721_995_200, "2024-07-26 Friday 12:00:00"),
        ];
        for Case(seconds, expected) in cases {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(format("%Y-%m-%d %A %H:%M:%S", time), expected);
        }
        let time = UNIX_EPOCH + Duration::from_secs(1_721_995_200);
        assert_eq!(
            format("%e %b %y, %I%p 100%% %Q %", time),
            "26 Jul 24, 12PM 100% %Q %"
        );
        let hours = [(0, "12AM"), (1, "01AM"), (11, "11AM"), (13, "01PM")];
        for (hour, expected) in hours {
            let time = UNIX_EPOCH + Duration::from_secs(hour * 3600 + 59);
            assert_eq!(format("%I%p", time), expected);
        }
    }
}
