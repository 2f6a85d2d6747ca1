//! Negative caching: how long the cache remembers that a source has nothing for a key, or failed.

use crate::builder::{Builder, Expiry};
use std::time::Duration;

/// Returns the function for the time to live of a value: the shorter of `own` and, if the value is
/// negative, `time`.
fn for_negative<K, V>(
    is_negative: impl Fn(&V) -> bool + Send + Sync + 'static,
    time: Duration,
    own: Option<Expiry<K, V>>,
) -> Expiry<K, V>
where
    K: 'static,
    V: 'static,
{
    Box::new(move |key, value| {
        let own = own.as_ref().and_then(|own| own(key, value));
        own.into_iter().chain(is_negative(value).then_some(time)).min()
    })
}

impl<K: 'static, V: 'static, S> Builder<K, Option<V>, S> {
    /// Negative caching: sets the TTL of an entry whose value is `None`, which says that the source
    /// has nothing for its key. The shortest of this and the cache's other times counts.
    ///
    /// ```
    /// use manycore_cache::{BuildError, Cache};
    /// use std::time::Duration;
    ///
    /// let users: Cache<u64, Option<String>> = Cache::builder(1000)
    ///     .time_to_live(Duration::from_secs(600))
    ///     .missing_time_to_live(Duration::from_secs(5))
    ///     .build()?;
    /// assert!(users.get_or_insert_with(7, || None).is_none());
    /// assert!(users.get_or_insert_with(7, || unreachable!("it is known")).is_none());
    /// assert!(users.time_left(&7).unwrap() <= Duration::from_secs(5));
    /// # Ok::<(), BuildError>(())
    /// ```
    #[doc(alias = "negative caching")]
    pub fn missing_time_to_live(mut self, time: Duration) -> Self {
        self.expiry = Some(for_negative(Option::is_none, time, self.expiry.take()));
        self
    }
}

impl<K: 'static, V: 'static, E: 'static, S> Builder<K, Result<V, E>, S> {
    /// Negative caching: sets the TTL of an entry whose value is an error, from a load of
    /// [`get_or_insert_with`](crate::Cache::get_or_insert_with) that returns a `Result`. Until it
    /// ends, requests get the error at once, and the source is left alone. The shortest of this and
    /// the cache's other times counts.
    ///
    /// ```
    /// use manycore_cache::{BuildError, Cache};
    /// use std::time::Duration;
    ///
    /// let numbers: Cache<&str, Result<u32, String>> =
    ///     Cache::builder(1000).error_time_to_live(Duration::from_secs(5)).build()?;
    /// let parse = |text| numbers.get_or_insert_with(text, || Err(format!("what is {text}?")));
    /// assert_eq!(*parse("x"), Err("what is x?".into()));
    /// assert!(numbers.time_left("x").unwrap() <= Duration::from_secs(5));
    /// # Ok::<(), BuildError>(())
    /// ```
    #[doc(alias = "negative caching")]
    pub fn error_time_to_live(mut self, time: Duration) -> Self {
        self.expiry = Some(for_negative(Result::is_err, time, self.expiry.take()));
        self
    }
}
