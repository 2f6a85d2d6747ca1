//! A measured value: the median of several measurements, with the smallest and the largest.

/// A measured value with its spread.
///
/// ```
/// use manycore_sim::calibrate::Distribution;
///
/// let spread = Distribution::of(vec![3.0, 1.0, 20.0]).unwrap();
/// assert_eq!((spread.median, spread.min, spread.max, spread.count), (3.0, 1.0, 20.0, 3));
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct Distribution {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The number of measurements.
    pub count: usize,
}

impl Distribution {
    /// Summarizes the values. Returns `None` if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Distribution> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        Some(Distribution { median: values[values.len() / 2], min, max, count: values.len() })
    }

    /// Applies a change that keeps the values' order.
    pub(super) fn map(self, change: impl Fn(f64) -> f64) -> Distribution {
        let [median, min, max] = [self.median, self.min, self.max].map(change);
        Distribution { median, min, max, count: self.count }
    }
}
