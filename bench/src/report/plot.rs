// SPDX-License-Identifier: Apache-2.0
//! Plots, as SVG text: lines over the columns of a table, or bars if it has one column.
//!
//! A system has the same colour and mark in every plot. Marks differ in shape for readers who do
//! not see the colours.

use super::number::number;

/// Colours that are distinct with all common forms of colour blindness.
const COLOURS: [&str; 9] = [
    "#000000", "#e69f00", "#56b4e9", "#cc79a7", "#d55e00", "#7a7a7a", "#0072b2", "#009e73",
    "#882255",
];
/// Size of a plot, and the edges of the area of the values, in pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 540.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 344.0;
/// The vertical axis is logarithmic if the largest median exceeds this times the smallest.
const WIDE: f64 = 30.0;

/// A median and the range of its samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// The values of one system.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// Chooses colour and mark.
    pub style: usize,
    /// The number of the column, and the value there; ascending.
    pub values: Vec<(usize, Value)>,
}

/// A plot of at least one column.
#[derive(Clone, Debug)]
pub struct Plot<'a> {
    pub title: &'a str,
    /// Label of the horizontal axis.
    pub x: &'a str,
    pub columns: Vec<String>,
    /// Label of the vertical axis: the unit.
    pub y: &'a str,
    pub lines: Vec<Line>,
}

impl Plot<'_> {
    /// The SVG text: one line a system or, where there is one column, one bar.
    pub fn svg(&self) -> String {
        let values = self.lines.iter().flat_map(|line| &line.values);
        let scale = Scale::over(&values.map(|(_, value)| *value).collect::<Vec<_>>());
        let mut svg = self.frame(&scale);
        for (row, line) in self.lines.iter().enumerate() {
            match self.columns.len() {
                1 => self.bar(&mut svg, row, line, &scale),
                _ => self.line(&mut svg, line, &scale),
            }
            let legend = TOP + 14.0 + 20.0 * row as f64;
            svg += &mark(RIGHT + 22.0, legend - 4.0, line.style);
            svg += &text(RIGHT + 34.0, legend, "start", &line.name);
        }
        svg + "</svg>\n"
    }

    /// Title, axes and their labels.
    fn frame(&self, scale: &Scale) -> String {
        let (title, y) = (escaped(self.title), escaped(self.y));
        let mut svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' \
             width='{WIDTH}' height='{HEIGHT}' font-family='sans-serif' font-size='12'>\n\
             <rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>\n\
             <text x='{LEFT}' y='22' font-size='15' font-weight='bold'>{title}</text>\n"
        );
        for tick in &scale.ticks {
            let at = scale.down(*tick);
            svg += &format!(
                "<line x1='{LEFT}' y1='{at:.1}' x2='{RIGHT}' y2='{at:.1}' stroke='#dddddd'/>\n"
            );
            svg += &text(LEFT - 8.0, at + 4.0, "end", &number(*tick));
        }
        let middle = f64::midpoint(TOP, BOTTOM);
        svg += &format!(
            "<path d='M{LEFT} {TOP}V{BOTTOM}H{RIGHT}' fill='none' stroke='#444444'/>\n\
             <text transform='translate(18 {middle:.1}) rotate(-90)' text-anchor='middle'>{y}\
             </text>\n"
        );
        for (number, column) in self.columns.iter().enumerate() {
            svg += &text(place(number, self.columns.len()), BOTTOM + 18.0, "middle", column);
        }
        svg + &text(f64::midpoint(LEFT, RIGHT), BOTTOM + 40.0, "middle", self.x)
    }

    fn line(&self, svg: &mut String, line: &Line, scale: &Scale) {
        let mut path = String::new();
        let mut marks = String::new();
        for (column, value) in &line.values {
            let (x, y) = (place(*column, self.columns.len()), scale.down(value.median));
            path += &format!("{x:.1},{y:.1} ");
            marks += &scale.whisker(x, value, colour(line.style));
            marks += &mark(x, y, line.style);
        }
        let (path, colour) = (path.trim_end(), colour(line.style));
        let dash = if line.style >= COLOURS.len() { " stroke-dasharray='5 3'" } else { "" };
        *svg += &format!(
            "<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='2'{dash}/>\n"
        );
        *svg += &marks;
    }

    fn bar(&self, svg: &mut String, row: usize, line: &Line, scale: &Scale) {
        let middle = place(row, self.lines.len());
        let width = (RIGHT - LEFT) / self.lines.len() as f64 * 0.7;
        for (_, value) in &line.values {
            let top = scale.down(value.median);
            *svg += &format!(
                "<rect x='{:.1}' y='{top:.1}' width='{width:.1}' height='{:.1}' fill='{}'/>\n",
                middle - width / 2.0,
                BOTTOM - top,
                colour(line.style)
            );
            *svg += &scale.whisker(middle, value, "#444444");
            *svg += &text(middle, top - 6.0, "middle", &number(value.median));
        }
    }
}

