// manycore for C++17 and later: RAII for the headers of C, in namespace manycore.
//
//     manycore::counter requests;
//     manycore::map<std::string, user> users;
//
//     requests.add(1);
//     users.put("ann", std::make_unique<user>(40));
//     manycore::section section(users.domain());
//     if (const user *ann = users.get("ann"))     // valid as long as the section
//         use(*ann);
//
// An object owns its handle and frees it in its destructor; no thread may use it any more then. Any
// thread may call the functions. A call that fails because of its arguments throws
// std::system_error. What is absent is a null pointer, an empty std::optional or false. If a
// constructor or a copy of the program's throws, nothing has changed. An exception must not leave a
// hash, an equality, a destructor or an update: it ends the process.
//
// For objects that are freed when no section can hold them, rcu.hpp has the names of C++26.
#ifndef MANYCORE_MANYCORE_HPP
#define MANYCORE_MANYCORE_HPP

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "cache.h"
#include "counter.h"
#include "deferred.h"
#include "ids.h"
#include "manycore.h"
#include "map.h"
#include "mappings.h"
#include "pages.h"
#include "queue.h"
#include "trace.h"

namespace manycore {

namespace detail {

// Throws a negative errno as an exception.
inline int check(int result)
{
	if (result < 0)
		throw std::system_error(-result, std::generic_category(), "manycore");
	return result;
}

// Frees a C handle.
template <auto Free>
struct freed_by {
	template <class T>
	void operator()(T *handle) const noexcept
	{
		Free(handle);
	}
};

template <class T, auto Free>
using handle = std::unique_ptr<T, freed_by<Free>>;

// Wraps a call-back that runs only in the caller's thread, during the call. Keeps its exception, to
// be thrown when the C function has returned.
template <class F>
struct guarded {
	F &function;
	std::exception_ptr thrown;

	template <class... Arguments>
	void operator()(Arguments &&...arguments) noexcept
	{
		if (thrown)
			return;
		try {
			function(std::forward<Arguments>(arguments)...);
		} catch (...) {
			thrown = std::current_exception();
		}
	}
	void rethrow()
	{
		if (thrown)
			std::rethrow_exception(thrown);
	}
};

inline std::uint64_t nanoseconds(std::chrono::nanoseconds time) noexcept
{
	return time.count() <= 0 ? 0 : static_cast<std::uint64_t>(time.count());
}

} // namespace detail

// A domain of the program's own (mc_domain_new). When it is destroyed, no section may be open, and
// no object of it may be left; otherwise the process ends with a message.
class domain {
public:
	explicit domain(const mc_domain_options &options = MC_DOMAIN_OPTIONS_INIT)
	{
		detail::check(mc_domain_new(&handle_, &options));
	}
	domain(const domain &) = delete;
	domain &operator=(const domain &) = delete;
	~domain()
	{
		if (mc_domain_free(handle_) != 0)
			mc_misuse_("a domain is destroyed that is in use");
	}

	// Wait for the open sections, or for the scheduled call-backs.
	void synchronize() { detail::check(mc_synchronize(handle_)); }
	void barrier() { detail::check(mc_barrier(handle_)); }
	void collect() { detail::check(mc_collect(handle_)); }

	const mc_domain *native_handle() const noexcept { return handle_; }
	operator const mc_domain *() const noexcept { return handle_; }

private:
	const mc_domain *handle_ = nullptr;
};

// An open section of a domain, by default of the default domain. It stays with its thread.
class section {
public:
	explicit section(const mc_domain *domain = mc_domain_default()) noexcept : domain_(domain)
	{
		mc_enter(domain_);
	}
	section(const section &) = delete;
	section &operator=(const section &) = delete;
	~section() { mc_leave(domain_); }

	// Like mc_protect: loads a link in a bounded domain.
	template <class T>
	T *protect(const std::atomic<T *> &link) const noexcept
	{
		T *found;

		do
			found = link.load(std::memory_order_acquire);
		while (!mc_is_protected_(domain_));
		return found;
	}

private:
	const mc_domain *domain_;
};

// mc_counter. Constant-initialized, so a static counter is ready before any constructor runs.
class counter {
public:
	constexpr counter() noexcept = default;
	counter(const counter &) = delete;
	counter &operator=(const counter &) = delete;
	~counter() { mc_counter_destroy(&counter_); }

