//! Guesses which pages will be read next.

/// The position of a sequential reader. It sees only pages that are read from the source.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// The page after the last page read.
    next: u64,
    /// The number of pages announced ahead. Doubles while the reads stay in order.
    window: u64,
    /// The first page that was not announced yet.
    announced: u64,
}

impl Stream {
    /// Notes a read, and returns the pages to announce: the first and the count.
    ///
    /// Announces the next window while half of the last one is left, so that the source has time.
    pub(super) fn note(&mut self, page: u64, most: u64) -> Option<(u64, u64)> {
        if page != self.next || page == 0 && self.window > 0 {
            *self = Self { next: page.saturating_add(1), window: 0, announced: 0 };
            return None;
        }
        self.next = page.saturating_add(1);
        self.window = self.window.saturating_mul(2).clamp(1, most.max(1)).min(most);
        let first = self.announced.max(self.next);
        let end = self.next.saturating_add(self.window);
        if self.window == 0 || first - self.next > self.window / 2 || first >= end {
            return None;
        }
        self.announced = end;
        Some((first, end - first))
    }
}

#[cfg(all(test, not(manycore_loom)))]
mod tests {
    use super::Stream;

    #[test]
    fn window_without_a_limit_ends_at_the_last_number() {
        let mut stream = Stream::default();
        (0..100).for_each(|page| _ = stream.note(page, u64::MAX));
        assert_eq!((stream.window, stream.announced), (u64::MAX, u64::MAX));
    }

    #[test]
    fn pages_in_order_are_announced_once_and_ever_farther_ahead() {
        let (mut stream, mut announced, mut calls) = (Stream::default(), 0, 0);
        for page in 0..100 {
            assert!(page == 0 || announced > page, "{page} was not announced");
            if let Some((first, pages)) = stream.note(page, 8) {
                assert!(pages > 0 && first == announced.max(page + 1), "{first} after {announced}");
                assert!(first + pages <= page + 1 + 8, "beyond the most");
                (announced, calls) = (first + pages, calls + 1);
            }
        }
        assert!(calls < 30, "{calls} calls for 100 pages");
    }

    #[test]
    fn jumps_and_a_policy_of_zero_announce_nothing() {
        let mut stream = Stream::default();
        stream.note(0, 8);
        for page in [7, 3, 99, 1 << 60, u64::MAX, 5] {
            assert_eq!(stream.note(page, 8), None, "{page}");
        }
        assert_eq!(stream.note(6, 8), Some((7, 1)), "two in order are a stream");
        let mut stream = Stream::default();
        assert!((0..50).all(|page| stream.note(page, 0).is_none()));
    }
}
