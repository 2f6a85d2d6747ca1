// manycore.hpp: checks what owns what, what throws, and that each object is destroyed once.
#include <manycore/manycore.hpp>
#include <manycore/rcu.hpp>

#include "check.h"

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<long> alive;

struct counted_object {
	int value;

	explicit counted_object(int v) : value(v) { alive++; }
	counted_object(const counted_object &) = delete;
	~counted_object() { alive--; }
};

// Returns true if f throws a system_error of this number.
template <class F>
static bool throws(int number, F &&f)
{
	try {
		f();
	} catch (const std::system_error &error) {
		return error.code().value() == number;
	}
	return false;
}

static void counters()
{
	static manycore::counter counter;
	static_assert(std::is_nothrow_default_constructible<manycore::counter>::value, "constant");
	manycore::histogram histogram;

	++counter;
	--counter;
	counter.add(5);
	CHECK(counter.promote() && counter.is_hot() && counter.sum() == 5);
	counter.demote();
	CHECK(counter.take() == 5 && counter.sum() == 0);
	CHECK(histogram.read().empty() && !histogram.read().quantile(0.5));
	histogram.record(7);
	histogram.record(9, 2);
	manycore::snapshot all = histogram.take(), more = std::move(all);
	histogram.record(1);
	more.merge(histogram.take());
	CHECK(more.count() == 4 && more.quantile(1) == 9 && more.count_up_to(7) == 2);
	CHECK(throws(EINVAL, [&] { more.quantile(2); }));
}

static void maps_and_ids()
{
	manycore::domain domain;
	{
		manycore::map<std::string, counted_object> map(domain);
		manycore::id_space<counted_object> ids(domain);

		CHECK(throws(EINVAL, [&] { map.put("null", nullptr); }));
		CHECK(throws(EINVAL, [&] { ids.insert(nullptr); }));
		CHECK(!map.put("one", std::make_unique<counted_object>(1)));
		CHECK(map.put("one", std::make_unique<counted_object>(2)));
		CHECK(!map.emplace("one", 3) && map.emplace("two", 4) && map.size() == 2);
		CHECK(!map.remove("three") && map.remove("two"));
		domain.barrier();
		CHECK(alive == 1);
		auto id = ids.emplace(5);
		{
			manycore::section section(domain);
			CHECK(map.get("one")->value == 2 && map.get("two") == nullptr);
			CHECK(ids.get(id)->value == 5 && ids.get(id + 1) == nullptr);
			counted_object *object = ids.get(id);
			CHECK(ids.remove(id) && !ids.remove(id) && object->value == 5);
			CHECK(throws(EDEADLK, [&] { domain.barrier(); }));
		}
		int seen = 0;
		map.for_each([&](const std::string &key, counted_object &object) {
			seen += key == "one" && object.value == 2;
		});
		CHECK(seen == 1);
		ids.emplace(6);
		ids.for_each([&](std::uint64_t, counted_object &object) { seen += object.value == 6; });
		CHECK(seen == 2 && ids.size() == 1);
		// The caller gets the exception.
		try {
			map.emplace("three", 7);
			map.for_each([](const std::string &, counted_object &) { throw std::range_error("x"); });
			CHECK(false);
		} catch (const std::range_error &) {
		}
		CHECK(mc_is_inside(domain) == 0);

		auto moved = std::move(map);
		CHECK(moved.size() == 2);
	}
	domain.barrier();
	CHECK(alive == 0);
}

struct setting : manycore::rcu_obj_base<setting> {
	explicit setting(int v) : value(v) {}
	int value;
};

