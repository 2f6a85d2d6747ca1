//! Counted references as they are commonly used.

use std::{hint::black_box, rc::Rc, sync::Arc};

use arc_swap::ArcSwap;

use super::{CountedHandle, CountedImpl, Value};

/// The baseline: the only thread makes its own reference to a value of its own. The value given is
/// kept for its end.
pub(super) struct Unshared(Value);

impl CountedImpl for Unshared {
    type Handle<'a> = Rc<u64>;

    fn new(value: Value) -> Self {
        Self(value)
    }

    fn handle(&self) -> Rc<u64> {
        Rc::new(self.0.word)
    }
}

impl CountedHandle for Rc<u64> {
    #[inline]
    fn pair(&mut self) -> u64 {
        **black_box(&Rc::clone(self))
    }
}

macro_rules! counted_reference {
    ($(#[$doc:meta])* $type:ident, $($path:tt)*) => {
        $(#[$doc])*
        pub(super) struct $type($($path)*<Value>);

        impl CountedImpl for $type {
            type Handle<'a> = $($path)*<Value>;

            fn new(value: Value) -> Self {
                Self($($path)*::new(value))
            }

            fn handle(&self) -> Self::Handle<'_> {
                self.0.clone()
            }
        }

        impl CountedHandle for $($path)*<Value> {
            #[inline]
            fn pair(&mut self) -> u64 {
                black_box(&self.clone()).word
            }
        }
    };
}

counted_reference!(
    /// std's.
    StdArc,
    Arc
);
counted_reference!(
    /// triomphe's.
    Triomphe,
    triomphe::Arc
);

/// arc-swap's, of which a thread borrows what is there now.
pub(super) struct Swapped(ArcSwap<Value>);

impl CountedImpl for Swapped {
    type Handle<'a> = &'a ArcSwap<Value>;

    fn new(value: Value) -> Self {
        Self(ArcSwap::from_pointee(value))
    }

    fn handle(&self) -> &ArcSwap<Value> {
        &self.0
    }
}

impl CountedHandle for &ArcSwap<Value> {
    #[inline]
    fn pair(&mut self) -> u64 {
        black_box(&self.load()).word
    }
}