	void add(std::int64_t n) noexcept { mc_counter_add(&counter_, n); }
	counter &operator++() noexcept
	{
		add(1);
		return *this;
	}
	counter &operator--() noexcept
	{
		add(-1);
		return *this;
	}
	std::int64_t sum() const noexcept { return mc_counter_sum(&counter_); }
	std::int64_t take() noexcept { return mc_counter_take(&counter_); }
	bool is_hot() const noexcept { return mc_counter_is_hot(&counter_) != 0; }
	bool promote() noexcept { return mc_counter_promote(&counter_) == 0; }
	void demote() noexcept { mc_counter_demote(&counter_); }

private:
	mutable mc_counter counter_ = MC_COUNTER_INIT;
};

// The counts of a histogram at one time.
class snapshot {
public:
	explicit snapshot(mc_snapshot *handle) noexcept : handle_(handle) {}

	std::uint64_t count() const noexcept { return mc_snapshot_count(handle_.get()); }
	bool empty() const noexcept { return count() == 0; }
	double sum() const noexcept { return mc_snapshot_sum(handle_.get()); }
	// Empty if nothing was counted. Throws if q is not between 0 and 1.
	std::optional<std::uint64_t> quantile(double q) const
	{
		std::uint64_t value;
		int result = mc_snapshot_quantile(handle_.get(), q, &value);

		if (result == -ENOENT)
			return std::nullopt;
		detail::check(result);
		return value;
	}
	std::uint64_t count_up_to(std::uint64_t value) const noexcept
	{
		return mc_snapshot_count_up_to(handle_.get(), value);
	}
	void merge(const snapshot &other)
	{
		detail::check(mc_snapshot_merge(handle_.get(), other.handle_.get()));
	}

private:
	detail::handle<mc_snapshot, mc_snapshot_free> handle_;
};

class histogram {
public:
	histogram()
	{
		mc_histogram *made;

		detail::check(mc_histogram_new(&made));
		handle_.reset(made);
	}

	void record(std::uint64_t value, std::uint64_t times = 1) noexcept
	{
		mc_histogram_record(handle_.get(), value, times);
	}
	snapshot read() const { return taken_by(mc_histogram_read); }
	snapshot take() { return taken_by(mc_histogram_take); }

private:
	snapshot taken_by(int (*take)(mc_histogram *, mc_snapshot **)) const
	{
		mc_snapshot *made;

		detail::check(take(handle_.get(), &made));
		return snapshot(made);
	}

	detail::handle<mc_histogram, mc_histogram_free> handle_;
};

// Objects by number. Look-ups happen in a section of the space's domain.
template <class T>
class id_space {
public:
	explicit id_space(const mc_domain *domain = mc_domain_default()) : domain_(domain)
	{
		mc_ids *made;

		detail::check(mc_ids_new(&made, domain, &id_space::destroy));
		handle_.reset(made);
	}

	const mc_domain *domain() const noexcept { return domain_; }
	// Returns the number of the object, which the space now owns. Throws if no numbers are left.
	std::uint64_t insert(std::unique_ptr<T> object)
	{
		std::uint64_t id = mc_ids_insert(handle_.get(), object.get());

		if (id == 0)
			detail::check(object ? -ENOSPC : -EINVAL);
		object.release();
		return id;
	}
	template <class... Arguments>
	std::uint64_t emplace(Arguments &&...arguments)
	{
		return insert(std::make_unique<T>(std::forward<Arguments>(arguments)...));
	}
	// Returns null if there is none. Otherwise valid until the calling thread closes its section.
	T *get(std::uint64_t id) const noexcept
	{
		return static_cast<T *>(mc_ids_get(handle_.get(), id));
	}
	bool remove(std::uint64_t id) noexcept { return mc_ids_remove(handle_.get(), id) == 0; }
	std::size_t size() const noexcept { return mc_ids_length(handle_.get()); }
	// Calls f(number, object) for each object.
	template <class F>
	void for_each(F &&f) const
	{
		detail::guarded<F> guarded{f, nullptr};

		mc_ids_for_each(handle_.get(), &id_space::template visit<F>, &guarded);
		guarded.rethrow();
	}

private:
	static void destroy(void *object) noexcept { delete static_cast<T *>(object); }
	template <class F>
	static int visit(std::uint64_t id, void *object, void *argument) noexcept
	{
		auto &guarded = *static_cast<detail::guarded<F> *>(argument);

		guarded(id, *static_cast<T *>(object));
		return guarded.thrown != nullptr;
	}

