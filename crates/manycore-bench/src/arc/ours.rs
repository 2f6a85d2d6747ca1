//! The library's counted reference.

use std::hint::black_box;

use manycore::collections::ScalableArc;

use super::{CountedHandle, CountedImpl, Value};

impl CountedHandle for ScalableArc<Value> {
    #[inline]
    fn pair(&mut self) -> u64 {
        black_box(&self.clone()).word
    }
}

/// As it comes: cold until threads contend.
pub(super) struct Auto(ScalableArc<Value>);

impl CountedImpl for Auto {
    type Handle<'a> = ScalableArc<Value>;

    fn new(value: Value) -> Self {
        Self(ScalableArc::new(value))
    }

    fn handle(&self) -> ScalableArc<Value> {
        self.0.clone()
    }
}

/// Hot from the start.
pub(super) struct Hot(ScalableArc<Value>);

impl CountedImpl for Hot {
    type Handle<'a> = ScalableArc<Value>;

    fn new(value: Value) -> Self {
        let first = ScalableArc::new(value);
        ScalableArc::promote(&first);
        Self(first)
    }

    fn handle(&self) -> ScalableArc<Value> {
        self.0.clone()
    }
}
