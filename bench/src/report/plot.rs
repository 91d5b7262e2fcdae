// SPDX-License-Identifier: Apache-2.0
//! Plots, as SVG text: lines over a number, bars over names.
//!
//! A system has the same colour and mark in every plot. Marks differ in shape for readers who do not
//! see the colours.

use super::scale::{Scale, Spread, count, number};
use std::fmt::Write as _;

/// Colours that are distinct with all common forms of colour blindness.
const COLOURS: [&str; 9] = [
    "#000000", "#e69f00", "#56b4e9", "#cc79a7", "#d55e00", "#7a7a7a", "#0072b2", "#009e73",
    "#882255",
];
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
/// The area of the values: left, right, top, bottom edge.
const AREA: (f64, f64, f64, f64) = (72.0, 540.0, 40.0, 344.0);
/// Narrower bars have numbers in place of names, and a legend.
const ROOM: f64 = 90.0;

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
    /// The number on the axis, and the value there; ascending.
    pub values: Vec<(f64, Value)>,
}

/// Texts and axes of a plot.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    pub title: &'a str,
    /// Label of the horizontal axis.
    pub x: &'a str,
    /// Label of the vertical axis: the unit.
    pub y: &'a str,
    /// Of the vertical axis.
    pub spread: Spread,
}

/// One line a system. The horizontal axis is logarithmic if its numbers span more than a decade.
pub fn lines(frame: &Frame<'_>, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|l| &l.values);
    let y = vertical(frame, points().map(|(_, v)| *v));
    let mut numbers: Vec<f64> = points().map(|(x, _)| *x).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let wide = numbers.first().is_some_and(|first| *first > 0.0)
        && numbers.last().copied().unwrap_or(0.0) > 10.0 * numbers.first().copied().unwrap_or(0.0);
    let x = Scale::over(if wide { Spread::Log } else { Spread::Linear }, numbers.iter().copied());
    let mut svg = begin(frame, &y);
    for number in thinned(&numbers, &x) {
        text(&mut svg, across(x.place(number)), AREA.3 + 18.0, "middle", &count(number));
    }
    text(&mut svg, f64::midpoint(AREA.0, AREA.1), AREA.3 + 40.0, "middle", frame.x);
    for (row, line) in lines.iter().enumerate() {
        let colour = colour(line.style);
        let places: Vec<(f64, f64)> = line
            .values
            .iter()
            .map(|(n, v)| (across(x.place(*n)), down(y.place(v.median))))
            .collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dash = if line.style >= COLOURS.len() { " stroke-dasharray='5 3'" } else { "" };
        let _ = writeln!(
            svg,
            "<polyline points='{}' fill='none' stroke='{colour}' stroke-width='2'{dash}/>",
            path.join(" ")
        );
        for ((px, py), (_, value)) in places.iter().zip(&line.values) {
            whisker(&mut svg, *px, value, &y, colour);
            mark(&mut svg, *px, *py, line.style);
        }
        let legend = AREA.2 + 14.0 + 20.0 * row as f64;
        mark(&mut svg, AREA.1 + 22.0, legend - 4.0, line.style);
        text(&mut svg, AREA.1 + 34.0, legend, "start", &line.name);
    }
    svg.push_str("</svg>\n");
    svg
}