	detail::handle<mc_ids, mc_ids_free> handle_;
	const mc_domain *domain_;
};

// A hash map of objects. Look-ups happen in a section of the map's domain. Hash and Equal have no
// state. Any thread destroys keys and objects, after their grace period.
template <class Key, class T, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>>
class map {
	static_assert(std::is_empty<Hash>::value && std::is_empty<Equal>::value, "without state");

public:
	explicit map(const mc_domain *domain = mc_domain_default()) : domain_(domain)
	{
		mc_map *made;

		detail::check(mc_map_new(&made, domain, &operations));
		handle_.reset(made);
	}

	const mc_domain *domain() const noexcept { return domain_; }
	// Returns null if it is not there. Otherwise valid until the calling thread closes its section.
	T *get(const Key &key) const noexcept
	{
		auto *found = static_cast<entry *>(mc_map_get(handle_.get(), &key));

		return found ? found->object.get() : nullptr;
	}
	// Replaces an old object. Returns true if there was one.
	bool put(Key key, std::unique_ptr<T> object)
	{
		auto made = entry::make(std::move(key), std::move(object));
		int result = detail::check(mc_map_put(handle_.get(), &made->key, made.get()));

		made.release();
		return result == 1;
	}
	// Puts the object in unless there is one. Returns true if it was put in.
	bool add(Key key, std::unique_ptr<T> object)
	{
		auto made = entry::make(std::move(key), std::move(object));
		int result = mc_map_add(handle_.get(), &made->key, made.get());

		if (result == -EEXIST)
			return false;
		detail::check(result);
		made.release();
		return true;
	}
	template <class... Arguments>
	bool emplace(Key key, Arguments &&...arguments)
	{
		return add(std::move(key), std::make_unique<T>(std::forward<Arguments>(arguments)...));
	}
	// Returns true if it was there.
	bool remove(const Key &key) noexcept { return mc_map_remove(handle_.get(), &key) == 0; }
	std::size_t size() const noexcept { return mc_map_length(handle_.get()); }
	// Calls f(key, object) for each object.
	template <class F>
	void for_each(F &&f) const
	{
		detail::guarded<F> guarded{f, nullptr};

		mc_map_for_each(handle_.get(), &map::template visit<F>, &guarded);
		guarded.rethrow();
	}

private:
	struct entry {
		Key key;
		std::unique_ptr<T> object;

		static std::unique_ptr<entry> make(Key &&key, std::unique_ptr<T> object)
		{
			if (!object)
				detail::check(-EINVAL);
			return std::unique_ptr<entry>(new entry{std::move(key), std::move(object)});
		}
	};

	static std::uint64_t hash(const void *key, void *) noexcept
	{
		return Hash()(*static_cast<const Key *>(key));
	}
	static int equal(const void *one, const void *other, void *) noexcept
	{
		return Equal()(*static_cast<const Key *>(one), *static_cast<const Key *>(other));
	}
	static void destroy(void *, void *value, void *) noexcept { delete static_cast<entry *>(value); }
	template <class F>
	static int visit(const void *key, void *value, void *argument) noexcept
	{
		auto &guarded = *static_cast<detail::guarded<F> *>(argument);

		guarded(*static_cast<const Key *>(key), *static_cast<entry *>(value)->object);
		return guarded.thrown != nullptr;
	}

	static constexpr mc_map_operations operations = {
		sizeof(mc_map_operations), &map::hash, &map::equal, &map::destroy, nullptr
	};

