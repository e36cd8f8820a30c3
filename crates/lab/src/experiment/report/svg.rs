//! A chart as SVG: grid, labels, legend, and the number behind each point when one points at it.

use std::ops::Range;

use forebay_testbed::measure::spread::number;
use plotters::coord::Shift;
use plotters::coord::combinators::WithKeyPoints;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordi32;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::chart::{Chart, Series, Shape};
use super::escape::escape;

const WIDTH: u32 = 760;
const HEIGHT: u32 = 340;
const LEFT: u32 = 64;
const RIGHT: u32 = 16;
const TOP: u32 = 26;
const LABELS: u32 = 32;
const LEGEND: u32 = 30;
/// Lines of the grid there are about.
const GRID_LINES: usize = 6;
/// The part of a label's place that its bars fill.
const BARS_FILL: f64 = 0.7;
/// A label's place, in steps from left to right.
const PLACE: i32 = 1000;
/// Room above the greatest value, as part of all.
const HEADROOM: f64 = 0.05;
/// Of a bar that somebody else measured.
const PUBLISHED_OPACITY: f64 = 0.45;
/// A scale that begins a little below its first power of ten has a line of the grid there.
const BELOW: f64 = 1.0 - 1e-6;
const FONT: &str = "sans-serif";
/// Sizes of text, of which the picture has four fifths.
const TEXT: i32 = 15;
const SMALL: i32 = 12;
/// Dashes of published figures, and the room between them.
const DASHES: (i32, i32) = (5, 4);

/// The colours of the series; more series begin again.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x1f, 0x6f, 0xeb),
    RGBColor(0xd1, 0x68, 0x2b),
    RGBColor(0x2d, 0x8a, 0x4e),
    RGBColor(0x8a, 0x4f, 0xc7),
    RGBColor(0xb8, 0x33, 0x6a),
    RGBColor(0x0e, 0x8a, 0x94),
    RGBColor(0x8b, 0x7a, 0x1c),
    RGBColor(0x5d, 0x6b, 0x7a),
];
const DIM: RGBColor = RGBColor(0x64, 0x70, 0x7f);
const RULE: RGBColor = RGBColor(0xd9, 0xde, 0xe5);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plot<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<WithKeyPoints<RangedCoordi32>, Y>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Style rules that give a picture the colours of its page. They differ from its own only on a dark page.
pub(super) fn style() -> String {
    let rule = |(RGBColor(red, green, blue), variable): (&RGBColor, String)| {
        let value = format!("#{red:02X}{green:02X}{blue:02X}");
        format!(
            "[fill=\"{value}\"]{{fill:var(--{variable})}}[stroke=\"{value}\"]{{stroke:var(--{variable})}}\n"
        )
    };
    let series = COLOURS.iter().enumerate().map(|(index, colour)| (colour, format!("c{index}")));
    series.chain([(&DIM, "dim".to_owned()), (&RULE, "rule".to_owned())]).map(rule).collect()
}

/// The picture.
pub(super) fn draw(chart: &Chart) -> String {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let range = range(chart);
        let drawn = if chart.is_logarithmic {
            let range = range.start * BELOW..range.end;
            plot(&area, chart, range.start, range.log_scale())
        } else {
            plot(&area, chart, 0.0, range)
        };
        drawn
            .and_then(|()| legend(&area, chart))
            .and_then(|()| area.present())
            .expect("a String takes any text");
    }
    let title = format!("<svg role=\"img\" aria-label=\"{}\" ", escape(&chart.title));
    with_numbers(chart, &svg.replacen("<svg ", &title, 1))
}

/// From the lowest line of the grid to above the greatest value; with a logarithmic scale, between powers of ten.
fn range(chart: &Chart) -> Range<f64> {
    let bounds = |(least, most): (f64, f64), value: f64| (least.min(value), most.max(value));
    let (least, most) = chart.drawn().fold((f64::MAX, f64::MIN), bounds);
    if chart.is_logarithmic {
        let first = least.log10().floor();
        return 10f64.powf(first)..10f64.powf(most.log10().ceil().max(first + 1.0));
    }
    let least = least.min(0.0);
    let most = if most > least { most } else { least + 1.0 };
    least..most + HEADROOM * (most - least)
}

fn plot<Y>(area: &Area<'_>, chart: &Chart, ground: f64, range: Y) -> Drawn
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let middles: Vec<i32> = (0..chart.labels.len()).map(middle).collect();
    let mut plot = ChartBuilder::on(area)
        .margin_top(TOP)
        .margin_right(RIGHT)
        .margin_bottom(LEGEND)
        .x_label_area_size(LABELS)
        .y_label_area_size(LEFT)
        .build_cartesian_2d((0..chart.labels.len() as i32 * PLACE).with_key_points(middles), range)?;
    plot.configure_mesh()
        .disable_x_mesh()
        .bold_line_style(RULE)
        .light_line_style(TRANSPARENT)
        .axis_style(RULE)
        .label_style((FONT, TEXT))
        .x_labels(chart.labels.len())
        .y_labels(GRID_LINES)
        .x_label_formatter(&|place| chart.labels[(*place / PLACE) as usize].clone())
        .y_label_formatter(&|value| grid_text(*value))
        .draw()?;
    area.draw(&Text::new(chart.unit.clone(), (4, 4), (FONT, TEXT).into_font().color(&DIM)))?;
    for (index, series) in chart.series.iter().enumerate() {
        match chart.shape {
            Shape::Lines => lines(&mut plot, chart, series, colour(index))?,
            Shape::Bars => bars(&mut plot, chart, index, ground)?,
        }
    }
    Ok(())
}

fn colour(series: usize) -> RGBColor {
    COLOURS[series % COLOURS.len()]
}

