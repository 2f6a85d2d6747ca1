/* Checks what each function refuses, and what call-backs may do. */
#include "check.h"

#include <string.h>

static const mc_domain *domain;
static long freed;

static void refusals(void)
{
	struct mc_domain_options options = MC_DOMAIN_OPTIONS_INIT;
	struct { struct mc_domain_options known; uint64_t unknown; } later;
	struct mc_backlog backlog = MC_BACKLOG_INIT;
	const mc_domain *other = NULL;
	struct mc_head head;

	CHECK(mc_domain_new(NULL, NULL) == -EINVAL);
	options.flags = UINT64_C(1) << 63;
	CHECK(mc_domain_new(&other, &options) == -EINVAL);
	options.flags = 0;
	options.batch_nodes = SIZE_MAX;
	CHECK(mc_domain_new(&other, &options) == -EINVAL);
	options.batch_nodes = 0;
	options.size = 0;
	CHECK(mc_domain_new(&other, &options) == -EINVAL);

	/* A program with fewer options, and one with more. */
	options.size = sizeof(size_t);
	options.flags = UINT64_C(1) << 63;
	CHECK(mc_domain_new(&other, &options) == 0 && mc_domain_free(other) == 0);
	memset(&later, 0, sizeof(later));
	later.known.size = sizeof(later);
	CHECK(mc_domain_new(&other, &later.known) == 0 && mc_domain_free(other) == 0);
	later.unknown = 1;
	CHECK(mc_domain_new(&other, &later.known) == -EINVAL);

	CHECK(mc_domain_new(&other, NULL) == 0);
	CHECK(mc_domain_free(other) == 0);
	CHECK(mc_domain_free(other) == -EINVAL);
	CHECK(mc_domain_free(NULL) == -EINVAL);
	CHECK(mc_domain_free(mc_domain_default()) == -EINVAL);

	CHECK(mc_retire(NULL, &head, 1, counted_free) == -EINVAL);
	CHECK(mc_retire(domain, NULL, 1, counted_free) == -EINVAL);
	CHECK(mc_retire(domain, &head, 1, NULL) == -EINVAL);
	CHECK(mc_call(NULL, counted_free) == -EINVAL && mc_call(&head, NULL) == -EINVAL);
	CHECK(mc_synchronize(NULL) == -EINVAL && mc_barrier(NULL) == -EINVAL);
	CHECK(mc_collect(NULL) == -EINVAL && mc_thread_register(NULL) == -EINVAL);
	CHECK(mc_backlog(domain, 0, NULL, NULL, 0) == -EINVAL);
	CHECK(mc_backlog(domain, 0, &backlog, NULL, 1) == -EINVAL);
	backlog.size = 1;
	CHECK(mc_backlog(domain, 0, &backlog, NULL, 0) == -EINVAL);

	mc_enter(domain);
	CHECK(mc_is_inside(domain) == 1);
	CHECK(mc_synchronize(domain) == -EDEADLK && mc_barrier(domain) == -EDEADLK);
	CHECK(mc_thread_unregister(domain) == -EBUSY && mc_domain_free(domain) == -EBUSY);
	mc_leave(domain);
	CHECK(mc_is_inside(domain) == 0);
	mc_enter(mc_domain_default());
	CHECK(mc_call_barrier() == -EDEADLK);
	mc_leave(mc_domain_default());
	mc_leave(domain); /* does nothing without MC_DEBUG */
	CHECK(mc_is_inside(domain) == 0);
}

static void nesting(void)
{
	const mc_domain *other = eager_domain();
	int depth, i;

	for (depth = 1; depth < 5; depth++) {
		long before = freed;

		for (i = 0; i < depth; i++) {
			mc_enter(domain);
			mc_enter(other);
		}
		retire_counted(domain, &freed);
		for (i = 0; i < depth; i++) {
			collect_often(domain);
			CHECK(freed == before && mc_is_inside(domain) && mc_is_inside(other));
			mc_leave(domain);
			mc_leave(other);
		}
		CHECK(!mc_is_inside(domain) && !mc_is_inside(other));
		CHECK(mc_barrier(domain) == 0 && freed == before + 1);
	}
	CHECK(mc_domain_free(other) == 0);
}