	detail::handle<mc_map, mc_map_free> handle_;
	const mc_domain *domain_;
};

// Pages of a pool. The destructor gives them back, so the pool must outlive them.
class pages {
public:
	pages() noexcept = default;
	pages(pages &&other) noexcept
	    : pool_(other.pool_), first_(std::exchange(other.first_, nullptr)), count_(other.count_)
	{
	}
	pages &operator=(pages &&other) noexcept
	{
		std::swap(pool_, other.pool_);
		std::swap(first_, other.first_);
		std::swap(count_, other.count_);
		return *this;
	}
	~pages() { mc_pages_free(pool_, first_, count_); }

	void *data() const noexcept { return first_; }
	std::size_t size() const noexcept { return first_ ? count_ * MC_PAGE_BYTES : 0; }
	explicit operator bool() const noexcept { return first_ != nullptr; }
	// Returns the position in the pool, in pages.
	std::size_t index() const noexcept
	{
		return static_cast<std::size_t>(mc_page_pool_index(pool_, first_));
	}
	// Releases the pages to the caller, for mc_pages_free.
	void *release() noexcept { return std::exchange(first_, nullptr); }

private:
	friend class page_pool;
	pages(mc_page_pool *pool, void *first, std::size_t count) noexcept
	    : pool_(pool), first_(first), count_(count)
	{
	}

	mc_page_pool *pool_ = nullptr;
	void *first_ = nullptr;
	std::size_t count_ = 0;
};

// Pages of memory without a system call for each. When the pool is destroyed, no page may be in
// use; otherwise the process ends with a message.
class page_pool {
public:
	explicit page_pool(
	    std::uint32_t pages, const mc_page_pool_options &options = MC_PAGE_POOL_OPTIONS_INIT)
	{
		detail::check(mc_page_pool_new(&handle_, pages, &options));
	}
	page_pool(const page_pool &) = delete;
	page_pool &operator=(const page_pool &) = delete;
	~page_pool()
	{
		if (mc_page_pool_free(handle_) != 0)
			mc_misuse_("a pool is destroyed of which pages are in use");
	}

	// Returns an empty object if not enough are left.
	pages alloc(std::size_t count) noexcept
	{
		return pages(handle_, mc_pages_alloc(handle_, count), count);
	}
	pages alloc_zeroed(std::size_t count) noexcept
	{
		return pages(handle_, mc_pages_alloc_zeroed(handle_, count), count);
	}
	pages alloc_aligned(std::size_t count, std::size_t alignment) noexcept
	{
		return pages(handle_, mc_pages_alloc_aligned(handle_, count, alignment), count);
	}
	std::size_t idle() const noexcept { return mc_page_pool_idle(handle_); }
	std::size_t resident() const noexcept { return mc_page_pool_resident(handle_); }
	std::size_t trim() noexcept { return mc_page_pool_trim(handle_); }
	mc_page_pool *native_handle() const noexcept { return handle_; }

private:
	mc_page_pool *handle_ = nullptr;
};

// Pages that are lent on and revoked. Spaces are numbers, as in C.
class mappings {
public:
	explicit mappings(std::uint32_t frames, const mc_domain *domain = mc_domain_default(),
	    const mc_mappings_options &options = MC_MAPPINGS_OPTIONS_INIT)
	    : domain_(domain)
	{
		mc_mappings *made;

		detail::check(mc_mappings_new(&made, domain, frames, &options));
		handle_.reset(made);
	}

