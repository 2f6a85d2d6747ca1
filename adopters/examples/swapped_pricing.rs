//! A shop's prices: the rule that makes them is replaced while requests ask for prices, and a table
//! of what was asked for adapts to how it is used.
//!
//!     cargo run --example swapped_pricing

use manycore::{
    cluster::{Adaptive, Family},
    family,
    oplog::{Commuting, Op},
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

family! {
    /// How prices are made. What moves from one rule to the next are the discounts by customer.
    pub trait Pricing moves BTreeMap<u32, u64>;
    /// The rule in use, shared by all threads.
    handle SharedPricing;
    calls {
        /// The price in cents, for a customer.
        fn price(&self, list: u64, customer: u32) -> u64;
        /// Grants a customer so many percent. Returns nothing, so it never waits for an exchange.
        fn grant(&self, customer: u32, percent: u64);
    }
}

/// The list price, less the customer's discount.
#[derive(Default)]
struct Plain {
    discounts: Mutex<BTreeMap<u32, u64>>,
}

/// The same, and everything is ten percent off.
#[derive(Default)]
struct Sale(Plain);

impl Plain {
    fn discount(&self, customer: u32) -> u64 {
        let discounts = self.discounts.lock().unwrap_or_else(PoisonError::into_inner);
        discounts.get(&customer).copied().unwrap_or(0)
    }
}

impl Pricing for Plain {
    fn price(&self, list: u64, customer: u32) -> u64 {
        list - list * self.discount(customer) / 100
    }

    fn grant(&self, customer: u32, percent: u64) {
        let mut discounts = self.discounts.lock().unwrap_or_else(PoisonError::into_inner);
        discounts.insert(customer, percent);
    }
}

impl Pricing for Sale {
    fn price(&self, list: u64, customer: u32) -> u64 {
        self.0.price(list - list / 10, customer)
    }

    fn grant(&self, customer: u32, percent: u64) {
        self.0.grant(customer, percent);
    }
}

/// What moves when one rule replaces another: all discounts, in one part.
impl Family for Plain {
    type Part = BTreeMap<u32, u64>;

    fn export(&self, _part: usize) -> Self::Part {
        self.discounts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn import(&self, discounts: Self::Part) {
        *self.discounts.lock().unwrap_or_else(PoisonError::into_inner) = discounts;
    }
}

impl Family for Sale {
    type Part = BTreeMap<u32, u64>;

    fn export(&self, part: usize) -> Self::Part {
        self.0.export(part)
    }

    fn import(&self, discounts: Self::Part) {
        self.0.import(discounts);
    }
}

/// An update of the table: a product was asked for.
struct Asked(u32);

impl Op<BTreeMap<u32, u64>> for Asked {
    fn apply(self, table: &mut BTreeMap<u32, u64>) {
        *table.entry(self.0).or_default() += 1;
    }
}

const THREADS: u32 = 4;
const SWAPS: usize = 20;

fn main() {
    let pricing = SharedPricing::new(Plain::default());
    // A lock while it suits, logs while threads mostly update it, parallel readers while they mostly
    // read: the object finds out.
    let asked = Adaptive::<BTreeMap<u32, u64>, Commuting<Asked>>::new(BTreeMap::new());
    let (done, requests) = (AtomicBool::new(false), AtomicU64::new(0));

    thread::scope(|scope| {
        for customer in 0..THREADS {
            let (pricing, asked, done, requests) = (&pricing, &asked, &done, &requests);
            scope.spawn(move || {
                // By a thread's own call: every later price has the discount, under each rule.
                pricing.grant(customer, 50);
                let mut product = 0;
                while !done.load(Ordering::Relaxed) {
                    product = (product + 1) % 100;
                    asked.update(Asked(product));
                    let price = pricing.price(1_000, customer);
                    assert!([500, 450].contains(&price), "{price} is the price of no rule");
                    requests.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for swap in 0..SWAPS {
            thread::sleep(Duration::from_millis(10));
            let rule: Arc<dyn Pricing> =
                if swap % 2 == 0 { Arc::new(Sale::default()) } else { Arc::new(Plain::default()) };
            let swapped = pricing.swap(rule).expect("no other thread exchanges rules");
            println!("rule {swap} is in use; calls waited for {:?} at most", swapped.closed_for);
        }
        done.store(true, Ordering::Relaxed);
    });

    // The last rule is the plain one again, with the discounts that were granted before.
    assert_eq!((pricing.price(1_000, 0), pricing.price(1_000, THREADS)), (500, 1_000));
    // No update of the table was lost, whatever modes it was in.
    let table = asked.read();
    assert_eq!(table.values().sum::<u64>(), requests.into_inner());
    println!("{} products were asked for", table.len());
    drop(table);
    let stats = asked.stats();
    println!("{:?}, {} updates logged in {} merges", asked.mode(), stats.applied, stats.merges);
}