/// A bar for each name, style and value.
pub fn bars(frame: &Frame<'_>, bars: &[(String, usize, Value)]) -> String {
    let y = vertical(frame, bars.iter().map(|(_, _, v)| *v));
    let mut svg = begin(frame, &y);
    let share = (AREA.1 - AREA.0) / bars.len().max(1) as f64;
    for (at, (name, style, value)) in bars.iter().enumerate() {
        let left = AREA.0 + share * at as f64;
        let (middle, top) = (left + share / 2.0, down(y.place(value.median)));
        let _ = writeln!(
            svg,
            "<rect x='{:.1}' y='{top:.1}' width='{:.1}' height='{:.1}' fill='{}'/>",
            left + share * 0.15,
            share * 0.7,
            AREA.3 - top,
            colour(*style)
        );
        whisker(&mut svg, middle, value, &y, "#444444");
        text(&mut svg, middle, top - 6.0, "middle", &number(value.median));
        if share >= ROOM {
            text(&mut svg, middle, AREA.3 + 18.0, "middle", name);
        } else {
            // The legend, in the order of the bars.
            text(&mut svg, middle, AREA.3 + 18.0, "middle", &(at + 1).to_string());
            let row = AREA.2 + 14.0 + 20.0 * at as f64;
            text(&mut svg, AREA.1 + 16.0, row, "start", &format!("{}  {name}", at + 1));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn vertical(frame: &Frame<'_>, values: impl Iterator<Item = Value>) -> Scale {
    Scale::over(frame.spread, values.flat_map(|v| [v.low, v.median, v.high])).widened()
}

fn begin(frame: &Frame<'_>, y: &Scale) -> String {
    let (left, right, top, bottom) = AREA;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' \
         height='{HEIGHT}' font-family='sans-serif' font-size='12'>\n\
         <rect width='{WIDTH}' height='{HEIGHT}' fill='#ffffff'/>\n"
    );
    let _ = writeln!(
        svg,
        "<text x='{left}' y='22' font-size='15' font-weight='bold'>{}</text>",
        escaped(frame.title)
    );
    for tick in y.ticks() {
        let at = down(y.place(tick));
        let _ = writeln!(
            svg,
            "<line x1='{left}' y1='{at:.1}' x2='{right}' y2='{at:.1}' stroke='#dddddd'/>"
        );
        text(&mut svg, left - 8.0, at + 4.0, "end", &number(tick));
    }
    let _ = writeln!(
        svg,
        "<path d='M{left} {top}V{bottom}H{right}' fill='none' stroke='#444444'/>\n\
         <text transform='translate(18 {:.1}) rotate(-90)' text-anchor='middle'>{}</text>",
        f64::midpoint(top, bottom),
        escaped(frame.y)
    );
    svg
}

/// A line from the smallest to the largest sample.
fn whisker(svg: &mut String, x: f64, value: &Value, y: &Scale, colour: &str) {
    let (low, high) = (down(y.place(value.low)), down(y.place(value.high)));
    let _ = writeln!(
        svg,
        "<line x1='{x:.1}' y1='{low:.1}' x2='{x:.1}' y2='{high:.1}' stroke='{colour}'/>"
    );
}

fn mark(svg: &mut String, x: f64, y: f64, style: usize) {
    let colour = colour(style);
    let shape = match style % 4 {
        0 => format!("<circle cx='{x:.1}' cy='{y:.1}' r='4'"),
        1 => format!("<rect x='{:.1}' y='{:.1}' width='8' height='8'", x - 4.0, y - 4.0),
        2 => format!("<path d='M{x:.1} {:.1}l5 9h-10z'", y - 5.0),
        _ => format!("<path d='M{x:.1} {:.1}l5 5l-5 5l-5 -5z'", y - 5.0),
    };
    let _ = writeln!(svg, "{shape} fill='{colour}'/>");
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(svg, "<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{words}</text>");
}

/// The numbers with enough room for their text.
fn thinned(numbers: &[f64], scale: &Scale) -> Vec<f64> {
    let mut last = f64::NEG_INFINITY;
    let mut kept = Vec::new();
    for number in numbers {
        let at = across(scale.place(*number));
        if at - last >= 34.0 {
            kept.push(*number);
            last = at;
        }
    }
    kept
}

fn colour(style: usize) -> &'static str {
    COLOURS.get(style % COLOURS.len()).copied().unwrap_or("#000000")
}

fn across(share: f64) -> f64 {
    AREA.0 + 16.0 + share * (AREA.1 - AREA.0 - 32.0)
}

fn down(share: f64) -> f64 {
    AREA.3 - share * (AREA.3 - AREA.2)
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

    fn frame() -> Frame<'static> {
        Frame { title: "Rate < limit & more", x: "flows", y: "Mpps", spread: Spread::Linear }
    }

    /// The numbers of an attribute of all elements of a kind.
    fn attributes(svg: &str, element: &str, name: &str) -> Vec<f64> {
        svg.lines()
            .filter(|l| l.starts_with(&format!("<{element} ")))
            .filter_map(|l| l.split(&format!(" {name}='")).nth(1)?.split('\'').next()?.parse().ok())
            .collect()
    }

    #[test]
    fn higher_values_are_higher_up() {
        let two = [("a".to_owned(), 0, value(2.0)), ("b".to_owned(), 1, value(8.0))];
        let svg = bars(&frame(), &two);
        let heights = attributes(&svg, "rect", "height");
        // The first is the background.
        assert_eq!(heights.len(), 3);
        assert!((heights[2] / heights[1] - 4.0).abs() < 0.02, "{heights:?}");
    }

    #[test]
    fn every_system_has_a_line_a_mark_for_each_value_and_a_name() {
        let line = |name: &str, style| Line {
            name: name.into(),
            style,
            values: vec![(1.0, value(9.0)), (65_536.0, value(3.0))],
        };
        let svg = lines(&frame(), &[line("bare <XDP>", 0), line("OVS", 4)]);
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
            let svg = bars(&frame(), &[("a".into(), 0, value(median))]);
            for y in attributes(&svg, "rect", "y") {
                assert!((0.0..=HEIGHT).contains(&y), "{y}");
            }
            let log = Frame { spread: Spread::Log, ..frame() };
            let one = Line { name: "a".into(), style: 9, values: vec![(1.0, value(median))] };
            assert!(!lines(&log, &[one]).contains("NaN"));
        }
    }
}
