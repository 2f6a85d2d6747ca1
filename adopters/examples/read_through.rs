//! A cache in front of SQLite, in async code: what is asked for often is in memory, what is not is
//! loaded once, however many tasks want it at that moment.
//!
//!     cargo run --example read_through

use manycore_cache::{BuildError, Cache};
use rusqlite::{Connection, OptionalExtension};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::task::{JoinSet, spawn_blocking};

const PRODUCTS: i64 = 1_000;

/// The database: one connection behind a lock, asked on threads that may block.
struct Store {
    connection: Mutex<Connection>,
    queries: AtomicU64,
}

impl Store {
    fn open() -> rusqlite::Result<Self> {
        let mut connection = Connection::open_in_memory()?;
        connection
            .execute("CREATE TABLE product (id INTEGER PRIMARY KEY, name TEXT NOT NULL)", ())?;
        let transaction = connection.transaction()?;
        for id in 0..PRODUCTS {
            transaction
                .execute("INSERT INTO product VALUES (?1, ?2)", (id, format!("product {id}")))?;
        }
        transaction.commit()?;
        Ok(Self { connection: Mutex::new(connection), queries: AtomicU64::new(0) })
    }

    fn with<R>(&self, ask: impl FnOnce(&Connection) -> R) -> R {
        self.queries.fetch_add(1, Ordering::Relaxed);
        ask(&self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn name(&self, id: i64) -> rusqlite::Result<Option<Arc<str>>> {
        self.with(|connection| {
            let mut query = connection.prepare_cached("SELECT name FROM product WHERE id = ?1")?;
            let name = query.query_row([id], |row| row.get::<_, String>(0)).optional()?;
            Ok(name.map(Into::into))
        })
    }

    fn rename(&self, id: i64, name: &str) -> rusqlite::Result<usize> {
        self.with(|connection| {
            connection.execute("UPDATE product SET name = ?1 WHERE id = ?2", (name, id))
        })
    }
}

/// The names of products. A value is an `Option`: that a product is not there is remembered as well,
/// for a shorter time, so that a wrong id does not ask the database again and again.
struct Products {
    store: Arc<Store>,
    names: Cache<i64, Option<Arc<str>>>,
}

impl Products {
    fn new(store: Store) -> Result<Self, BuildError> {
        let names = Cache::builder(500) // entries: half of the products
            .time_to_live(Duration::from_secs(60))
            .missing_time_to_live(Duration::from_secs(5))
            .build()?;
        Ok(Self { store: Arc::new(store), names })
    }

    /// An error of the database reaches every task that waits for this load, and is not kept.
    async fn name(&self, id: i64) -> Result<Option<Arc<str>>, Arc<rusqlite::Error>> {
        let store = Arc::clone(&self.store);
        let load = async move {
            // SQLite blocks: not on a thread of the executor.
            spawn_blocking(move || store.name(id)).await.expect("the query does not panic")
        };
        self.names.try_get_or_insert_async(id, load).await
    }

    /// The database first, then the cache: a load that began before the removal does not put the old
    /// name back.
    async fn rename(&self, id: i64, name: &'static str) -> rusqlite::Result<()> {
        let store = Arc::clone(&self.store);
        let rename = spawn_blocking(move || store.rename(id, name));
        rename.await.expect("the update does not panic")?;
        self.names.remove(&id);
        Ok(())
    }

    fn queries(&self) -> u64 {
        self.store.queries.load(Ordering::Relaxed)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let products = Arc::new(Products::new(Store::open()?)?);

    // Fifty tasks want one product that is not in the cache: one query.
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let products = Arc::clone(&products);
        tasks.spawn(async move { products.name(7).await });
    }
    while let Some(name) = tasks.join_next().await {
        assert_eq!(name??.as_deref(), Some("product 7"));
    }
    assert_eq!(products.queries(), 1);

    // What is not there is asked for once, too.
    assert_eq!(products.name(-1).await?, None);
    assert_eq!(products.name(-1).await?, None);
    assert_eq!(products.queries(), 2);

    // After a change the new name is seen.
    products.rename(7, "renamed").await?;
    assert_eq!(products.name(7).await?.as_deref(), Some("renamed"));

    // A load in which a few products are asked for most of the time.
    let before = products.queries();
    let mut tasks = JoinSet::new();
    for task in 0..8_i64 {
        let products = Arc::clone(&products);
        tasks.spawn(async move {
            for turn in 0..1_000_i64 {
                let id = if turn % 10 == 0 { (turn * 37 + task) % PRODUCTS } else { turn % 20 };
                let name = products.name(id).await.expect("the database answers");
                let expected = if id == 7 { "renamed".into() } else { format!("product {id}") };
                assert_eq!(name.as_deref(), Some(&*expected));
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task?;
    }
    let queries = products.queries() - before;
    println!("8000 requests, {queries} queries; {} names are kept", products.names.len());
    assert!(queries < 1_000 && products.names.len() <= 500);
    Ok(())
}
