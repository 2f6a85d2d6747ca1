//! The layers of a view, and how they are joined. Law private_pages.F5.

use super::frame::Frame;
use super::layer::Layer;
use crate::config::LAYER_RATIO;
use crate::section::Section;
use std::sync::Arc;

/// The layers of a view.
pub(super) struct Chain<K, P> {
    /// The layer in which the view writes.
    pub(super) top: Arc<Layer<K, P>>,
    /// Frozen layers, the youngest first.
    pub(super) below: Vec<Arc<Layer<K, P>>>,
}

/// Frozen layers, the youngest first.
type Below<K, P> = Vec<Arc<Layer<K, P>>>;

impl<K, P> Chain<K, P> {
    /// Makes a chain with a new layer on top.
    pub(super) fn new(below: Below<K, P>) -> Self {
        Self { top: Arc::new(Layer::new(false)), below }
    }

    /// Returns the key's frame in the layers below the top.
    #[inline]
    pub(super) fn find_below<'s>(
        &'s self,
        hash: u64,
        key: &K,
        section: &'s Section<'_>,
    ) -> Option<&'s Frame<K, P>>
    where
        K: Eq,
    {
        self.below.iter().find_map(|layer| layer.get(hash, key, section))
    }

    pub(super) fn layers(&self) -> impl Iterator<Item = &Arc<Layer<K, P>>> {
        std::iter::once(&self.top).chain(&self.below)
    }
}

/// Layers that a view has given up. Dropped when no thread reaches them through that view
/// (private_pages.F5).
pub(super) struct GivenUp<K, P>(pub(super) Vec<Arc<Layer<K, P>>>);

impl<K, P> Drop for GivenUp<K, P> {
    fn drop(&mut self) {
        self.0.iter().for_each(|layer| layer.drop_view());
    }
}

/// Returns the layers after joining, or `None` if there is nothing to join. The caller is the view
/// that has them, and holds its lock for forks. The changes to the layers are not visible.
pub(super) fn joined<K, P>(below: &Below<K, P>, section: &Section<'_>) -> Option<Below<K, P>>
where
    K: Eq + Send + Sync,
    P: Send + Sync,
{
    let mut next = Vec::with_capacity(below.len());
    for layer in below {
        let mut layer = Arc::clone(layer);
        while let Some(both) = next.last().and_then(|younger| join(younger, &layer, section)) {
            next.pop();
            layer = both;
        }
        next.push(layer);
    }
    (next.len() < below.len()).then_some(next)
}

/// Returns one layer with the pages of both, if they should be joined (private_pages.F5).
fn join<K, P>(
    younger: &Arc<Layer<K, P>>,
    older: &Arc<Layer<K, P>>,
    section: &Section<'_>,
) -> Option<Arc<Layer<K, P>>>
where
    K: Eq + Send + Sync,
    P: Send + Sync,
{
    let is_small = younger.len() <= older.len();
    if older.is_sole() && (is_small || !younger.is_sole()) {
        older.take_from_above(younger, section);
        return Some(Arc::clone(older));
    }
    if !older.is_sole() && older.len() > LAYER_RATIO * younger.len() {
        return None;
    }
    if younger.is_sole() {
        younger.take_from_below(older);
        return Some(Arc::clone(younger));
    }
    let both = Layer::new(true);
    both.take_from_below(younger);
    both.take_from_below(older);
    Some(Arc::new(both))
}