	const mc_domain *domain() const noexcept { return domain_; }
	std::uint64_t make_space(std::size_t pages)
	{
		std::uint64_t space;

		detail::check(mc_space_new(handle_.get(), pages, &space));
		return space;
	}
	// Returns how many mappings were removed, here and below.
	std::size_t end_space(std::uint64_t space) { return count(mc_space_end(handle_.get(), space)); }
	// Returns null if the space has ended.
	void *base(std::uint64_t space) const noexcept { return mc_space_base(handle_.get(), space); }
	void *grant(std::uint64_t space, std::size_t pages, int rights)
	{
		void *at;

		detail::check(mc_mappings_grant(handle_.get(), space, pages, rights, &at));
		return at;
	}
	// Maps at to_at, or anywhere if to_at is null.
	void *alias(std::uint64_t from, const void *at, std::size_t pages, std::uint64_t to, int rights,
	    void *to_at = nullptr)
	{
		detail::check(mc_mappings_alias(handle_.get(), from, at, pages, to, &to_at, rights));
		return to_at;
	}
	std::size_t revoke(std::uint64_t space, const void *at, std::size_t pages)
	{
		return count(mc_mappings_revoke(handle_.get(), space, at, pages));
	}
	std::size_t unmap(std::uint64_t space, const void *at, std::size_t pages)
	{
		return count(mc_mappings_unmap(handle_.get(), space, at, pages));
	}
	std::size_t restrict_to(std::uint64_t space, const void *at, std::size_t pages, int rights)
	{
		return count(mc_mappings_restrict(handle_.get(), space, at, pages, rights));
	}
	// Valid until the calling thread closes its section. Empty if it is not mapped.
	std::optional<mc_mapping> resolve(std::uint64_t space, const void *at) const noexcept
	{
		mc_mapping found;

		if (mc_mappings_resolve(handle_.get(), space, at, &found) != 0)
			return std::nullopt;
		return found;
	}
	std::size_t tick() { return count(mc_mappings_tick(handle_.get())); }
	std::size_t flush() { return count(mc_mappings_flush(handle_.get())); }
	std::size_t pending() const noexcept { return mc_mappings_pending(handle_.get()); }
	std::size_t free_frames() const noexcept { return mc_mappings_free_frames(handle_.get()); }
	// Returns the memory file. Throws if there is no memory.
	int file() const { return detail::check(mc_mappings_fd(handle_.get())); }

private:
	static std::size_t count(std::ptrdiff_t result)
	{
		if (result < 0)
			detail::check(static_cast<int>(result));
		return static_cast<std::size_t>(result);
	}

	detail::handle<mc_mappings, mc_mappings_free> handle_;
	const mc_domain *domain_;
};

// A queue of events in the order in which they were sent, across all threads.
template <class T>
class event_queue {
public:
	explicit event_queue(const mc_queue_options &options = MC_QUEUE_OPTIONS_INIT)
	{
		mc_queue *made;

		detail::check(mc_queue_new(&made, &options));
		handle_.reset(made);
	}
	event_queue(event_queue &&) = default;
	event_queue &operator=(event_queue &&) = delete;
	~event_queue()
	{
		void *event;

		while (handle_ && mc_queue_receive(handle_.get(), &event, 0) == 0)
			delete static_cast<T *>(event);
	}

	// Waits while the queue is full. Returns false if it is closed; the caller then keeps the event.
	bool send(std::unique_ptr<T> &&event) { return send_for(std::move(event), MC_FOREVER); }
	bool try_send(std::unique_ptr<T> &&event) { return send_for(std::move(event), 0); }
	template <class Rep, class Period>
	bool try_send_for(std::unique_ptr<T> &&event, std::chrono::duration<Rep, Period> time)
	{
		return send_for(std::move(event), detail::nanoseconds(time));
	}
	template <class... Arguments>
	bool emplace(Arguments &&...arguments)
	{
		return send(std::make_unique<T>(std::forward<Arguments>(arguments)...));
	}

	// Waits for an event. Returns null if the queue is closed and empty.
	std::unique_ptr<T> receive() { return receive_for(MC_FOREVER); }
	// Returns null if there is none.
	std::unique_ptr<T> try_receive() { return receive_for(0); }
	template <class Rep, class Period>
	std::unique_ptr<T> try_receive_for(std::chrono::duration<Rep, Period> time)
	{
		return receive_for(detail::nanoseconds(time));
	}
	// Calls f(std::unique_ptr<T>) for the events that are there. Returns how many. If f throws, the
	// remaining events are destroyed.
	template <class F>
	std::size_t receive_all(F &&f)
	{
		struct batch {
			void *events[64];
			std::size_t count = 0, next = 0;

			~batch()
			{
				while (next < count)
					delete static_cast<T *>(events[next++]);
			}
		};
		std::size_t all = 0;

		for (;;) {
			batch taken;

			taken.count = mc_queue_receive_many(handle_.get(), taken.events, 64);
			if (taken.count == 0)
				return all;
			all += taken.count;
			while (taken.next < taken.count) {
				std::unique_ptr<T> event(static_cast<T *>(taken.events[taken.next++]));

				f(std::move(event));
			}
		}
	}
	bool close() noexcept { return mc_queue_close(handle_.get()) != 0; }
	std::size_t size() const noexcept { return mc_queue_length(handle_.get()); }

private:
	bool send_for(std::unique_ptr<T> &&event, std::uint64_t time)
	{
		if (mc_queue_send(handle_.get(), event.get(), time) != 0)
			return false;
		event.release();
		return true;
	}
	std::unique_ptr<T> receive_for(std::uint64_t time)
	{
		void *event = nullptr;

		mc_queue_receive(handle_.get(), &event, time);
		return std::unique_ptr<T>(static_cast<T *>(event));
	}