static void bounded_domains()
{
	mc_domain_options options = MC_DOMAIN_OPTIONS_INIT;
	struct mc_backlog backlog = MC_BACKLOG_INIT;
	options.flags = MC_DOMAIN_BOUNDED;
	options.budget = 1 << 16;
	manycore::domain domain(options);
	manycore::rcu_domain_of region(domain);
	std::atomic<setting *> current{new setting(0)};
	std::atomic<int> state{0};

	std::thread reader([&] {
		manycore::section section(domain);
		const setting *held = section.protect(current);
		state = 1;
		while (state != 2)
			std::this_thread::yield();
		CHECK(held->value == 0);
	});
	while (state != 1)
		std::this_thread::yield();
	for (int value = 1; value <= 20000; value++) {
		manycore::section section(domain);
		auto *made = new setting(value);
		made->born(region);
		current.exchange(made)->retire({}, region);
	}
	CHECK(mc_backlog(domain, 0, &backlog, nullptr, 0) == 0);
	CHECK(backlog.stalled == 1 && backlog.bytes <= 2 * options.budget);
	state = 2;
	reader.join();
	domain.barrier();
	delete current.load();
}

static void queues()
{
	mc_queue_options options = MC_QUEUE_OPTIONS_INIT;
	options.max_events = 2;
	manycore::event_queue<counted_object> queue(options);
	int sent = 0;

	CHECK(!queue.try_receive() && !queue.try_receive_for(std::chrono::microseconds(1)));
	auto event = std::make_unique<counted_object>(0);
	while (queue.try_send(std::move(event)))
		event = std::make_unique<counted_object>(++sent);
	CHECK(event && !queue.try_send_for(std::move(event), std::chrono::microseconds(1)) && event);
	CHECK(queue.receive()->value == 0 && queue.size() == static_cast<std::size_t>(sent) - 1);
	int next = 1;
	CHECK(queue.receive_all([&](std::unique_ptr<counted_object> got) {
		CHECK(got->value == next++);
	}) == static_cast<std::size_t>(sent) - 1);
	CHECK(queue.emplace(1) && queue.emplace(2));
	try {
		queue.receive_all([](std::unique_ptr<counted_object>) { throw std::range_error("x"); });
		CHECK(false);
	} catch (const std::range_error &) {
	}
	CHECK(queue.emplace(4) && queue.close() && !queue.send(std::move(event)) && event);
	event.reset();
	CHECK(alive == 1); // in the queue, which destroys it
}

static void caches()
{
	mc_cache_options options = MC_CACHE_OPTIONS_INIT;

	CHECK(throws(EINVAL, [&] { manycore::cache cache(options); }));
	options.bytes = 1 << 20;
	manycore::cache cache(options);
	cache.put("a", "1");
	CHECK(throws(EINVAL, [&] { cache.put("a", "1", std::chrono::seconds(1)); }));
	CHECK(cache.get("a") == "1" && !cache.get("b"));
	CHECK(cache.get_or_load("b", [](std::string_view key) { return std::string(key) + "!"; }) == "b!");
	try {
		cache.get_or_load("c", [](std::string_view) -> std::string { throw std::range_error("c"); });
		CHECK(false);
	} catch (const std::range_error &) {
	}
	try {
		cache.visit("a", [](std::string_view) { throw std::range_error("a"); });
		CHECK(false);
	} catch (const std::range_error &) {
	}
	CHECK(cache.remove("a") && !cache.remove("a") && cache.stats().entries == 1);
	cache.set_capacity(1 << 19);
	cache.clear();
	CHECK(cache.stats().capacity == 1 << 19 && cache.stats().entries == 0);
}

static void double_it(std::vector<int> &numbers)
{
	for (int &number : numbers)
		number *= 2;
}

static void deferreds()
{
	manycore::deferred<std::vector<int>> object(std::vector<int>{1, 2});
	std::vector<std::thread> threads;

	object.append<double_it>();
	CHECK(object.read([](std::vector<int> &numbers) { return numbers[1]; }) == 4);
	object.read([](std::vector<int> &numbers) { numbers.clear(); });
	for (int i = 0; i < 3; i++)
		threads.emplace_back([&] {
			for (int n = 0; n < 1000; n++)
				object.append([n](std::vector<int> &numbers) { numbers.push_back(n); });
		});
	for (std::thread &thread : threads)
		thread.join();
	CHECK(object.read([](std::vector<int> &numbers) { return numbers.size(); }) == 3000);
	try {
		object.read([](std::vector<int> &) { throw std::range_error("x"); });
		CHECK(false);
	} catch (const std::range_error &) {
	}
	object.append([last = std::make_unique<counted_object>(1)](std::vector<int> &) { CHECK(alive == 1); });
} // the object's end applies the update

