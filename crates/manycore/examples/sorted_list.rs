//! A lock-free sorted set on parallel sections (epoch-based reclamation), as a user of the library
//! writes it: a linked list whose nodes are found without a lock and freed when no section can hold
//! them.
//!
//! To remove a node is two steps. The tag in its link *out* says that it is removed; from then on
//! the link never changes. Then the link *to* it is exchanged for its successor, by the remover or
//! by the next thread that passes. Source: M. Michael, "High performance dynamic lock-free hash
//! tables and list-based sets" (SPAA 2002), section 3, after T. Harris (DISC 2001).

use manycore::section::{Atomic, Domain, Owned, Section, Shared};
use std::thread;

/// In the link out of a node: the node is removed.
const REMOVED: usize = 1;

struct Node<K> {
    key: K,
    next: Atomic<Node<K>>,
}

/// A set of keys in a list that is sorted by them.
pub struct SortedList<K> {
    head: Atomic<Node<K>>,
    domain: Domain,
}

/// Where a key is, or would be: `link` leads to `here`, the first node that is not below the key.
struct SearchResult<'s, K> {
    link: &'s Atomic<Node<K>>,
    here: Shared<'s, Node<K>>,
    found: bool,
}

impl<K: Ord + Send + Sync> SortedList<K> {
    /// An empty list whose nodes are freed through a domain of its own.
    pub fn new(domain: Domain) -> Self {
        Self { head: Atomic::null(), domain }
    }

    /// Whether the key is there.
    pub fn contains(&self, key: &K) -> bool {
        let section = self.domain.enter();
        self.find(key, &section).found
    }

    /// Whether the key is new.
    pub fn insert(&self, key: K) -> bool {
        let section = self.domain.enter();
        let mut node = Owned::new(Node { key, next: Atomic::null() });
        loop {
            let at = self.find(&node.key, &section);
            if at.found {
                return false;
            }
            node.next.store(at.here, &section);
            match at.link.compare_exchange(at.here, node, &section) {
                Ok(_) => return true,
                Err(lost) => node = lost.new,
            }
        }
    }

    /// Whether the key was there.
    pub fn remove(&self, key: &K) -> bool {
        let section = self.domain.enter();
        let at = self.find(key, &section);
        let Some(node) = at.here.as_ref().filter(|_| at.found) else {
            return false;
        };
        let next = node.next.fetch_or(REMOVED, &section);
        if next.tag() == REMOVED {
            return false; // another thread removed it since we found it
        }
        if Self::unlink(&at, next, &section).is_none() {
            self.find(key, &section); // which unlinks it, if no thread has yet
        }
        true
    }

    /// Finds the key's position, and unlinks the removed nodes on the way there.
    fn find<'s>(&'s self, key: &K, section: &'s Section<'_>) -> SearchResult<'s, K> {
        'again: loop {
            let mut at =
                SearchResult { link: &self.head, here: self.head.load(section), found: false };
            // `here` never has a tag, so the node that `link` is in was linked when it was loaded.
            while let Some(node) = at.here.as_ref() {
                let next = node.next.load(section);
                if next.tag() == REMOVED {
                    match Self::unlink(&at, next, section) {
                        Some(next) => at.here = next,
                        None => continue 'again,
                    }
                } else if node.key < *key {
                    (at.link, at.here) = (&node.next, next);
                } else {
                    at.found = node.key == *key;
                    return at;
                }
            }
            return at;
        }
    }

    /// Replaces the link to a removed node by its successor, if unchanged, and returns the
    /// successor.
    fn unlink<'s>(
        at: &SearchResult<'s, K>,
        next: Shared<'s, Node<K>>,
        section: &'s Section<'_>,
    ) -> Option<Shared<'s, Node<K>>> {
        // SAFETY: the exchange succeeds only while `link` has no tag and leads to the node, so
        // while both are linked; what comes after a linked node is linked.
        let next = unsafe { next.assume_linked() }.with_tag(0);
        at.link.compare_exchange(at.here, next, section).ok()?;
        // SAFETY: unlinked just now, by us alone; its only link has a tag, which is never removed.
        unsafe { section.retire(at.here) };
        Some(next)
    }
}

impl<K> SortedList<K> {
    /// Takes the first node out. No other thread has access.
    fn pop(&mut self) -> Option<Node<K>> {
        // SAFETY: `&mut self`: no section is open, and a linked node is not retired.
        let node = unsafe { std::mem::take(&mut self.head).into_owned() }?.into_inner();
        Some(node)
    }

    /// The keys, in order.
    pub fn into_keys(mut self) -> Vec<K> {
        let mut keys = Vec::new();
        let removed = |node: &Node<K>, domain: &Domain| {
            node.next.load(&domain.enter()).tag() == REMOVED // not unlinked yet
        };
        while let Some(node) = self.pop() {
            if !removed(&node, &self.domain) {
                keys.push(node.key);
            }
            self.head = node.next;
        }
        keys
    }
}

impl<K> Drop for SortedList<K> {
    fn drop(&mut self) {
        while let Some(node) = self.pop() {
            self.head = node.next;
        }
    }
}

/// Some threads cross out what is no prime, while another asks for one that stays.
fn main() {
    const END: u32 = 2_000;
    let list = SortedList::new(Domain::bounded());
    for number in (2..END).rev() {
        assert!(list.insert(number));
    }
    let list = &list;
    thread::scope(|scope| {
        let cross_out = move |number: u32| {
            scope.spawn(move || {
                let multiples = (number * number..END).step_by(number as usize);
                multiples.filter(|multiple| list.remove(multiple)).count()
            })
        };
        let workers: Vec<_> = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43]
            .map(|prime| (prime, cross_out(prime)))
            .into();
        scope.spawn(move || (0..100).for_each(|_| assert!(list.contains(&1_999))));
        for (prime, worker) in workers {
            println!("{prime:>2} crossed out {:>3} numbers", worker.join().unwrap());
        }
    });
    let primes = (2..END).filter(|number| list.contains(number)).count();
    println!("{primes} primes below {END} are left");
    assert_eq!(primes, 303);
}