	detail::handle<mc_queue, mc_queue_free> handle_;
};

// A cache of bytes by bytes, in bounded memory.
class cache {
public:
	explicit cache(const mc_cache_options &options)
	{
		mc_cache *made;

		detail::check(mc_cache_new(&made, &options));
		handle_.reset(made);
	}

	// A time to live needs MC_CACHE_TIMES in the options, or times of the cache's own.
	void put(std::string_view key, std::string_view value, std::chrono::milliseconds time = {})
	{
		detail::check(mc_cache_put(handle_.get(), key.data(), key.size(), value.data(), value.size(),
		    static_cast<std::uint64_t>(time.count())));
	}
	std::optional<std::string> get(std::string_view key) const
	{
		std::string value;

		if (!visit(key, [&value](std::string_view found) { value = found; }))
			return std::nullopt;
		return value;
	}
	// Calls f(std::string_view), valid during the call. Returns true if the key is there.
	template <class F>
	bool visit(std::string_view key, F &&f) const
	{
		detail::guarded<F> guarded{f, nullptr};
		int result = mc_cache_visit(handle_.get(), key.data(), key.size(), &cache::call<F>, &guarded);

		guarded.rethrow();
		return result == 0;
	}
	// Returns the value, after load(key) if it is not there. If several threads want the same key, one
	// loads and the others wait. An exception of load is thrown by its own call; the other calls throw
	// ECANCELED.
	template <class Load>
	std::string get_or_load(std::string_view key, Load &&load)
	{
		loading<Load> context{load, {}, nullptr};
		int result = mc_cache_get_or_load(handle_.get(), key.data(), key.size(),
		    &loading<Load>::make, &loading<Load>::keep, &context);

		if (context.thrown)
			std::rethrow_exception(context.thrown);
		detail::check(result);
		return std::move(context.value);
	}
	bool remove(std::string_view key) noexcept
	{
		return mc_cache_remove(handle_.get(), key.data(), key.size()) == 0;
	}
	void clear() noexcept { mc_cache_clear(handle_.get()); }
	void set_capacity(std::uint64_t bytes)
	{
		detail::check(mc_cache_set_capacity(handle_.get(), bytes));
	}
	struct mc_cache_stats stats() const
	{
		struct mc_cache_stats stats = MC_CACHE_STATS_INIT;

		detail::check(::mc_cache_stats(handle_.get(), &stats));
		return stats;
	}

private:
	template <class F>
	static void call(const void *value, std::size_t length, void *argument) noexcept
	{
		auto &guarded = *static_cast<detail::guarded<F> *>(argument);

		guarded(std::string_view(static_cast<const char *>(value), length));
	}

	template <class Load>
	struct loading {
		Load &load;
		std::string value;
		std::exception_ptr thrown;

		static int make(mc_loading *into, const void *key, std::size_t length, void *argument) noexcept
		{
			auto &context = *static_cast<loading *>(argument);

			try {
				const std::string made =
				    context.load(std::string_view(static_cast<const char *>(key), length));
				mc_loaded(into, made.data(), made.size());
				return 0;
			} catch (...) {
				context.thrown = std::current_exception();
				return -ECANCELED;
			}
		}
		static void keep(const void *value, std::size_t length, void *argument) noexcept
		{
			auto &context = *static_cast<loading *>(argument);

			try {
				context.value.assign(static_cast<const char *>(value), length);
			} catch (...) {
				context.thrown = std::current_exception();
			}
		}
	};

