// C++26 [saferecl.rcu], clause by clause, paraphrased.
#include <manycore/rcu.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
			std::abort(); \
		} \
	} while (0)

using manycore::rcu_barrier;
using manycore::rcu_default_domain;
using manycore::rcu_domain;
using manycore::rcu_obj_base;
using manycore::rcu_retire;
using manycore::rcu_synchronize;

// [saferecl.rcu.domain]: the type is neither copied nor assigned; the members are noexcept; it meets
// Cpp17Lockable.
static_assert(!std::is_copy_constructible_v<rcu_domain>);
static_assert(!std::is_copy_assignable_v<rcu_domain>);
static_assert(!std::is_default_constructible_v<rcu_domain>);
static_assert(noexcept(std::declval<rcu_domain &>().lock()));
static_assert(noexcept(std::declval<rcu_domain &>().unlock()));
static_assert(noexcept(std::declval<rcu_domain &>().try_lock()));
static_assert(std::is_same_v<decltype(std::declval<rcu_domain &>().try_lock()), bool>);

// [saferecl.rcu.domain.func]: the functions, their defaults and their noexcept.
static_assert(noexcept(rcu_default_domain()) && noexcept(rcu_synchronize()) && noexcept(rcu_barrier()));
static_assert(noexcept(rcu_synchronize(rcu_default_domain())));
static_assert(std::is_same_v<decltype(rcu_default_domain()), rcu_domain &>);

// [saferecl.rcu.base]: T may be incomplete; trivially copyable if the deleter is; what is protected.
struct incomplete;
static_assert(sizeof(rcu_obj_base<incomplete>) > 0);
static_assert(std::is_trivially_copyable_v<rcu_obj_base<incomplete>>);
static_assert(!std::is_default_constructible_v<rcu_obj_base<incomplete>>);
static_assert(!std::is_destructible_v<rcu_obj_base<incomplete>>);

static std::atomic<long> deleted, evaluated;

struct other_base {
	long before = 1;
	virtual ~other_base() = default;
};

// A type whose base for RCU is not its first base.
struct object : other_base, rcu_obj_base<object> {
	int value;
	explicit object(int v) : value(v) {}
	object(const object &) = default;
	~object() override { deleted++; }
};
static_assert(noexcept(std::declval<object &>().retire()));
static_assert(std::is_copy_constructible_v<object>);

// A deleter that is not copied and that has state.
struct marking {
	std::atomic<long> *mark = nullptr;
	marking() = default;
	explicit marking(std::atomic<long> *m) : mark(m) {}
	marking(marking &&) = default;
	marking &operator=(marking &&) = default;
	template <class T>
	void operator()(T *p) const
	{
		if (mark != nullptr)
			(*mark)++;
		delete p;
	}
};

struct marked : rcu_obj_base<marked, marking> {};
struct final_one final : rcu_obj_base<final_one> {
	std::vector<int> heap = std::vector<int>(100);
};

// The evaluation is of the deleter that was passed, with the object's address, once.
static void retire_evaluates_the_deleter_once()
{
	std::atomic<long> marks{0};
	(new marked)->retire(marking(&marks));
	(new marked)->retire();
	rcu_barrier();
	CHECK(marks == 1);
	(new final_one)->retire();
	deleted = 0;
	auto *made = new object(7);
	auto *copy = new object(*made);
	made->retire();
	copy->retire();
	rcu_barrier();
	CHECK(deleted == 2);
}

// rcu_retire: of any type, with any deleter that can be moved; the domain by default or given.
static void retire_of_any_type()
{
	evaluated = 0;
	rcu_retire(new int(7));
	rcu_retire(new int(7), [](int *p) { evaluated++; delete p; });
	auto owner = std::make_unique<int>(3); // moved into the deleter
	rcu_retire(new int(7), [o = std::move(owner)](int *p) { evaluated += *o; delete p; });
	rcu_retire(static_cast<void *>(std::malloc(10)), [](void *p) { evaluated++; std::free(p); },
	    rcu_default_domain());
	rcu_retire(static_cast<int *>(nullptr), [](int *p) { evaluated += p == nullptr; });
	rcu_barrier();
	CHECK(evaluated == 6);
}

// If rcu_retire exits by an exception, nothing was scheduled.
struct throwing_move {
	throwing_move() = default;
	throwing_move(throwing_move &&) { throw std::runtime_error("moved"); }
	void operator()(int *) const { evaluated++; }
};

static void exception_schedules_nothing()
{
	int value = 1;
	evaluated = 0;
	bool thrown = false;
	try {
		rcu_retire<int, throwing_move>(&value);
	} catch (const std::runtime_error &) {
		thrown = true;
	}
	rcu_barrier();
	CHECK(thrown && evaluated == 0);
}

