//! The region list of K42's process object (section 4.1, figure 8). Every look-up finds its key,
//! and now and then a key is removed and put back. The maps are those of the workload `map`.

use super::{MapHandle, Mix, Shape, entries, groups_of, value_of};
use crate::{
    runner::Group,
    workload::{Entry, Options, UnknownImpl},
};

struct Regions;

impl Mix for Regions {
    const BENCH: &'static str = "regions";
    const STEP: usize = 1;
    const CHANGE: &'static str = "remove and put back";

    fn keys(_: &Options) -> &[usize] {
        &[1024]
    }

    #[inline(always)]
    fn change(handle: &mut impl MapHandle, key: u64, _: bool) {
        handle.remove(key);
        handle.insert(key, value_of(key, 1));
    }
}

/// Every implementation.
pub static ENTRIES: &[Entry<Shape>] = &entries::<Regions>();

/// The groups for some options: one for each share of updates and thread count.
///
/// # Errors
/// If an implementation is unknown.
pub fn groups(options: &Options) -> Result<Vec<Group>, UnknownImpl> {
    groups_of::<Regions>(ENTRIES, options)
}
