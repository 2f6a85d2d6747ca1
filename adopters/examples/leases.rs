//! Leases that end by themselves, under tokio: many tasks take and renew them, and one task ends
//! those that nobody renewed. It sleeps until the next one is due, and is woken for an earlier one.
//!
//!     cargo run --example leases

use manycore::collections::{OwnedTimer, TimerQueue};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until};

/// The timers, and the time that their deadlines count from.
struct Leases {
    timers: Arc<TimerQueue<u32>>,
    begin: Instant,
    earlier: Arc<Notify>,
}

impl Leases {
    fn new() -> Self {
        let earlier = Arc::new(Notify::new());
        let notify = Arc::clone(&earlier);
        // A notice without a task that waits for it is kept for the next one that does.
        let timers = TimerQueue::new().on_earlier(move |_| notify.notify_one());
        Self { timers: Arc::new(timers), begin: Instant::now(), earlier }
    }

    /// The time after this moment, in whole milliseconds: a lease may end up to one early.
    fn after(&self, time: Duration) -> u64 {
        (self.begin.elapsed() + time).as_millis() as u64
    }

    /// A lease may be held by a struct or across an `.await`. Dropping it gives it back.
    fn take(&self, holder: u32, time: Duration) -> OwnedTimer<u32> {
        TimerQueue::insert_owned(&self.timers, self.after(time), holder)
    }

    /// Sends the holders whose leases have ended.
    async fn keep_time(&self, ended: mpsc::UnboundedSender<u32>) {
        loop {
            for (_, holder) in self.timers.advance(self.after(Duration::ZERO)) {
                if ended.send(holder).is_err() {
                    return;
                }
            }
            match self.timers.next_deadline() {
                Some(next) => tokio::select! {
                    () = sleep_until(self.begin + Duration::from_millis(next)) => {}
                    () = self.earlier.notified() => {}
                },
                None => self.earlier.notified().await,
            }
        }
    }
}

#[tokio::main]
async fn main() {
    let leases = Arc::new(Leases::new());
    let (send, mut ended) = mpsc::unbounded_channel();
    let keeper = tokio::spawn({
        let leases = Arc::clone(&leases);
        async move { leases.keep_time(send).await }
    });
    // The timekeeper is about to sleep for an hour when the others come.
    let long = leases.take(0, Duration::from_secs(3600));
    sleep(Duration::from_millis(5)).await;
    let tasks: Vec<_> = (1..=100_u32)
        .map(|holder| {
            let leases = Arc::clone(&leases);
            tokio::spawn(async move {
                let mut lease = leases.take(holder, Duration::from_secs(60));
                for _ in 0..5 {
                    sleep(Duration::from_millis(1)).await;
                    assert!(lease.reset(leases.after(Duration::from_secs(60))));
                }
                if holder % 10 == 0 {
                    // This one falls silent.
                    lease.reset(leases.after(Duration::from_millis(20)));
                    lease.detach();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no task panics");
    }
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(ended.recv().await.expect("the timekeeper runs"));
    }
    silent.sort_unstable();
    println!("ended: {silent:?}");
    assert_eq!(silent, (1..=10).map(|number| number * 10).collect::<Vec<_>>());
    assert_eq!(long.cancel(), Some(0));
    keeper.abort();
}