	detail::handle<mc_cache, mc_cache_free> handle_;
};

// An object with updates that are logged by thread and applied at the next read.
template <class T>
class deferred {
public:
	template <class... Arguments>
	explicit deferred(std::in_place_t, const mc_deferred_options &options, Arguments &&...arguments)
	    : state_(std::make_unique<T>(std::forward<Arguments>(arguments)...))
	{
		mc_deferred *made;

		detail::check(mc_deferred_new(&made, state_.get(), &options));
		handle_.reset(made);
	}
	explicit deferred(T state = T(), const mc_deferred_options &options = MC_DEFERRED_OPTIONS_INIT)
	    : deferred(std::in_place, options, std::move(state))
	{
	}

	// Appends update(T &), which any thread calls later. It must not throw.
	template <class F>
	void append(F update)
	{
		static_assert(std::is_invocable<F &, T &>::value, "update(state) is well-formed");
		auto made = std::make_unique<F>(std::move(update));

		mc_deferred_append(handle_.get(), &deferred::apply<F>, made.release());
	}
	// Appends an update without a state of its own, which allocates nothing.
	template <void (*Update)(T &)>
	void append() noexcept
	{
		mc_deferred_append(handle_.get(), &deferred::apply_plain<Update>, nullptr);
	}
	// Calls f(T &) under the object's lock, after every update that was appended before. Returns its
	// result.
	template <class F>
	auto read(F &&f) -> std::invoke_result_t<F &, T &>
	{
		using result = std::invoke_result_t<F &, T &>;
		if constexpr (std::is_void<result>::value) {
			read_by(f);
		} else {
			std::optional<result> found;
			auto keep = [&](T &state) { found.emplace(f(state)); };

			read_by(keep);
			return std::move(*found);
		}
	}

private:
	template <class F>
	void read_by(F &f)
	{
		detail::guarded<F> guarded{f, nullptr};

		mc_deferred_read(handle_.get(), &deferred::call<F>, &guarded);
		guarded.rethrow();
	}
	template <class F>
	static void apply(void *state, void *argument) noexcept
	{
		std::unique_ptr<F> update(static_cast<F *>(argument));

		(*update)(*static_cast<T *>(state));
	}
	template <void (*Update)(T &)>
	static void apply_plain(void *state, void *) noexcept
	{
		Update(*static_cast<T *>(state));
	}
	template <class F>
	static void call(void *state, void *argument) noexcept
	{
		(*static_cast<detail::guarded<F> *>(argument))(*static_cast<T *>(state));
	}

	// In this order: the object goes before the state, because it applies what waits.
	std::unique_ptr<T> state_;
	detail::handle<mc_deferred, mc_deferred_free> handle_;
};

// A recording. Events are recorded as long as it lives. A process has one at a time.
class recording {
public:
	explicit recording(const mc_recording_options &options = MC_RECORDING_OPTIONS_INIT)
	{
		mc_recording *made;

		detail::check(mc_recording_start(&made, &options));
		handle_.reset(made);
	}

	void set_classes(std::uint64_t classes) noexcept
	{
		mc_recording_set_classes(handle_.get(), classes);
	}
	void save(const std::string &path)
	{
		detail::check(mc_recording_save(handle_.get(), path.c_str()));
	}
	// Throws the error if a stream could not be written. The destructor does not.
	void stop() { detail::check(mc_recording_stop(handle_.release())); }

private:
	detail::handle<mc_recording, mc_recording_stop> handle_;
};

// A span of a thread: records BEGIN now and END at the end of its life.
class span {
public:
	explicit span(mc_event &begin, mc_event &end, const mc_value *values = nullptr) noexcept
	    : end_(mc_event_is_on(&begin) ? &end : nullptr)
	{
		mc_event_record(&begin, values);
	}
	span(const span &) = delete;
	span &operator=(const span &) = delete;
	~span()
	{
		if (end_ != nullptr)
			mc_event_record(end_, nullptr);
	}

private:
	mc_event *end_;
};

} // namespace manycore

#endif
