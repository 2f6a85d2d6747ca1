// C++26's RCU on manycore: an object with the base, an object without it, a region by std::scoped_lock.
#include <manycore/rcu.hpp>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

struct config : manycore::rcu_obj_base<config> {
	std::string name;
	explicit config(std::string n) : name(std::move(n)) {}
};

static std::atomic<config *> current{new config("first")};
static std::atomic<const std::string *> motto{new std::string("unread")};

int main()
{
	std::size_t read = 0;
	std::thread reader([&read] {
		for (int i = 0; i < 100000; i++) {
			std::scoped_lock region(manycore::rcu_default_domain());
			read += current.load(std::memory_order_acquire)->name.size();
			read += motto.load(std::memory_order_acquire)->size();
		}
	});
	for (int i = 0; i < 10000; i++) {
		current.exchange(new config("config " + std::to_string(i)))->retire();
		manycore::rcu_retire(motto.exchange(new std::string(std::to_string(i))));
	}
	reader.join();
	manycore::rcu_synchronize();
	delete current.exchange(nullptr);
	delete motto.exchange(nullptr);
	manycore::rcu_barrier();
	std::printf("%zu characters\n", read);
	return read == 0;
}
