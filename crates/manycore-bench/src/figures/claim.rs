//! The statements of a paper's text about its curves, and the check that simulated curves agree.

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
    /// How many times a curve is at one place of what it is at another, where the text gives a
    /// number.
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
    /// A curve grows with the cores, where the text has words and no number.
    Linear {
        /// The curve.
        curve: &'static str,
        /// From one core to so many.
        to: f64,
        /// The text's words.
        words: &'static str,
    },
    /// A share in percent is nearly all from a place on, where the text has words and no number.
    NearlyAll {
        /// The curve.
        curve: &'static str,
        /// From this place on.
        from: f64,
        /// The text's words.
        words: &'static str,
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
    /// Whether it holds, as the constants of this file say. Nothing if it could not be seen.
    pub holds: Option<bool>,
}

/// A value is borne out within this factor, in either direction. So is the distance of a ratio from
/// one, which must also lie on the same side of one.
const FACTOR: f64 = 2.0;

/// Where a text says that there is no difference, a ratio is borne out within so much of one.
const EQUAL: f64 = 0.05;

/// Growth is borne out as linear from this share of the cores on.
const LINEAR: f64 = 0.8;

/// A share is borne out as nearly all from so many percent on.
const NEARLY_ALL: f64 = 80.0;

/// A peak is borne out within so many cores.
const PEAK: f64 = 2.0;

/// When a claim counts as borne out, in sentences.
pub fn rule() -> String {
    format!(
        "A number counts as borne out within a factor of {FACTOR}. A ratio does if it lies on the \
         published one's side of one and its distance from one is within a factor of {FACTOR} of \
         the published distance; where the text says that there is no difference, within {:.0} % \
         of one. A peak counts within {PEAK} cores, growth that is called linear from {:.0} % of \
         the cores on, a share that is called almost all from {NEARLY_ALL:.0} % on, an order if it \
         is the same at every point compared, a crossing if the order before it is the other one.",
        EQUAL * 100.0,
        LINEAR * 100.0
    )
}

fn within(share: f64) -> bool {
    (1.0 / FACTOR..=FACTOR).contains(&share)
}

/// Whether a ratio is the published one: "1.1 times as fast" is not borne out by 0.6, nor by 2.
fn same_ratio(published: f64, simulated: f64) -> bool {
    // Positive above one, negative below, and the same for a ratio and its inverse.
    let distance = |ratio: f64| if ratio < 1.0 { 1.0 - 1.0 / ratio } else { ratio - 1.0 };
    match distance(published) {
        0.0 => distance(simulated).abs() <= EQUAL,
        published => within(distance(simulated) / published),
    }
}

fn compared(
    about: String,
    published: f64,
    simulated: Option<f64>,
    same: impl FnOnce(f64, f64) -> bool,
) -> Finding {
    Finding {
        about,
        published: number(published),
        simulated: simulated.map_or_else(|| "not run".to_owned(), number),
        off: simulated.map(|value| (value / published - 1.0) * 100.0),
        holds: simulated.map(|value| same(published, value)),
    }
}

impl Claim {
    /// Compares it with curves.
    pub fn judge(&self, series: &Series) -> Finding {
        match *self {
            Claim::Value { curve, x, published } => {
                let same = |published, simulated| within(simulated / published);
                compared(format!("{curve} at {x}"), published, series.at(curve, x), same)
            }
            Claim::Peak { curve, x, published } => peak(series, curve, x, published),
            Claim::Times { above, below, x, published } => {
                let both = series.at(above, x).zip(series.at(below, x));
                let about = format!("{above} is so many times {below} at {x}");
                compared(about, published, both.map(|(above, below)| above / below), same_ratio)
            }
            Claim::Grows { curve, from, to, published } => {
                let both = series.at(curve, from).zip(series.at(curve, to));
                let about = format!("{curve} at {to} is so many times itself at {from}");
                compared(about, published, both.map(|(from, to)| to / from), same_ratio)
            }
            Claim::Linear { curve, to, words } => linear(series, curve, to, words),
            Claim::NearlyAll { curve, from, words } => nearly_all(series, curve, from, words),
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

fn linear(series: &Series, curve: &'static str, to: f64, words: &'static str) -> Finding {
    let both = series.at(curve, 1.0).zip(series.at(curve, to));
    let times = both.map(|(one, many)| many / one);
    let simulated = |times| format!("{} times, of {to}", number(times));
    Finding {
        about: format!("{curve} grows with the cores, to {to}"),
        published: words.to_owned(),
        simulated: times.map_or_else(|| "not run".to_owned(), simulated),
        off: None,
        holds: times.map(|times| times >= LINEAR * to),
    }
}

fn nearly_all(series: &Series, curve: &str, from: f64, words: &'static str) -> Finding {
    let shares = series.points(curve).iter().filter(|point| point.0 >= from).map(|point| point.1);
    let least = shares.min_by(f64::total_cmp);
    Finding {
        about: format!("{curve} from {from} on"),
        published: words.to_owned(),
        simulated: least
            .map_or_else(|| "not run".to_owned(), |least| format!("{least:.0} % or more")),
        off: None,
        holds: least.map(|least| least >= NEARLY_ALL),
    }
}

fn crossing(series: &Series, above: &'static str, below: &'static str, x: f64) -> Finding {
    let places = series.points(above).iter().map(|point| point.0);
    let wins = |x: f64| Some(series.at(above, x)? >= series.at(below, x)?);
    let outcomes: Vec<(f64, bool)> = places.filter_map(|x| Some((x, wins(x)?))).collect();
    let lasting = outcomes.iter().rev().take_while(|outcome| outcome.1).count();
    let (early, last) = outcomes.split_at(outcomes.len() - lasting);
    let early: Vec<String> =
        early.iter().filter(|outcome| outcome.1).map(|outcome| outcome.0.to_string()).collect();
    let mut simulated = match (outcomes.is_empty(), last.first()) {
        (true, _) => "not run".to_owned(),
        (_, Some(from)) => format!("from {} on", from.0),
        (_, None) => "not to the end".to_owned(),
    };
    if !early.is_empty() {
        simulated += &format!(", and at {}", early.join(", "));
    }
    let as_said = |outcome: &(f64, bool)| outcome.1 == (outcome.0 >= x);
    // Without a place on each side of it nothing is borne out.
    let on_both_sides = outcomes.iter().any(|o| o.0 < x) && outcomes.iter().any(|o| o.0 >= x);
    let holds = match outcomes.iter().all(as_said) {
        true => on_both_sides.then_some(true),
        false => Some(false),
    };
    Finding {
        about: format!("{above} is above {below}, and below it before"),
        published: format!("from {x} on"),
        simulated,
        off: None,
        holds,
    }
}
