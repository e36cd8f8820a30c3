//! A chart as SVG: grid, labels, legend, and the number behind each point when one points at it.

use std::fmt::Write;

use forebay_testbed::measure::spread::number;

use super::chart::{Chart, Series, Shape};
use super::html::escape;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 62.0;
/// Lines of the grid there are about, where the scale is linear.
const GRID_LINES: f64 = 5.0;
/// Colours there are in the page's style; more series begin again.
const COLOURS: usize = 8;
/// The part of a label's place that its bars fill.
const BARS_FILL: f64 = 0.7;

/// From values to heights.
#[derive(Debug, Clone, PartialEq)]
struct Scale {
    least: f64,
    most: f64,
    is_logarithmic: bool,
    /// Where the grid's lines are.
    grid: Vec<f64>,
}

impl Scale {
    fn of(chart: &Chart) -> Scale {
        let (least, most) = chart
            .drawn()
            .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
        if chart.is_logarithmic {
            Scale::logarithmic(least, most)
        } else {
            Scale::linear(least.min(0.0), most)
        }
    }

    /// Lines at 1, 2 or 5 times a power of ten.
    fn linear(least: f64, most: f64) -> Scale {
        let rough = ((most - least) / GRID_LINES).max(f64::MIN_POSITIVE);
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let (first, last) = ((least / step).floor(), (most / step).ceil().max((least / step).floor() + 1.0));
        let grid: Vec<f64> = (0..=(last - first) as usize).map(|line| (first + line as f64) * step).collect();
        Scale { least: first * step, most: last * step, is_logarithmic: false, grid }
    }

    /// Lines at powers of ten.
    fn logarithmic(least: f64, most: f64) -> Scale {
        let first = least.log10().floor() as i32;
        let last = (most.log10().ceil() as i32).max(first + 1);
        let grid = (first..=last).map(|power| 10f64.powi(power)).collect();
        Scale { least: 10f64.powi(first), most: 10f64.powi(last), is_logarithmic: true, grid }
    }

    /// The y coordinate of a value.
    fn y(&self, value: f64) -> f64 {
        let place = |value: f64| if self.is_logarithmic { value.log10() } else { value };
        let share = (place(value) - place(self.least)) / (place(self.most) - place(self.least));
        HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)
    }
}

/// The picture.
pub(super) fn draw(chart: &Chart) -> String {
    let scale = Scale::of(chart);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escape(&chart.title)
    );
    grid(&mut svg, chart, &scale);
    for (index, series) in chart.series.iter().enumerate() {
        match chart.shape {
            Shape::Lines => lines(&mut svg, chart, series, index, &scale),
            Shape::Bars => bars(&mut svg, chart, series, index, &scale),
        }
    }
    legend(&mut svg, chart);
    svg.push_str("</svg>\n");
    svg
}

fn put(svg: &mut String, text: std::fmt::Arguments<'_>) {
    svg.write_fmt(text).expect("a String takes any text");
}

/// The middle of a label's place.
fn x(chart: &Chart, label: usize) -> f64 {
    LEFT + (label as f64 + 0.5) * place_width(chart)
}

fn place_width(chart: &Chart) -> f64 {
    (WIDTH - LEFT - RIGHT) / chart.labels.len() as f64
}

fn grid(svg: &mut String, chart: &Chart, scale: &Scale) {
    put(svg, format_args!("<text class=\"unit\" x=\"4\" y=\"14\">{}</text>\n", escape(&chart.unit)));
    for value in &scale.grid {
        let (y, end) = (scale.y(*value), WIDTH - RIGHT);
        put(svg, format_args!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{end}\"/>"));
        let (beside, text) = (LEFT - 8.0, grid_text(*value));
        put(svg, format_args!("<text class=\"tick\" x=\"{beside}\" y=\"{:.1}\">{text}</text>\n", y + 4.0));
    }
    for (index, label) in chart.labels.iter().enumerate() {
        let (x, y) = (x(chart, index), HEIGHT - BOTTOM + 18.0);
        put(svg, format_args!("<text class=\"label\" x=\"{x:.1}\" y=\"{y}\">{}</text>\n", escape(label)));
    }
}

