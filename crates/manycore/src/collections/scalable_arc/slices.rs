//! Handles of slices and strings: one allocation, as with `Arc`.

use super::count::Head;
use super::word::CENTRAL;
use super::{Inner, ScalableArc};
use std::alloc::{Layout, alloc, handle_alloc_error};
use std::ptr::{self, NonNull};

/// Returns the layout of an object whose value is a slice of `len` values: that of `Inner<[T]>`.
fn layout_of<T>(len: usize) -> Layout {
    let values = Layout::array::<T>(len).and_then(|values| Layout::new::<Head>().extend(values));
    let aligned = values.and_then(|(layout, _)| layout.align_to(align_of::<Inner<[T; 0]>>()));
    aligned.expect("manycore: capacity overflow").pad_to_align()
}

/// Moves the values into a new object.
impl<T> From<Vec<T>> for ScalableArc<[T]> {
    fn from(mut values: Vec<T>) -> Self {
        let (len, layout) = (values.len(), layout_of::<T>(values.len()));
        // SAFETY: it has room for a head at least.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        let inner = ptr::slice_from_raw_parts_mut(memory.cast::<T>(), len) as *mut Inner<[T]>;
        // SAFETY: allocated just now with this layout. The values are moved: `values` forgets them.
        unsafe {
            debug_assert_eq!(Layout::for_value(&*inner), layout, "the layout of an object");
            (&raw mut (*inner).head).write(Head::new());
            let to = (&raw mut (*inner).value).cast::<T>();
            ptr::copy_nonoverlapping(values.as_ptr(), to, len);
            values.set_len(0);
            Self::counted(NonNull::new_unchecked(inner), CENTRAL)
        }
    }
}

impl<T: Clone> From<&[T]> for ScalableArc<[T]> {
    fn from(values: &[T]) -> Self {
        values.to_vec().into()
    }
}

impl<T, const N: usize> From<[T; N]> for ScalableArc<[T]> {
    fn from(values: [T; N]) -> Self {
        Vec::from(values).into()
    }
}

impl<T> FromIterator<T> for ScalableArc<[T]> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        values.into_iter().collect::<Vec<T>>().into()
    }
}

impl<T> Default for ScalableArc<[T]> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<&str> for ScalableArc<str> {
    fn from(text: &str) -> Self {
        let bytes = ScalableArc::<[u8]>::from(text.as_bytes());
        let raw = ScalableArc::into_raw(bytes) as *const str;
        // SAFETY: from `into_raw`, of the bytes of a `str`, whose layout is theirs.
        unsafe { Self::from_raw(raw) }
    }
}

impl From<String> for ScalableArc<str> {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl Default for ScalableArc<str> {
    fn default() -> Self {
        "".into()
    }
}