/* A thread that stays inside holds nothing back after a quiescent state; inner sections do. */
static void quiescent_states(void)
{
	const mc_domain *own = eager_domain();
	long count = 0;
	int i;

	mc_enter(own);
	for (i = 1; i <= 100; i++) {
		retire_counted(own, &count);
		collect_often(own);
		CHECK(count < i);
		mc_enter(own);
		mc_quiescent(own);
		collect_often(own);
		CHECK(count < i && mc_is_inside(own));
		mc_leave(own);
		mc_quiescent(own);
		collect_often(own);
		CHECK(mc_is_inside(own));
		mc_quiescent(own);
		collect_often(own);
		CHECK(count == i);
	}
	mc_leave(own);
	CHECK(!mc_is_inside(own) && mc_domain_free(own) == 0);
}

static int depth_left = 1000;

/* Retires the next object, enters, leaves, and is refused the calls that would wait for itself. */
static void chain(struct mc_head *head)
{
	CHECK(mc_running() == 1);
	CHECK(mc_synchronize(domain) == -EDEADLK && mc_barrier(domain) == -EDEADLK);
	CHECK(mc_domain_free(domain) == -EDEADLK);
	mc_enter(domain);
	mc_leave(domain);
	CHECK(mc_collect(domain) == 0);
	if (depth_left-- > 0)
		CHECK(mc_retire(domain, head, sizeof(*head), chain) == 0);
	else
		free(head);
}

static void callbacks(void)
{
	struct mc_head *head = (struct mc_head *)malloc(sizeof(*head));
	int i;

	CHECK(head != NULL && mc_retire(domain, head, sizeof(*head), chain) == 0);
	while (depth_left >= 0)
		CHECK(mc_barrier(domain) == 0);
	CHECK(mc_running() == 0);

	/* Freeing the domain runs the waiting call-backs, and those that they retire. */
	depth_left = 100;
	head = (struct mc_head *)malloc(sizeof(*head));
	CHECK(head != NULL && mc_retire(domain, head, sizeof(*head), chain) == 0);
	for (i = 0; i < 1000; i++)
		retire_counted(domain, &freed);
}

static void moments(void)
{
	uint64_t moment;

	mc_enter(domain);
	moment = mc_now(domain);
	CHECK(mc_quiesced(domain, moment) == 0 && mc_quiesced(domain, moment) == 0);
	mc_leave(domain);
	CHECK(mc_quiesced(domain, moment) == 1 || mc_quiesced(domain, moment) == 1);
}

static unsigned long overruns;

static void over_budget(void *argument, const struct mc_backlog *backlog)
{
	CHECK(argument == &overruns && backlog->size == sizeof(*backlog));
	__atomic_add_fetch(&overruns, 1, __ATOMIC_SEQ_CST);
}

static void budget(void)
{
	struct mc_domain_options options = MC_DOMAIN_OPTIONS_INIT;
	struct mc_stalled stalled[2];
	struct mc_backlog backlog = MC_BACKLOG_INIT;
	const mc_domain *small = NULL;
	long count = 0;
	int i;

	options.budget = 100000;
	options.on_over_budget = over_budget;
	options.argument = &overruns;
	CHECK(mc_domain_new(&small, &options) == 0);
	for (i = 0; i < 100000; i++) {
		mc_enter(small);
		retire_counted(small, &count);
		mc_leave(small);
		if (i % 1000 == 0) {
			CHECK(mc_backlog(small, 0, &backlog, NULL, 0) == 0);
			CHECK(backlog.bytes <= 2 * 6 * 100000);
		}
	}
	mc_enter(small);
	retire_counted(small, &count);
	CHECK(mc_backlog(small, 0, &backlog, stalled, 2) == 0);
	CHECK(backlog.nodes >= 1 && backlog.stalled == 1 && stalled[0].os_id != 0);
	mc_leave(small);
	CHECK(mc_domain_free(small) == 0 && count == 100001);
}

static void fences(uint64_t flags)
{
	struct mc_domain_options options = MC_DOMAIN_OPTIONS_INIT;
	const mc_domain *other = NULL;
	long count = 0;

	options.flags = flags;
	options.batch_nodes = 1;
	CHECK(mc_domain_new(&other, &options) == 0);
	mc_enter(other);
	mc_enter(other);
	retire_counted(other, &count);
	mc_leave(other);
	collect_often(other);
	CHECK(mc_is_inside(other) && count == 0);
	mc_leave(other);
	CHECK(mc_barrier(other) == 0 && count == 1 && mc_domain_free(other) == 0);
}

int main(void)
{
	domain = eager_domain();
	CHECK(mc_version() != NULL && mc_version()[0] == '0' + MC_VERSION_MAJOR);
	refusals();
	nesting();
	quiescent_states();
	moments();
	budget();
	fences(MC_DOMAIN_FENCES);
	callbacks();
	freed = 0;
	CHECK(mc_domain_free(domain) == 0 && freed <= 1000 && depth_left < 0);
	return 0;
}
