//! How figures are printed.

use std::fmt::Write as _;

/// One line of the table: what was measured, its figures, and what was expected.
#[derive(Debug, Default)]
pub struct Line {
    what: String,
    ours: String,
    raw: String,
    ratio: String,
    remark: String,
}

impl Line {
    /// A line about something.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), ..Self::default() }
    }

    /// Our figure.
    pub fn ours(self, figure: impl Into<String>) -> Self {
        Self { ours: figure.into(), ..self }
    }

    /// The figure of the same work done raw.
    pub fn raw(self, figure: impl Into<String>) -> Self {
        Self { raw: figure.into(), ..self }
    }

    /// The ratio of the two, or of whatever the line says.
    pub fn ratio(self, ratio: impl Into<String>) -> Self {
        Self { ratio: ratio.into(), ..self }
    }

    /// What was expected, and whether this run met it.
    pub fn expected(self, expectation: &str, met: bool) -> Self {
        let verdict = if met { "met" } else { "NOT met" };
        self.remark(format!("expected {expectation}: {verdict}"))
    }

    /// A word of explanation.
    pub fn remark(self, remark: impl Into<String>) -> Self {
        Self { remark: remark.into(), ..self }
    }

    /// Prints it.
    pub fn print(&self) {
        println!("{}", self.text());
    }

    fn text(&self) -> String {
        let mut text = format!("{:<42}{:>12}{:>12}{:>8}", self.what, self.ours, self.raw, self.ratio);
        if !self.remark.is_empty() {
            let _ = write!(text, "   {}", self.remark);
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// The line above all others.
pub fn print_head() {
    Line::new("").ours("perennial").raw("raw LMDB").ratio("ratio").print();
}

/// A whole number with its digits in groups: `1,234,567`.
pub fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A ratio in percent.
pub fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// A ratio as a factor.
pub fn times(ratio: f64) -> String {
    format!("{ratio:.1} x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        assert_eq!(
            [0.0, 12.4, 999.0, 1000.0, 1_234_567.0].map(grouped),
            ["0", "12", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn a_line_says_what_was_expected() {
        let line = Line::new("reads/s").ours("6").raw("10").ratio(percent(0.6)).expected(">= 60 %", true);
        let words: Vec<_> = line.text().split_whitespace().map(String::from).collect();
        assert_eq!(words.join(" "), "reads/s 6 10 60 % expected >= 60 %: met");
        assert_eq!(Line::new("alone").text(), "alone");
    }
}