// A region protects: nothing that it can have reached is evaluated before it is closed; regions nest,
// and scoped_lock, unique_lock and lock_guard open them.
static void region_protects_until_it_is_closed()
{
	std::atomic<object *> link{new object(1)};
	std::atomic<int> step{0};
	deleted = 0;
	std::thread reader([&] {
		std::scoped_lock region(rcu_default_domain());
		{
			std::lock_guard<rcu_domain> inner(rcu_default_domain());
			std::unique_lock<rcu_domain> third(rcu_default_domain(), std::try_to_lock);
			CHECK(third.owns_lock());
		}
		object *read = link.load();
		step = 1;
		while (step != 2)
			std::this_thread::yield();
		CHECK(read->value == 1 && deleted == 0);
	});
	while (step != 1)
		std::this_thread::yield();
	link.exchange(new object(2))->retire();
	for (int i = 0; i < 20; i++)
		mc_collect(rcu_default_domain().native_handle());
	CHECK(deleted == 0);
	step = 2;
	rcu_barrier(); // waits for the region by itself
	CHECK(deleted == 1);
	reader.join();
	delete link.load();
}

// rcu_synchronize blocks until each region that it does not strongly happen before is closed; what the
// region did is visible after it.
static void synchronize_waits_for_regions()
{
	for (int round = 0; round < 100; round++) {
		std::atomic<bool> inside{false};
		int plain = 0;
		std::thread reader([&] {
			std::scoped_lock region(rcu_default_domain());
			inside = true;
			std::this_thread::yield();
			plain = 1;
		});
		while (!inside)
			std::this_thread::yield();
		rcu_synchronize();
		CHECK(plain == 1);
		reader.join();
	}
}

// rcu_barrier: for every evaluation that was scheduled before, by any thread.
static void barrier_waits_for_evaluations_of_all_threads()
{
	evaluated = 0;
	std::vector<std::thread> threads;
	for (int i = 0; i < 4; i++)
		threads.emplace_back([] {
			for (int n = 0; n < 1000; n++)
				rcu_retire(new int(n), [](int *p) { evaluated++; delete p; });
		});
	for (auto &thread : threads)
		thread.join();
	rcu_barrier();
	CHECK(evaluated == 4000);
}

// An evaluation may schedule others.
struct link_of_chain : rcu_obj_base<link_of_chain> {
	int left;
	explicit link_of_chain(int l) : left(l) {}
	~link_of_chain()
	{
		if (left > 0)
			(new link_of_chain(left - 1))->retire();
		evaluated++;
	}
};

static void evaluation_may_retire()
{
	evaluated = 0;
	(new link_of_chain(100))->retire();
	while (evaluated != 101)
		rcu_barrier();
}

// Separate domains do not wait for each other.
static void domains_are_apart()
{
	const mc_domain *handle = nullptr;
	CHECK(mc_domain_new(&handle, nullptr) == 0);
	{
		manycore::rcu_domain_of own(handle);
		std::scoped_lock both(rcu_default_domain(), rcu_default_domain());
		rcu_synchronize(own);
		evaluated = 0;
		rcu_retire(new int(1), [](int *p) { evaluated++; delete p; }, own);
		rcu_barrier(own);
		CHECK(evaluated == 1);
	}
	CHECK(mc_domain_free(handle) == 0);
}

// A child that runs this must end by a signal.
template <class F>
static void check_it_aborts(F f)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		std::freopen("/dev/null", "w", stderr);
		f();
		_exit(0);
	}
	int status = 0;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void throw_from_c(mc_head *)
{
	throw std::runtime_error("no way out");
}

int main()
{
	retire_evaluates_the_deleter_once();
	retire_of_any_type();
	exception_schedules_nothing();
	region_protects_until_it_is_closed();
	synchronize_waits_for_regions();
	barrier_waits_for_evaluations_of_all_threads();
	evaluation_may_retire();
	domains_are_apart();

	// Calls that would wait for themselves, and exceptions that would cross the boundary.
	check_it_aborts([] {
		std::scoped_lock region(rcu_default_domain());
		rcu_synchronize();
	});
	check_it_aborts([] {
		rcu_retire(new int(1), [](int *p) { delete p; rcu_barrier(); });
		rcu_barrier();
	});
	check_it_aborts([] {
		static mc_head head;
		mc_retire(rcu_default_domain().native_handle(), &head, sizeof(head), throw_from_c);
		rcu_barrier();
	});
	return 0;
}
