//! The program of the guide's first hour: requests are counted, listed while they are open, and
//! answered from a cache. Orders go to a clerk, and the stock is a number behind a lock.
//!
//!     cargo run --release --example shop

use manycore::collections::{Counter, EventQueue, Registry};
use manycore::lock::TicketLock;
use manycore_cache::Cache;
use std::thread;

const REQUESTS_OF_EACH: usize = 1000;
const STOCK: usize = 300;

static REQUESTS: Counter = Counter::new(0);

fn read_from_disk(article: usize) -> String {
    format!("article {article}")
}

/// Returns false if all is sold.
fn sell(stock: &TicketLock<usize>) -> bool {
    let mut left = stock.lock();
    let sells = *left != 0;
    *left -= usize::from(sells);
    sells
}

fn main() {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let open = Registry::new();
    let articles = Cache::new(100);
    let stock = TicketLock::new(STOCK);
    let (orders, clerk) = EventQueue::channel();
    let file = thread::spawn(move || clerk.iter().count());
    thread::scope(|scope| {
        for worker in 0..workers {
            let (open, articles, stock, orders) = (&open, &articles, &stock, orders.clone());
            scope.spawn(move || {
                for request in 0..REQUESTS_OF_EACH {
                    REQUESTS.add(1);
                    let _request = open.register((worker, request));
                    let article = request % 10;
                    let text = articles.get_or_insert_with(article, || read_from_disk(article));
                    assert!(text.ends_with(&article.to_string()));
                    if request % 10 == 0 && sell(stock) {
                        orders.send((worker, article)).expect("the clerk is there");
                    }
                }
            });
        }
    });
    drop(orders);
    let received = file.join().expect("the clerk does not panic");
    assert_eq!(REQUESTS.sum(), (workers * REQUESTS_OF_EACH) as i64);
    assert_eq!(received, STOCK.min(workers * REQUESTS_OF_EACH / 10));
    assert_eq!((open.len(), articles.len()), (0, 10));
    println!("{} requests, {received} orders, {} left", REQUESTS.sum(), *stock.lock());
}
