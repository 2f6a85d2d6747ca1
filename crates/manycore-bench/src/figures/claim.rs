//! What a paper's text says of its curves, and whether simulated curves do the same.

use manycore_page::number;

/// The points of a curve, from left to right: place and value.
pub type Points = Vec<(f64, f64)>;

/// Curves: implementation, name, points.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// The curves.
    pub curves: Vec<(&'static str, &'static str, Points)>,
}

impl Series {
    fn points(&self, implementation: &str) -> &[(f64, f64)] {
        let mut curves = self.curves.iter();
        curves.find(|curve| curve.0 == implementation).map_or(&[], |curve| &curve.2)
    }

    /// The value of a curve at a place.
    pub fn at(&self, implementation: &str, x: f64) -> Option<f64> {
        let points = self.points(implementation);
        points.iter().find(|point| (point.0 - x).abs() < 1e-6).map(|point| point.1)
    }

    /// Where a curve is highest, and how high.
    fn peak(&self, implementation: &str) -> Option<(f64, f64)> {
        self.points(implementation).iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Something that a text says. Curves are named by their implementations.
pub enum Claim {
    /// A value at a place.
    Value {
        /// The curve.
        curve: &'static str,
        /// The place.
        x: f64,
        /// What the text gives.
        published: f64,
    },
    /// The highest point.
    Peak {
        /// The curve.
        curve: &'static str,
        /// Where the text says that it is.
        x: f64,
        /// How high, if the text says it.
        published: Option<f64>,
    },
    /// How many times one curve is of another at a place.
    Times {
        /// The one above.
        above: &'static str,
        /// The one below.
        below: &'static str,
        /// The place.
        x: f64,
        /// What the text gives.
        published: f64,
    },
    /// How many times a curve is at one place of what it is at another.
    Grows {
        /// The curve.
        curve: &'static str,
        /// From here.
        from: f64,
        /// To here.
        to: f64,
        /// What the text gives.
        published: f64,
    },
    /// Which curves are above which, from a place on.
    Order {
        /// The curves, the highest first.
        curves: &'static [&'static str],
        /// From this place on.
        from: f64,
    },
    /// One curve is above another from a place on, and below it before.
    Crossing {
        /// The one that is above in the end.
        above: &'static str,
        /// The other.
        below: &'static str,
        /// From this place on.
        x: f64,
    },
}

/// What became of a claim.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What it is about.
    pub about: String,
    /// What the text says.
    pub published: String,
    /// What the simulation says.
    pub simulated: String,
    /// By how many percent the simulated value is off, where there is a published one.
    pub off: Option<f64>,
    /// Whether it holds: an order as said, a peak within two cores, a number within a factor of
    /// two. Nothing if it could not be seen.
    pub holds: Option<bool>,
}

/// A number is borne out within this factor, in either direction.
const FACTOR: f64 = 2.0;

/// A peak is borne out within so many cores.
const PEAK: f64 = 2.0;

fn compared(about: String, published: f64, simulated: Option<f64>) -> Finding {
    let off = simulated.map(|value| (value / published - 1.0) * 100.0);
    let near = |value: f64| value / published <= FACTOR && published / value <= FACTOR;
    Finding {
        about,
        published: number(published),
        simulated: simulated.map_or_else(|| "not run".to_owned(), number),
        off,
        holds: simulated.map(near),
    }
}

impl Claim {
    /// Compares it with curves.
    pub fn judge(&self, series: &Series) -> Finding {
        match *self {
            Claim::Value { curve, x, published } => {
                compared(format!("{curve} at {x}"), published, series.at(curve, x))
            }
            Claim::Peak { curve, x, published } => peak(series, curve, x, published),
            Claim::Times { above, below, x, published } => {
                let both = series.at(above, x).zip(series.at(below, x));
                let about = format!("{above} is so many times {below} at {x}");
                compared(about, published, both.map(|(above, below)| above / below))
            }
            Claim::Grows { curve, from, to, published } => {
                let both = series.at(curve, from).zip(series.at(curve, to));
                let about = format!("{curve} at {to} is so many times itself at {from}");
                compared(about, published, both.map(|(from, to)| to / from))
            }
            Claim::Order { curves, from } => order(series, curves, from),
            Claim::Crossing { above, below, x } => crossing(series, above, below, x),
        }
    }
}

fn peak(series: &Series, curve: &'static str, x: f64, published: Option<f64>) -> Finding {
    let seen = series.peak(curve);
    let off = seen.zip(published).map(|((_, value), published)| (value / published - 1.0) * 100.0);
    let value = |value: Option<f64>| value.map_or(String::new(), |v| format!("{} ", number(v)));
    Finding {
        about: format!("the peak of {curve}"),
        published: format!("{}at {x}", value(published)),
        simulated: seen.map_or_else(
            || "not run".to_owned(),
            |(at, height)| format!("{}at {at}", value(Some(height))),
        ),
        off,
        holds: seen.map(|(at, _)| (at - x).abs() <= PEAK),
    }
}

fn order(series: &Series, curves: &'static [&'static str], from: f64) -> Finding {
    let places = series.points(curves[0]).iter().map(|point| point.0).filter(|x| *x >= from);
    let mut broken = Vec::new();
    let mut seen = 0;
    for x in places {
        let values: Vec<f64> = curves.iter().filter_map(|curve| series.at(curve, x)).collect();
        seen += usize::from(values.len() > 1);
        if !values.is_sorted_by(|a, b| a >= b) {
            broken.push(x.to_string());
        }
    }
    let simulated = match (seen, &broken[..]) {
        (0, _) => "not run".to_owned(),
        (_, []) => "the same".to_owned(),
        (_, at) => format!("another at {}", at.join(", ")),
    };
    let about = if from <= 1.0 { "order".to_owned() } else { format!("order from {from} on") };
    let holds = (seen > 0).then_some(broken.is_empty());
    Finding { about, published: curves.join(" > "), simulated, off: None, holds }
}

fn crossing(series: &Series, above: &'static str, below: &'static str, x: f64) -> Finding {
    let places = series.points(above).iter().map(|point| point.0);
    let wins = |x: f64| Some(series.at(above, x)? >= series.at(below, x)?);
    let outcomes: Vec<(f64, bool)> = places.filter_map(|x| Some((x, wins(x)?))).collect();
    // From the right: the last place from which it is above all the way.
    let from = outcomes.iter().rev().take_while(|outcome| outcome.1).last().map(|o| o.0);
    let simulated = match (from, outcomes.is_empty()) {
        (_, true) => "not run".to_owned(),
        (Some(from), _) => format!("from {from} on"),
        (None, _) => "never".to_owned(),
    };
    Finding {
        about: format!("{above} is above {below}"),
        published: format!("from {x} on"),
        simulated,
        off: None,
        holds: (!outcomes.is_empty()).then_some(from.is_some_and(|from| from <= x)),
    }
}