static void recordings()
{
	static mc_event begin = MC_EVENT(2, "test", MC_EVENT_BEGIN, "B", 0, { nullptr, 0 });
	static mc_event end = MC_EVENT(2, "test", MC_EVENT_END, "B", 0, { nullptr, 0 });
	manycore::recording recording;

	CHECK(throws(EEXIST, [] { manycore::recording second; }));
	{
		manycore::span span(begin, end);
	}
	recording.set_classes(1);
	CHECK(!mc_event_is_on(&begin) && throws(ENOENT, [&] { recording.save("/no such folder/file"); }));
	recording.stop();
	manycore::recording third;
}

static void pages()
{
	manycore::page_pool pool(8);
	manycore::pages kept = pool.alloc(2), moved = std::move(kept);

	CHECK(!kept && moved.size() == 2 * MC_PAGE_BYTES && pool.idle() == 6 && !pool.alloc(9));
	CHECK(moved.index() + 2 <= 8 && pool.resident() >= 2);
	kept = pool.alloc_zeroed(3);
	std::swap(kept, moved);
	CHECK(kept.size() == 2 * MC_PAGE_BYTES && moved.size() == 3 * MC_PAGE_BYTES);
	moved = manycore::pages();
	CHECK(mc_pages_free(pool.native_handle(), kept.release(), 2) == 0 && !kept);
	CHECK(!pool.alloc_aligned(1, 3) && pool.alloc_aligned(1, 1));
	CHECK(pool.idle() == 8 && pool.trim() <= 8);
	CHECK(throws(EINVAL, [] { manycore::page_pool none(0); }));
}

static void mapped_pages()
{
	manycore::domain domain;
	manycore::mappings mappings(8, domain);
	std::uint64_t one = mappings.make_space(8), other = mappings.make_space(8);
	auto *buffer = static_cast<char *>(mappings.grant(one, 2, MC_RIGHTS_WRITE));
	auto *seen = static_cast<char *>(mappings.alias(one, buffer, 2, other, MC_RIGHTS_READ));

	*buffer = 7;
	CHECK(*seen == 7 && mappings.file() >= 0 && mappings.base(one) != nullptr);
	{
		manycore::section section(mappings.domain());
		CHECK(mappings.resolve(other, seen).value().rights == MC_RIGHTS_READ);
		CHECK(throws(EDEADLK, [&] { mappings.flush(); }));
	}
	CHECK(throws(EACCES, [&] { mappings.alias(other, seen, 1, one, MC_RIGHTS_WRITE); }));
	CHECK(throws(EEXIST, [&] { mappings.alias(one, buffer, 1, other, MC_RIGHTS_READ, seen); }));
	CHECK(mappings.revoke(one, buffer, 2) == 2 && !mappings.resolve(other, seen));
	CHECK(mappings.pending() == 2 && mappings.flush() == 2 && mappings.tick() == 0);
	CHECK(mappings.restrict_to(one, buffer, 2, MC_RIGHTS_READ) == 0);
	CHECK(mappings.unmap(one, buffer, 1) == 1 && mappings.end_space(one) == 1);
	CHECK(throws(ESRCH, [&] { mappings.end_space(one); }) && mappings.base(one) == nullptr);
	CHECK(mappings.flush() == 2 && mappings.free_frames() == 8);
}

int main()
{
	counters();
	pages();
	mapped_pages();
	maps_and_ids();
	bounded_domains();
	queues();
	CHECK(alive == 0);
	caches();
	deferreds();
	CHECK(alive == 0);
	recordings();
	return 0;
}
