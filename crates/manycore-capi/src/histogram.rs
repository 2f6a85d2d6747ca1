//! `mc_histogram` and `mc_snapshot`: distributions of values.

use libc::c_int;
use manycore::collections::{Histogram, HistogramSnapshot};

/// Makes a new histogram.
///
/// # Safety
/// `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_histogram_new(out: *mut *mut Histogram) -> c_int {
    if out.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { out.write(Box::into_raw(Box::new(Histogram::new()))) };
    0
}

/// Frees a histogram.
///
/// # Safety
/// Null, or from `mc_histogram_new`, freed once, and used by no thread any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_histogram_free(histogram: *mut Histogram) {
    if !histogram.is_null() {
        // SAFETY: from the box of `mc_histogram_new`; the caller promises that it comes back once.
        drop(unsafe { Box::from_raw(histogram) });
    }
}

/// Counts a value `times` times.
///
/// # Safety
/// The histogram is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_histogram_record(histogram: *const Histogram, value: u64, times: u64) {
    // SAFETY: the caller promises a histogram that has not been freed.
    unsafe { &*histogram }.record_n(value, times);
}

/// Writes to `out` the snapshot that `read` takes of the histogram.
///
/// # Safety
/// Null, or a histogram that is not freed; `out` is null or may be written.
unsafe fn snapshot(
    histogram: *const Histogram,
    out: *mut *mut HistogramSnapshot,
    read: fn(&Histogram) -> HistogramSnapshot,
) -> c_int {
    // SAFETY: the caller promises that a histogram that is not null has not been freed.
    let Some(histogram) = (unsafe { histogram.as_ref() }) else { return -libc::EINVAL };
    if out.is_null() {
        return -libc::EINVAL;
    }
    // SAFETY: not null, and the caller promises that it may be written.
    unsafe { out.write(Box::into_raw(Box::new(read(histogram)))) };
    0
}

/// Takes a snapshot of the histogram.
///
/// # Safety
/// Null, or a histogram that is not freed; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_histogram_read(
    histogram: *const Histogram,
    out: *mut *mut HistogramSnapshot,
) -> c_int {
    // SAFETY: what the caller promises.
    unsafe { snapshot(histogram, out, Histogram::snapshot) }
}

/// Takes a snapshot and empties the histogram.
///
/// # Safety
/// Null, or a histogram that is not freed; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_histogram_take(
    histogram: *const Histogram,
    out: *mut *mut HistogramSnapshot,
) -> c_int {
    // SAFETY: what the caller promises.
    unsafe { snapshot(histogram, out, Histogram::take) }
}

/// Frees a snapshot.
///
/// # Safety
/// Null, or from `mc_histogram_read` or `mc_histogram_take`, and freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_snapshot_free(snapshot: *mut HistogramSnapshot) {
    if !snapshot.is_null() {
        // SAFETY: from the box of `snapshot`; the caller promises that it comes back once.
        drop(unsafe { Box::from_raw(snapshot) });
    }
}

/// Returns how many values were counted.
///
/// # Safety
/// The snapshot is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_snapshot_count(snapshot: *const HistogramSnapshot) -> u64 {
    // SAFETY: the caller promises a snapshot that has not been freed.
    unsafe { &*snapshot }.count()
}

/// Stores the value that a part `q` of all values does not exceed.
///
/// # Safety
/// The snapshot is not freed; `out` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_snapshot_quantile(
    snapshot: *const HistogramSnapshot,
    q: f64,
    out: *mut u64,
) -> c_int {
    // SAFETY: the caller promises that it is null or may be written.
    let Some(out) = (unsafe { out.as_mut() }) else { return -libc::EINVAL };
    if !(0.0..=1.0).contains(&q) {
        return -libc::EINVAL;
    }
    // SAFETY: the caller promises a snapshot that has not been freed.
    let Some(found) = unsafe { &*snapshot }.quantile(q) else { return -libc::ENOENT };
    *out = found;
    0
}

/// Returns the sum of all values, within the error.
///
/// # Safety
/// The snapshot is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_snapshot_sum(snapshot: *const HistogramSnapshot) -> f64 {
    // SAFETY: the caller promises a snapshot that has not been freed.
    unsafe { &*snapshot }.sum()
}

/// Returns how many values are at most `value`, within the error.
///
/// # Safety
/// The snapshot is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_snapshot_count_up_to(
    snapshot: *const HistogramSnapshot,
    value: u64,
) -> u64 {
    // SAFETY: the caller promises a snapshot that has not been freed.
    unsafe { &*snapshot }.count_up_to(value)
}

/// Adds the counts of another snapshot.
///
/// # Safety
/// Both are not freed, and no other thread uses the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mc_snapshot_merge(
    into: *mut HistogramSnapshot,
    from: *const HistogramSnapshot,
) -> c_int {
    if into.is_null() || from.is_null() || std::ptr::eq(into, from) {
        return -libc::EINVAL;
    }
    // SAFETY: the caller promises two snapshots that are not freed, the first of which no other
    // thread uses.
    unsafe { (*into).merge(&*from) };
    0
}
