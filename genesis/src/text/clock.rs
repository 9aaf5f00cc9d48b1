//! The date for templates that ask for it: `strftime_now("%d %b %Y")`.
//!
//! Llama 3's template writes today's date into the prompt. The standard library knows no calendar and no time
//! zones, so the calendar is here and the time is UTC, which is what containers run in.
//!
//! ```text
//! days since 1970-01-01   19782        days since 0000-03-01   739250
//! 400 years have 146097 days, and years that begin in March have their leap day at the end
//! ```

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
const WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The time now, UTC, as Python's `strftime` formats it in the C locale.
pub(super) fn strftime_now(format: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    strftime(now, format)
}

/// A date and a time of day.
struct Moment {
    year: u64,
    month: u64,
    day: u64,
    day_of_year: u64,
    weekday: u64,
    second: u64,
}

impl Moment {
    fn new(seconds: u64) -> Moment {
        let days = seconds / 86_400;
        // Days since the first of March of year 0, where leap days end years.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before_march = 59 + u64::from(is_leap);
        let day_of_year = if month <= 2 { of_year - 305 } else { of_year + before_march + 1 };
        let weekday = (days + 4) % 7;
        Moment { year, month, day, day_of_year, weekday, second: seconds % 86_400 }
    }
}

fn strftime(seconds: u64, format: &str) -> String {
    let moment = Moment::new(seconds);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, chars.clone().next()) {
            ('%', Some('-')) => {
                chars.next();
                let mut field = String::new();
                put(&moment, chars.next(), &mut field);
                let trimmed = field.trim_start_matches('0');
                out.push_str(if trimmed.is_empty() && !field.is_empty() { "0" } else { trimmed });
            }
            ('%', _) => put(&moment, chars.next(), &mut out),
            _ => out.push(c),
        }
    }
    out
}

/// Appends one field.
fn put(moment: &Moment, field: Option<char>, out: &mut String) {
    let month = MONTHS[moment.month as usize - 1];
    let weekday = WEEKDAYS[moment.weekday as usize];
    let (hour, minute, second) =
        (moment.second / 3_600, moment.second / 60 % 60, moment.second % 60);
    let hour12 = (hour + 11) % 12 + 1;
    let Moment { year, day, .. } = moment;
    // Writing to a string can't fail.
    let _ = match field {
        Some('Y') => write!(out, "{year}"),
        Some('y') => write!(out, "{:02}", year % 100),
        Some('m') => write!(out, "{:02}", moment.month),
        Some('d') => write!(out, "{day:02}"),
        Some('e') => write!(out, "{day:2}"),
        Some('j') => write!(out, "{:03}", moment.day_of_year),
        Some('B') => write!(out, "{month}"),
        Some('b' | 'h') => write!(out, "{}", &month[..3]),
        Some('A') => write!(out, "{weekday}"),
        Some('a') => write!(out, "{}", &weekday[..3]),
        Some('w') => write!(out, "{}", moment.weekday),
        Some('H') => write!(out, "{hour:02}"),
        Some('I') => write!(out, "{hour12:02}"),
        Some('M') => write!(out, "{minute:02}"),
        Some('S') => write!(out, "{second:02}"),
        Some('f') => write!(out, "000000"),
        Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
        Some('F') => write!(out, "{year}-{:02}-{day:02}", moment.month),
        Some('D' | 'x') => write!(out, "{:02}/{day:02}/{:02}", moment.month, year % 100),
        Some('T' | 'X') => write!(out, "{hour:02}:{minute:02}:{second:02}"),
        Some('R') => write!(out, "{hour:02}:{minute:02}"),
        // A naive time has no zone.
        Some('Z' | 'z') => Ok(()),
        Some('n') => writeln!(out),
        Some('t') => write!(out, "\t"),
        Some('%') | None => write!(out, "%"),
        Some(other) => write!(out, "%{other}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let all = "%Y-%m-%d %H:%M:%S %j %a %b";
        assert_eq!(strftime(0, all), "1970-01-01 00:00:00 001 Thu Jan");
        assert_eq!(strftime(951_782_399, all), "2000-02-28 23:59:59 059 Mon Feb");
        assert_eq!(strftime(951_782_400, all), "2000-02-29 00:00:00 060 Tue Feb");
        assert_eq!(strftime(951_868_800, all), "2000-03-01 00:00:00 061 Wed Mar");
        assert_eq!(strftime(1_798_761_599, all), "2026-12-31 23:59:59 365 Thu Dec");
        assert_eq!(strftime(4_107_542_400, all), "2100-03-01 00:00:00 060 Mon Mar");
    }

    #[test]
    fn fields_are_python_s() {
        assert_eq!(strftime(1_721_952_000, "%d %b %Y"), "26 Jul 2024");
        assert_eq!(
            strftime(1_722_834_303, "%-d.%-m. %I:%M %p %A %B %%"),
            "5.8. 05:05 AM Monday August %"
        );
        assert_eq!(strftime(0, "%e|%-I|%-H|%"), " 1|12|0|%");
    }
}
