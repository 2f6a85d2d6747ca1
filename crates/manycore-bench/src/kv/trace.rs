//! Requests, generated before the timed part: zipf-distributed keys, and patterns that defeat
//! simple eviction policies.

use std::sync::{Arc, Mutex, PoisonError};

/// The skew, as in YCSB.
const THETA: f64 = 0.99;

/// How many different keys there are, unless asked for.
pub(crate) const KEYS: usize = 1_000_000;

/// In a request: it is a set.
pub(crate) const SET: u32 = 1 << 31;

/// The keys' order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// Zipfian.
    Zipf,
    /// One after the other, each once.
    Scan,
    /// Round and round over a fifth more keys than the capacity of a tenth holds.
    Loop,
    /// Zipfian, with a scan of 50,000 keys after every 200,000 requests.
    Mixed,
}

impl Keys {
    /// Its name in a row.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Zipf => "zipf",
            Self::Scan => "scan",
            Self::Loop => "loop",
            Self::Mixed => "mixed",
        }
    }
}

/// A generator: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Gray and others, "Quickly generating billion-record synthetic databases" (SIGMOD 1994): the
/// generator of YCSB.
struct Zipf {
    keys: usize,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(keys: usize) -> Self {
        let zeta_of = |n: usize| (1..=n).map(|i| (i as f64).powf(-THETA)).sum::<f64>();
        let zeta = zeta_of(keys);
        let eta = (1.0 - (2.0 / keys as f64).powf(1.0 - THETA)) / (1.0 - zeta_of(2) / zeta);
        Self { keys, zeta, alpha: 1.0 / (1.0 - THETA), eta }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5_f64.powf(THETA) {
            return 1;
        }
        let rank = self.keys as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as usize).min(self.keys - 1)
    }
}

/// Requests: a key's number, and whether it is set.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) requests: Vec<u32>,
}

/// What a trace is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The share of sets, in percent.
    pub(crate) set: u8,
    pub(crate) requests: usize,
    pub(crate) order: Keys,
    /// How many different keys there are.
    pub(crate) keys: usize,
}

impl Wanted {
    /// The number of keys as a part of a title, if it is not the usual one.
    pub(crate) fn keys_word(keys: usize) -> String {
        if keys == KEYS { String::new() } else { format!(", {keys} keys") }
    }
}

impl Trace {
    /// The trace for these settings; the last one made is kept.
    pub(crate) fn shared(wanted: Wanted) -> Arc<Self> {
        static LAST: Mutex<Option<(Wanted, Arc<Trace>)>> = Mutex::new(None);
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((had, trace)) = &*last
            && *had == wanted
        {
            return Arc::clone(trace);
        }
        *last = None; // one is large enough
        let trace = Arc::new(Self::new(wanted));
        *last = Some((wanted, Arc::clone(&trace)));
        trace
    }

    fn new(wanted: Wanted) -> Self {
        let Wanted { set, requests, order, keys } = wanted;
        let (zipf, mut random) = (Zipf::new(keys), Random(7));
        let (mut scanned, mut left) = (0_usize, 0_usize);
        let mut key = |at: usize, random: &mut Random| match order {
            Keys::Zipf => zipf.draw(random),
            Keys::Scan => at % keys,
            Keys::Loop => at % (keys / 10 * 6 / 5),
            Keys::Mixed => {
                if at % 200_000 == 199_999 {
                    left = 50_000;
                }
                if left == 0 {
                    return zipf.draw(random);
                }
                left -= 1;
                scanned += 1;
                scanned % keys
            }
        };
        let request = |at| {
            let key = key(at, &mut random) as u32;
            let is_set = random.next() % 100 < u64::from(set);
            key | if is_set { SET } else { 0 }
        };
        Self { requests: (0..requests.max(1)).map(request).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::{KEYS, Keys, SET, Trace, Wanted};

    #[test]
    fn a_tenth_of_the_keys_draws_the_share_that_the_distribution_says() {
        let trace =
            Trace::new(Wanted { set: 10, requests: 200_000, order: Keys::Zipf, keys: KEYS });
        let share = |test: fn(u32) -> bool| {
            trace.requests.iter().filter(|request| test(**request)).count() as f64 / 200_000.0
        };
        let hot = share(|request| ((request & !SET) as usize) < KEYS / 10);
        assert!((hot - 0.83).abs() < 0.01, "{hot}");
        let sets = share(|request| request & SET != 0);
        assert!((sets - 0.1).abs() < 0.01, "{sets}");
    }
}
