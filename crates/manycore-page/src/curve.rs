//! Plots of curves as SVG.

use std::fmt::Write;

use crate::{STYLE, escape, number};

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = WIDTH - 12.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = HEIGHT - 36.0;
const LABEL_HEIGHT: f64 = 16.0;
/// Side of the square of a published value.
const MARK: f64 = 8.0;
/// Colours of the style sheet.
const COLOURS: usize = 6;

/// One curve.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Its name, written below the plot.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
    /// For some x, from where to where the value may lie.
    pub band: Vec<(f64, f64, f64)>,
    /// For some x, from where to where repeats lie: drawn as a bar through the point.
    pub interval: Vec<(f64, f64, f64)>,
    /// The colour: curves that belong together have the same.
    pub colour: usize,
    /// Published figures: drawn as hollow squares, without a line, since the values in between are
    /// not known.
    pub published: bool,
}

/// Curves over one axis.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// Stands above.
    pub heading: String,
    /// What goes to the right.
    pub x: String,
    /// What goes up, with its unit.
    pub y: String,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// From values to places.
struct Scale {
    x_max: f64,
    y_max: f64,
}

impl Scale {
    fn of(curves: &[Curve]) -> Scale {
        let points = || curves.iter().flat_map(|curve| &curve.points);
        let bands = curves.iter().flat_map(|curve| curve.band.iter().chain(&curve.interval));
        let x_max = points().map(|(x, _)| *x).fold(1.0, f64::max);
        let highest = points().map(|(_, y)| *y).chain(bands.map(|(.., high)| *high));
        Scale { x_max, y_max: round_up(highest.fold(f64::MIN_POSITIVE, f64::max)) }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * value / self.x_max
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * value / self.y_max
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let places: Vec<String> =
            points.map(|(x, y)| format!("{:.1},{:.1}", self.x(x), self.y(y))).collect();
        places.join(" ")
    }
}

/// The next number up that is 1, 2, 2.5 or 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    steps.iter().map(|step| step * power).find(|round| *round >= value).unwrap_or(value)
}