/// The vertical axis.
struct Scale {
    is_logarithmic: bool,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Scale {
    /// An axis for all values: from decade to decade if medians are far apart and none of them is
    /// 0, otherwise from 0 to a round number.
    fn over(values: &[Value]) -> Scale {
        let (least, most) = bounds(values.iter().map(|v| v.median));
        let is_logarithmic = least > 0.0 && most / least > WIDE;
        let all = values.iter().flat_map(|v| [v.low, v.median, v.high]);
        let (low, high) = bounds(all.filter(|v| *v > 0.0 || !is_logarithmic));
        let ticks: Vec<f64> = if is_logarithmic {
            let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
            decades.map(|exponent| 10f64.powi(exponent)).collect()
        } else {
            let high = if high > 0.0 { high } else { 1.0 };
            let step = step(high);
            (0..=(high / step).ceil() as u32).map(|n| f64::from(n) * step).collect()
        };
        let (low, high) = bounds(ticks.iter().copied());
        Scale { is_logarithmic, low, high, ticks }
    }

    /// The vertical position of a value; values outside the axis are at its end.
    fn down(&self, value: f64) -> f64 {
        let share = match self.is_logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => value / self.high,
        };
        let share = if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) };
        BOTTOM - share * (BOTTOM - TOP)
    }

    /// A line from the smallest to the largest sample.
    fn whisker(&self, x: f64, value: &Value, colour: &str) -> String {
        let (low, high) = (self.down(value.low), self.down(value.high));
        format!("<line x1='{x:.1}' y1='{low:.1}' x2='{x:.1}' y2='{high:.1}' stroke='{colour}'/>\n")
    }
}

/// The smallest and the largest finite value.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    values.filter(|v| v.is_finite()).fold(none, |(low, high), v| (low.min(v), high.max(v)))
}

/// A round distance of ticks, so that there are four to ten.
fn step(range: f64) -> f64 {
    let decade = 10f64.powf(range.log10().floor());
    let steps = [0.1, 0.2, 0.25, 0.5, 1.0, 2.0].map(|s| s * decade);
    steps.into_iter().find(|s| range / s <= 8.0).unwrap_or(decade)
}

/// The middle of one of `all` equal parts of the horizontal axis.
fn place(part: usize, all: usize) -> f64 {
    LEFT + (RIGHT - LEFT) * (part as f64 + 0.5) / all as f64
}

fn mark(x: f64, y: f64, style: usize) -> String {
    let shape = match style % 4 {
        0 => format!("<circle cx='{x:.1}' cy='{y:.1}' r='4'"),
        1 => format!("<rect x='{:.1}' y='{:.1}' width='8' height='8'", x - 4.0, y - 4.0),
        2 => format!("<path d='M{x:.1} {:.1}l5 9h-10z'", y - 5.0),
        _ => format!("<path d='M{x:.1} {:.1}l5 5l-5 5l-5 -5z'", y - 5.0),
    };
    format!("{shape} fill='{}'/>\n", colour(style))
}