fn lines<Y>(plot: &mut Plot<'_, '_, Y>, chart: &Chart, series: &Series, colour: RGBColor) -> Drawn
where
    Y: Ranged<ValueType = f64>,
{
    let line = points(chart, series).map(|(label, value)| (middle(label), value));
    let stroke = colour.stroke_width(2);
    if series.is_published {
        plot.draw_series(DashedLineSeries::new(line.clone(), DASHES.0, DASHES.1, stroke))?;
    } else {
        plot.draw_series(LineSeries::new(line.clone(), stroke))?;
    }
    plot.draw_series(line.map(|point| Circle::new(point, 4, colour.filled()))).map(drop)
}

fn bars<Y>(plot: &mut Plot<'_, '_, Y>, chart: &Chart, index: usize, ground: f64) -> Drawn
where
    Y: Ranged<ValueType = f64>,
{
    let series = &chart.series[index];
    let shade = colour(index).mix(if series.is_published { PUBLISHED_OPACITY } else { 1.0 });
    let points = points(chart, series).map(|(label, value)| (bar(chart, label, index), value));
    let rectangle = |((left, right), value)| Rectangle::new([(left, ground), (right, value)], shade.filled());
    plot.draw_series(points.clone().map(rectangle))?;
    let above = (FONT, SMALL).into_font().color(&DIM).pos(Pos::new(HPos::Center, VPos::Bottom));
    let text = |((left, right), value): ((i32, i32), f64)| {
        let top = EmptyElement::at(((left + right) / 2, value.max(ground)));
        top + Text::new(number(value), (0, -4), above.clone())
    };
    plot.draw_series(points.map(text)).map(drop)
}

/// The middle of a label's place.
fn middle(label: usize) -> i32 {
    label as i32 * PLACE + PLACE / 2
}

/// Where the bar of a series begins and ends at a label.
fn bar(chart: &Chart, label: usize, series: usize) -> (i32, i32) {
    let width = f64::from(PLACE) * BARS_FILL / chart.series.len() as f64;
    let left = f64::from(middle(label)) + (series as f64 - chart.series.len() as f64 / 2.0) * width;
    (left as i32, (left + width) as i32)
}

/// Labels with the values that are drawn there.
fn points<'a>(chart: &'a Chart, series: &'a Series) -> impl Iterator<Item = (usize, f64)> + Clone + 'a {
    let values = series.values.iter().take(chart.labels.len()).enumerate();
    values.filter_map(|(label, value)| Some((label, (*value)?))).filter(|(_, value)| chart.can_draw(*value))
}

/// No more digits than a line of the grid needs.
fn grid_text(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Names in the order of the series, in one line below the labels.
fn legend(area: &Area<'_>, chart: &Chart) -> Drawn {
    /// The width of a character, about.
    const CHARACTER: i32 = 7;
    let (mut left, y) = (LEFT as i32, HEIGHT as i32 - 16);
    for (index, series) in chart.series.iter().enumerate() {
        let (ends, stroke) = ([(left, y), (left + 22, y)], colour(index).stroke_width(2));
        if series.is_published {
            area.draw(&DashedPathElement::new(ends, DASHES.0, DASHES.1, stroke))?;
        } else {
            area.draw(&PathElement::new(ends, stroke))?;
        }
        let style = (FONT, TEXT).into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(series.name.clone(), (left + 28, y), style))?;
        left += 48 + CHARACTER * series.name.chars().count() as i32;
    }
    Ok(())
}

/// Adds the number behind each point or bar, which are in the order in which they were drawn.
fn with_numbers(chart: &Chart, svg: &str) -> String {
    let tag = match chart.shape {
        Shape::Lines => "circle",
        Shape::Bars => "rect",
    };
    let begin = format!("<{tag} ");
    let mut parts = svg.split(&begin);
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    let drawn =
        chart.series.iter().flat_map(|series| points(chart, series).map(move |point| (series, point)));
    for (part, (series, (label, value))) in parts.zip(drawn) {
        let (shape, rest) = part.split_once("/>").expect("a point or a bar has nothing in it");
        let text = format!("{}, {}: {} {}", series.name, chart.labels[label], number(value), chart.unit);
        numbered.push_str(&format!("<{tag} {shape}><title>{}</title></{tag}>{rest}", escape(&text)));
    }
    numbered
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
    fn a_linear_scale_begins_at_zero_and_has_room_above_the_greatest_value() {
        assert_eq!(range(&chart(Shape::Bars)), 0.0..21.0);
        let nothing = Chart::new("x", "MB", Shape::Bars, ["a"]).with(Series::new("ours", [Some(0.0)]));
        assert!(range(&nothing).end > 0.0);
    }

    #[test]
    fn a_logarithmic_scale_lies_between_powers_of_ten() {
        assert_eq!(range(&chart(Shape::Lines).logarithmic()), 0.1..100.0);
        let one = Chart::new("x", "MB", Shape::Lines, ["a"]).with(Series::new("ours", [Some(1.0)]));
        assert_eq!(range(&one.logarithmic()), 1.0..10.0);
    }

    #[test]
    fn every_value_has_its_point_or_bar_with_its_number() {
        let svg = draw(&chart(Shape::Lines));
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("<title>ours, 128: 20.0 MB</title>"), "{svg}");
        let svg = draw(&chart(Shape::Bars));
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("<title>slides, 64: 1.10 MB</title>"), "{svg}");
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

    #[test]
    fn every_line_of_a_picture_has_a_colour_that_the_page_knows() {
        let style = style();
        for svg in [Shape::Lines, Shape::Bars].map(|shape| draw(&chart(shape))) {
            for stroke in svg.split(" stroke=\"#").skip(1) {
                assert!(style.contains(&stroke[..6]), "{} is not in\n{style}", &stroke[..6]);
            }
        }
    }
}