impl Plot {
    /// The plot as an SVG element.
    pub fn svg(&self) -> String {
        let scale = Scale::of(&self.curves);
        let height = HEIGHT + LABEL_HEIGHT * self.curves.len() as f64;
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\"");
        let heading = escape(&self.heading);
        let _ = writeln!(svg, " aria-label=\"{heading}, {}\">", escape(&self.y));
        let _ = writeln!(svg, "<text class=\"heading\" x=\"2\" y=\"16\">{heading}</text>");
        let _ = writeln!(svg, "<text class=\"soft\" x=\"2\" y=\"33\">{}</text>", escape(&self.y));
        self.axes(&scale, &mut svg);
        for curve in &self.curves {
            curve.draw(&scale, &mut svg);
        }
        for (place, curve) in self.curves.iter().enumerate() {
            let y = HEIGHT + LABEL_HEIGHT * place as f64 + 8.0;
            let colour = curve.colour % COLOURS;
            let key = if curve.published {
                let (left, top) = (LEFT + 8.0, y - 8.0);
                format!(
                    "<rect class=\"curve mark\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{MARK}\" \
                     height=\"{MARK}\"/>"
                )
            } else {
                let (end, y) = (LEFT + 24.0, y - 4.0);
                format!(
                    "<line class=\"curve\" x1=\"{LEFT}\" x2=\"{end:.1}\" y1=\"{y:.1}\" \
                     y2=\"{y:.1}\"/>"
                )
            };
            let _ = writeln!(
                svg,
                "<g class=\"s{colour}\">{key}<text class=\"label\" x=\"{:.1}\" y=\"{y:.1}\">{}\
                 </text></g>",
                LEFT + 30.0,
                escape(&curve.name)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// The plot as a file of its own, for a page that shows it as a picture.
    pub fn file(&self) -> String {
        // The page's style sheet is the figure's too: it follows the reader's light or dark.
        let start = "<svg xmlns=\"http://www.w3.org/2000/svg\" ";
        let style = format!("<style>\n{STYLE}svg {{ background: var(--paper); }}\n</style>\n");
        let svg = self.svg().replacen("<svg ", start, 1);
        let (element, rest) = svg.split_once('\n').unwrap_or((&svg, ""));
        format!("{element}\n{style}{rest}")
    }

    fn axes(&self, scale: &Scale, svg: &mut String) {
        for part in 0..=4 {
            let value = scale.y_max * f64::from(part) / 4.0;
            let y = scale.y(value);
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                y + 4.0,
                if part == 0 { "0".to_string() } else { number(value) }
            );
        }
        let mut marks: Vec<f64> =
            self.curves.iter().flat_map(|curve| curve.points.iter().map(|(x, _)| *x)).collect();
        marks.sort_by(f64::total_cmp);
        marks.dedup();
        let mut free_from = f64::MIN;
        for mark in marks {
            let x = scale.x(mark);
            if x < free_from {
                continue; // no room for its number
            }
            free_from = x + 24.0;
            let _ = writeln!(
                svg,
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{mark}\
                 </text>",
                BOTTOM + 15.0
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{RIGHT}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            BOTTOM + 29.0,
            escape(&self.x)
        );
    }
}

impl Curve {
    fn draw(&self, scale: &Scale, svg: &mut String) {
        let colour = self.colour % COLOURS;
        let _ = writeln!(svg, "<g class=\"s{colour}\">");
        if !self.band.is_empty() {
            let there = self.band.iter().map(|(x, low, _)| (*x, *low));
            let back = self.band.iter().rev().map(|(x, _, high)| (*x, *high));
            let path = scale.path(there.chain(back));
            let _ = writeln!(svg, "<polygon class=\"band\" points=\"{path}\"/>");
        }
        if !self.published {
            let path = scale.path(self.points.iter().copied());
            let _ = writeln!(svg, "<polyline class=\"curve\" points=\"{path}\"/>");
        }
        for (x, low, high) in &self.interval {
            let (x, y1, y2) = (scale.x(*x), scale.y(*low), scale.y(*high));
            let _ = writeln!(
                svg,
                "<line class=\"curve bar\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y1:.1}\" \
                 y2=\"{y2:.1}\"/>"
            );
        }
        for (x, y) in &self.points {
            let (left, top) = (scale.x(*x), scale.y(*y));
            let title = format!("<title>{}, {x}: {}</title>", escape(&self.name), number(*y));
            let _ = if self.published {
                let (left, top) = (left - MARK / 2.0, top - MARK / 2.0);
                writeln!(
                    svg,
                    "<rect class=\"curve mark\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{MARK}\" \
                     height=\"{MARK}\">{title}</rect>"
                )
            } else {
                writeln!(
                    svg,
                    "<circle class=\"dot\" cx=\"{left:.1}\" cy=\"{top:.1}\" r=\"2.5\">{title}\
                     </circle>"
                )
            };
        }
        svg.push_str("</g>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::{Curve, HEIGHT, Plot, WIDTH, round_up};

    fn plot() -> String {
        let curve = |name: &str, published| Curve {
            name: name.to_string(),
            points: vec![(1.0, 3.0), (24.0, 40.0), (48.0, 7.5)],
            band: vec![(1.0, 2.0, 4.0), (48.0, 5.0, 90.0)],
            interval: vec![(24.0, 38.0, 120.0)],
            colour: 1,
            published,
        };
        let curves = vec![curve("a <b>", false), curve("paper", true)];
        let (heading, x, y) = ("List", "cores", "ops/ms");
        Plot { heading: heading.into(), x: x.into(), y: y.into(), curves }.svg()
    }

    #[test]
    fn file_names_its_language_once_and_brings_its_style() {
        let file = Plot { heading: "List".into(), ..Plot::default() }.file();
        assert_eq!(file.matches("xmlns=\"http://www.w3.org/2000/svg\"").count(), 1);
        assert!(file.starts_with("<svg ") && file.ends_with("</svg>\n"));
        assert!(file.contains("prefers-color-scheme") && !file.contains("]]>"));
    }

    #[test]
    fn every_point_lies_in_the_picture() {
        let svg = plot();
        let mut seen = 0;
        for points in svg.split("points=\"").skip(1) {
            for pair in points.split('"').next().unwrap().split(' ') {
                let (x, y) = pair.split_once(',').unwrap();
                let (x, y): (f64, f64) = (x.parse().unwrap(), y.parse().unwrap());
                assert!((0.0..=WIDTH).contains(&x) && (0.0..=HEIGHT).contains(&y), "{pair}");
                seen += 1;
            }
        }
        assert_eq!(seen, 3 + 2 * 4, "one line, and two bands");
    }

    #[test]
    fn interval_is_a_bar_within_the_picture() {
        let svg = plot();
        let bars: Vec<&str> = svg.split("class=\"curve bar\"").skip(1).collect();
        assert_eq!(bars.len(), 2);
        for bar in bars {
            let y = |name: &str| -> f64 {
                let text = bar.split(name).nth(1).and_then(|text| text.split('"').nth(1));
                text.expect("a place").parse().expect("a number")
            };
            assert!(0.0 < y("y2=") && y("y2=") < y("y1=") && y("y1=") < HEIGHT, "{bar}");
        }
    }

    #[test]
    fn names_are_escaped_and_published_values_are_squares_without_a_line() {
        let svg = plot();
        assert!(svg.contains("a &lt;b&gt;") && !svg.contains("<b>"));
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("<rect").count(), 3 + 1, "three values and the key");
        assert_eq!(svg.matches("<polyline").count(), 1);
    }

    #[test]
    fn a_scale_ends_at_a_round_number() {
        for (value, round) in [(0.9, 1.0), (1.1, 2.0), (240.0, 250.0), (8182.0, 10_000.0)] {
            assert!((round_up(value) - round).abs() < 1e-9, "{value}");
        }
    }
}