/// No more digits than a line of the grid needs.
fn grid_text(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn class(series: &Series, index: usize) -> String {
    format!("s{}{}", index % COLOURS, if series.is_published { " published" } else { "" })
}

/// The number behind a point or bar.
fn title(chart: &Chart, series: &Series, label: usize, value: f64) -> String {
    let text = format!("{}, {}: {} {}", series.name, chart.labels[label], number(value), chart.unit);
    format!("<title>{}</title>", escape(&text))
}

/// Labels with the values that are drawn there.
fn points<'a>(chart: &'a Chart, series: &'a Series) -> impl Iterator<Item = (usize, f64)> + 'a {
    let values = series.values.iter().take(chart.labels.len()).enumerate();
    values.filter_map(|(label, value)| Some((label, (*value)?))).filter(|(_, value)| chart.can_draw(*value))
}

fn lines(svg: &mut String, chart: &Chart, series: &Series, index: usize, scale: &Scale) {
    let class = class(series, index);
    let corner = |(label, value)| format!("{:.1} {:.1}", x(chart, label), scale.y(value));
    let path = points(chart, series).map(corner).collect::<Vec<_>>().join("L");
    put(svg, format_args!("<path class=\"line {class}\" d=\"M{path}\"/>\n"));
    for (label, value) in points(chart, series) {
        let (x, y, title) = (x(chart, label), scale.y(value), title(chart, series, label, value));
        put(
            svg,
            format_args!(
                "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\">{title}</circle>\n"
            ),
        );
    }
}

fn bars(svg: &mut String, chart: &Chart, series: &Series, index: usize, scale: &Scale) {
    let class = class(series, index);
    let width = place_width(chart) * BARS_FILL / chart.series.len() as f64;
    let ground = scale.y(if scale.is_logarithmic { scale.least } else { 0.0 });
    for (label, value) in points(chart, series) {
        let left = x(chart, label) + (index as f64 - chart.series.len() as f64 / 2.0) * width;
        let (top, bottom) = (scale.y(value).min(ground), scale.y(value).max(ground));
        let (height, title) = (bottom - top, title(chart, series, label, value));
        put(
            svg,
            format_args!(
                "<rect class=\"bar {class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\">{title}</rect>\n",
                width - 1.0
            ),
        );
        let (middle, above) = (left + width / 2.0, top - 4.0);
        put(
            svg,
            format_args!(
                "<text class=\"value\" x=\"{middle:.1}\" y=\"{above:.1}\">{}</text>\n",
                number(value)
            ),
        );
    }
}

/// Names in the order of the series, in one line below the labels.
fn legend(svg: &mut String, chart: &Chart) {
    /// The width of a character, about.
    const CHARACTER: f64 = 7.0;
    let (mut left, y) = (LEFT, HEIGHT - 12.0);
    for (index, series) in chart.series.iter().enumerate() {
        let (class, middle) = (class(series, index), y - 4.0);
        put(svg, format_args!("<path class=\"line {class}\" d=\"M{left:.1} {middle}h22\"/>"));
        put(
            svg,
            format_args!(
                "<text class=\"name\" x=\"{:.1}\" y=\"{y}\">{}</text>\n",
                left + 28.0,
                escape(&series.name)
            ),
        );
        left += 48.0 + CHARACTER * series.name.chars().count() as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(shape: Shape) -> Chart {
        Chart::new("Memory", "MB", shape, ["64", "128"])
            .with(Series::new("ours", [Some(0.5), Some(20.0)]))
            .with(Series::published("slides", [Some(1.1), None]))
    }

    #[test]
    fn a_linear_grid_has_round_numbers_around_all_values() {
        let scale = Scale::linear(0.0, 23.0);
        assert_eq!(scale.grid, [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        assert_eq!(scale.y(0.0), HEIGHT - BOTTOM);
        assert_eq!(scale.y(25.0), TOP);
        assert_eq!(Scale::linear(0.0, 0.0).grid.len(), 2);
    }

    #[test]
    fn a_logarithmic_grid_has_powers_of_ten() {
        assert_eq!(Scale::logarithmic(0.02, 300.0).grid, [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(Scale::logarithmic(1.0, 1.0).grid, [1.0, 10.0]);
    }

    #[test]
    fn every_value_has_its_point_or_bar_with_its_number() {
        let svg = draw(&chart(Shape::Lines));
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("<title>ours, 128: 20.0 MB</title>"), "{svg}");
        let svg = draw(&chart(Shape::Bars));
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("published"), "{svg}");
    }

    #[test]
    fn what_a_logarithm_does_not_take_is_not_drawn() {
        let chart = Chart::new("x", "MB", Shape::Bars, ["a", "b"]).logarithmic();
        let svg = draw(&chart.with(Series::new("ours", [Some(0.0), Some(2.0)])));
        assert_eq!(svg.matches("<rect").count(), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn grid_numbers_have_no_digits_to_spare() {
        assert_eq!([1000.0, 0.01, 2.5, 0.0].map(grid_text), ["1000", "0.01", "2.5", "0"]);
    }
}