fn text(x: f64, y: f64, anchor: &str, words: &str) -> String {
    format!("<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{}</text>\n", escaped(words))
}

fn colour(style: usize) -> &'static str {
    COLOURS[style % COLOURS.len()]
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(median: f64) -> Value {
        Value { median, low: median * 0.9, high: median * 1.1 }
    }

    fn line(name: &str, style: usize, medians: &[f64]) -> Line {
        let values = medians.iter().map(|median| value(*median)).enumerate().collect();
        Line { name: name.into(), style, values }
    }

    fn svg(columns: &[&str], lines: &[Line]) -> String {
        let columns = columns.iter().map(|&column| column.into()).collect();
        let title = "Rate < limit & more";
        Plot { title, x: "flows", columns, y: "Mpps", lines: lines.to_vec() }.svg()
    }

    /// The numbers of an attribute of all bars, and of the background.
    fn attributes(svg: &str, name: &str) -> Vec<f64> {
        let of = |l: &str| l.split(&format!(" {name}='")).nth(1)?.split('\'').next()?.parse().ok();
        svg.lines().filter(|l| l.starts_with("<rect ")).filter_map(of).collect()
    }

    #[test]
    fn higher_values_are_higher_up() {
        let heights =
            attributes(&svg(&[""], &[line("a", 0, &[2.0]), line("b", 4, &[8.0])]), "height");
        // The first is the background.
        assert_eq!(heights.len(), 3);
        assert!((heights[2] / heights[1] - 4.0).abs() < 0.02, "{heights:?}");
    }

    #[test]
    fn every_system_has_a_line_a_mark_for_each_value_and_a_name() {
        let lines = [line("bare <XDP>", 0, &[9.0, 3.0]), line("OVS", 4, &[9.0, 3.0])];
        let svg = svg(&["1", "64K"], &lines);
        assert_eq!(svg.matches("<polyline ").count(), 2);
        // Two values and the legend's, for each.
        assert_eq!(svg.matches("<circle ").count(), 6);
        for words in ["bare &lt;XDP&gt;", "OVS", "Rate &lt; limit &amp; more", ">64K<"] {
            assert!(svg.contains(words), "{words}: {svg}");
        }
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn odd_values_stay_in_the_plot() {
        for median in [0.0, f64::NAN, f64::INFINITY, -3.0, 1e300] {
            for y in attributes(&svg(&[""], &[line("a", 0, &[median])]), "y") {
                assert!((0.0..=HEIGHT).contains(&y), "{y}");
            }
            assert!(!svg(&["1", "2"], &[line("a", 9, &[median, 1.0])]).contains("NaN"));
        }
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_has_round_ticks() {
        let scale = Scale::over(&[value(3.0), value(8.4)]);
        assert_eq!(scale.ticks.first(), Some(&0.0));
        assert!(*scale.ticks.last().unwrap() >= 9.2);
        assert!((4..=10).contains(&scale.ticks.len()), "{:?}", scale.ticks);
        assert_eq!(scale.down(0.0), BOTTOM);
    }

    #[test]
    fn a_logarithmic_axis_has_equal_ratios_equally_far_apart() {
        let scale = Scale::over(&[value(3.0), value(40_000.0)]);
        assert_eq!(scale.ticks, [1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        let [one, ten, hundred] = [1.0, 10.0, 100.0].map(|v| scale.down(v));
        assert!((one - ten - (ten - hundred)).abs() < 1e-9);
    }

    #[test]
    fn no_values_and_equal_values_have_an_axis_too() {
        for values in [vec![], vec![5.0, 5.0], vec![0.0], vec![f64::NAN]] {
            let scale = Scale::over(&values.into_iter().map(value).collect::<Vec<_>>());
            assert!(!scale.ticks.is_empty() && scale.ticks.len() < 20);
            assert!((TOP..=BOTTOM).contains(&scale.down(5.0)));
        }
    }
}
