//! Which object do the threads wait for? A shop with a count of visits, a journal and a stock, of
//! which one is badly built.
//!
//!     cargo run --release -p manycore --example hottest

use manycore::cluster::Adaptive;
use manycore::lock::TicketLock;
use manycore::oplog::{Commuting, Op};
use manycore::profile;
use std::thread;
use std::time::Duration;

struct Visit;

impl Op<u64> for Visit {
    fn apply(self, visits: &mut u64) {
        *visits += 1;
    }
}

fn main() {
    let visits = Adaptive::<u64, Commuting<Visit>>::new(0);
    let journal = TicketLock::new(Vec::new());
    let stock = TicketLock::new(1_000);
    let _names = (
        profile::name(&visits, "visits"),
        profile::name(&journal, "journal"),
        profile::name(&stock, "stock"),
    );

    profile::start();
    thread::scope(|scope| {
        for customer in 0..4 {
            let (visits, journal, stock) = (&visits, &journal, &stock);
            scope.spawn(move || {
                for order in 0..200 {
                    visits.update(Visit);
                    *stock.lock() -= 1;
                    let mut journal = journal.lock();
                    journal.push((customer, order));
                    if order % 20 == 0 {
                        thread::sleep(Duration::from_millis(1)); // writes it to a file
                    }
                }
            });
        }
    });
    profile::stop();

    let profile = profile::read();
    println!("{profile}");
    let hottest = &profile.hottest(1)[0];
    assert_eq!(hottest.name, Some("journal"));
    println!("fix first: the journal, wanted by {}", hottest.call_sites[0].location.unwrap());
    assert_eq!((*visits.read(), *stock.lock()), (800, 200));
}
