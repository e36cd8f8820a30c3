//! How numbers spread, and how they are written.

use serde::Serialize;

/// The median of some numbers, with the least and the most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Half of them are no greater.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

impl Spread {
    /// `None` of no numbers.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let is_even = sorted.len().is_multiple_of(2);
        let median = if is_even { f64::midpoint(sorted[middle - 1], sorted[middle]) } else { sorted[middle] };
        Some(Spread { median, least, most })
    }

    /// As tables have it.
    pub fn text(self) -> String {
        format!("{} ({}–{})", number(self.median), number(self.least), number(self.most))
    }
}

/// Three digits that matter.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, least: 1.0, most: 4.0 });
        assert_eq!(Spread::of([]), None);
    }
}
