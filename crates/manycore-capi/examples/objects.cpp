// The objects of manycore.hpp: each owns its handle, and frees it.
#include <manycore/manycore.hpp>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

struct user {
	std::string name;
	int age;

	user(std::string n, int a) : name(std::move(n)), age(a) {}
};

static manycore::counter requests;
static mc_event begin = MC_EVENT(1, "users", MC_EVENT_BEGIN, "Request", 0, { nullptr, 0 });
static mc_event end = MC_EVENT(1, "users", MC_EVENT_END, "Request", 0, { nullptr, 0 });

int main()
{
	mc_cache_options options = MC_CACHE_OPTIONS_INIT;
	options.bytes = 1 << 20;

	manycore::recording recording;
	manycore::domain domain;
	manycore::map<std::string, user> users(domain);
	manycore::id_space<user> sessions(domain);
	manycore::event_queue<std::string> log;
	manycore::histogram ages;
	manycore::cache pages(options);
	manycore::deferred<std::vector<int>> numbers;

	std::vector<std::thread> threads;
	for (int thread = 0; thread < 3; thread++)
		threads.emplace_back([&, thread] {
			for (int i = 0; i < 100; i++) {
				manycore::span span(begin, end);
				std::string name = "user" + std::to_string(i);

				++requests;
				ages.record(static_cast<unsigned>(i % 90));
				users.put(name, std::make_unique<user>(name, i % 90));
				numbers.append([i](std::vector<int> &all) { all.push_back(i); });
				pages.get_or_load(name, [](std::string_view key) {
					return "the page of " + std::string(key);
				});
				log.emplace(std::to_string(thread) + " has seen " + name);
			}
		});
	for (std::thread &thread : threads)
		thread.join();

	std::uint64_t id = sessions.emplace("ann", 40);
	{
		manycore::section section(domain);
		const user *seventh = users.get("user7");
		const user *ann = sessions.get(id);

		if (seventh == nullptr || ann == nullptr || !users.remove("user7") || !sessions.remove(id))
			return 1;
		std::printf("%s and %s are removed\n", seventh->name.c_str(), ann->name.c_str());
	}

	std::size_t lines = log.receive_all([](std::unique_ptr<std::string>) {});
	std::size_t length = numbers.read([](std::vector<int> &all) { return all.size(); });
	std::printf("%lld requests, %zu lines, %zu numbers, median age %llu; %s\n",
	    static_cast<long long>(requests.sum()), lines, length,
	    static_cast<unsigned long long>(ages.take().quantile(0.5).value()),
	    pages.get("user3").value_or("no page").c_str());
	domain.barrier(); // what was removed is destroyed
	return requests.sum() != 300 || lines != 300 || length != 300 || users.size() != 99;
}
