//! `family!`: generates interface, handle and watcher from one list of methods.
//!
//! Source: the stub compiler of the K42 paper, section 3.1.

/// Generates the interface of a [`Family`](crate::cluster::Family), a handle whose methods go
/// through a [`Swappable`](crate::cluster::Swappable), and the wrapper that watches calls.
///
/// It generates the trait, with `Family` as its supertrait. It also generates the handle, with
/// `new`, the trait's methods, `watch`, and everything that `Swappable` has (the handle
/// dereferences to one). The methods wait while the implementation is exchanged.
///
/// `watch(f)` puts a wrapper around the implementation that passes `f` the name of each method
/// before it is called. `withdraw` removes the wrapper.
///
/// ```
/// use manycore::cluster::Family;
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex, RwLock, atomic::{AtomicU32, Ordering::Relaxed}};
///
/// manycore::family! {
///     /// Sizes of files by number.
///     pub trait Sizes moves Vec<(u32, u64)>;
///     /// Sizes that all threads share.
///     handle SharedSizes;
///     calls {
///         /// The size, if it is known.
///         fn get(&self, file: u32) -> Option<u64>;
///         /// Notes a size.
///         fn put(&self, file: u32, size: u64);
///     }
/// }
///
/// /// For a few files: a list behind a lock.
/// #[derive(Default)]
/// struct Few(Mutex<Vec<(u32, u64)>>);
/// /// For many: a map that readers share.
/// #[derive(Default)]
/// struct Many(RwLock<HashMap<u32, u64>>);
///
/// impl Sizes for Few {
///     fn get(&self, file: u32) -> Option<u64> {
///         self.0.lock().unwrap().iter().find(|(known, _)| *known == file).map(|(_, size)| *size)
///     }
///     fn put(&self, file: u32, size: u64) {
///         let mut files = self.0.lock().unwrap();
///         files.retain(|(known, _)| *known != file);
///         files.push((file, size));
///     }
/// }
/// impl Family for Few {
///     type Part = Vec<(u32, u64)>;
///     fn export(&self, _part: usize) -> Self::Part {
///         self.0.lock().unwrap().clone()
///     }
///     fn import(&self, files: Self::Part) {
///         *self.0.lock().unwrap() = files;
///     }
/// }
/// impl Sizes for Many {
///     fn get(&self, file: u32) -> Option<u64> {
///         self.0.read().unwrap().get(&file).copied()
///     }
///     fn put(&self, file: u32, size: u64) {
///         self.0.write().unwrap().insert(file, size);
///     }
/// }
/// impl Family for Many {
///     type Part = Vec<(u32, u64)>;
///     fn export(&self, _part: usize) -> Self::Part {
///         self.0.read().unwrap().iter().map(|(file, size)| (*file, *size)).collect()
///     }
///     fn import(&self, files: Self::Part) {
///         self.0.write().unwrap().extend(files);
///     }
/// }
///
/// let sizes = SharedSizes::new(Few::default());
/// sizes.put(7, 100);
/// sizes.swap(Arc::new(Many::default())).unwrap();
/// assert_eq!(sizes.get(7), Some(100));
///
/// let calls = Arc::new(AtomicU32::new(0));
/// let watcher = Arc::clone(&calls);
/// sizes.watch(move |_name| { watcher.fetch_add(1, Relaxed); }).unwrap();
/// sizes.get(8);
/// sizes.withdraw().unwrap();
/// sizes.get(9);
/// assert_eq!(calls.load(Relaxed), 1);
/// ```
#[macro_export]
macro_rules! family {
    (
        $(#[$trait_doc:meta])*
        $vis:vis trait $Trait:ident moves $Part:ty;
        $(#[$handle_doc:meta])*
        handle $Handle:ident;
        calls { $(
            $(#[$call_doc:meta])*
            fn $call:ident(&self $(, $arg:ident: $Arg:ty)* $(,)?) $(-> $Ret:ty)?;
        )* }
    ) => {
        $(#[$trait_doc])*
        $vis trait $Trait: $crate::cluster::Family<Part = $Part> {
            $( $(#[$call_doc])* fn $call(&self $(, $arg: $Arg)*) $(-> $Ret)?; )*
        }

        $(#[$handle_doc])*
        #[derive(Debug)]
        $vis struct $Handle($crate::cluster::Swappable<dyn $Trait>);

        #[allow(dead_code, reason = "a user takes what is needed")]
        impl $Handle {
            /// Creates an object with this implementation.
            #[must_use]
            $vis fn new(first: impl $Trait) -> Self {
                Self($crate::cluster::Swappable::new(::std::sync::Arc::new(first)))
            }

            $( $(#[$call_doc])* $vis fn $call(&self $(, $arg: $Arg)*) $(-> $Ret)? {
                self.0.call(|object| object.$call($($arg),*))
            } )*

            /// Passes `watcher` the name of every method before it is called, until `withdraw` or
            /// another wrapper.
            ///
            /// # Errors
            /// As `interpose`.
            $vis fn watch(
                &self,
                watcher: impl Fn(&'static str)
                    + ::std::marker::Send
                    + ::std::marker::Sync
                    + 'static,
            ) -> ::std::result::Result<(), $crate::cluster::SwapFailure> {
                struct Watched {
                    inner: ::std::sync::Arc<dyn $Trait>,
                    watcher: ::std::sync::Arc<
                        dyn Fn(&'static str) + ::std::marker::Send + ::std::marker::Sync,
                    >,
                }
                impl $crate::cluster::Family for Watched {
                    type Part = $Part;
                    fn parts(&self) -> usize {
                        self.inner.parts()
                    }
                    fn export(&self, part: usize) -> $Part {
                        self.inner.export(part)
                    }
                    fn import(&self, part: $Part) {
                        self.inner.import(part)
                    }
                }
                impl $Trait for Watched {
                    $( fn $call(&self $(, $arg: $Arg)*) $(-> $Ret)? {
                        (self.watcher)(::std::stringify!($call));
                        self.inner.$call($($arg),*)
                    } )*
                }
                let watcher: ::std::sync::Arc<
                    dyn Fn(&'static str) + ::std::marker::Send + ::std::marker::Sync,
                > = ::std::sync::Arc::new(watcher);
                self.0.interpose(move |inner| {
                    ::std::sync::Arc::new(Watched {
                        inner,
                        watcher: ::std::sync::Arc::clone(&watcher),
                    })
                })
            }
        }

        impl ::std::ops::Deref for $Handle {
            type Target = $crate::cluster::Swappable<dyn $Trait>;

            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    };
}
