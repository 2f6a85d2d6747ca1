/* A signal handler that reads, and call-backs in a thread of the library's own. */
#include <manycore/manycore.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct config {
	int limit;
	struct mc_head head;
};

static struct config *current;
static volatile sig_atomic_t seen;
static int in_callback, others;

static void handler(int number)
{
	const mc_domain *domain = mc_domain_default();

	(void)number;
	mc_enter(domain);
	seen = mc_dereference(current)->limit;
	mc_leave_in_handler(domain);
}

static void config_free(struct mc_head *head)
{
	/* May take locks, because it never runs in the thread that called mc_call. */
	others += mc_running();
	in_callback = 1;
	free(mc_container_of(head, struct config, head));
}

static void config_free_soon(struct mc_head *head)
{
	others += mc_running(); /* mc_synchronize would return -EDEADLK here */
	free(mc_container_of(head, struct config, head));
}

static void set_limit(int limit, void (*schedule)(struct config *))
{
	struct config *made = (struct config *)malloc(sizeof(*made)), *old;

	if (made == NULL)
		abort();
	made->limit = limit;
	old = mc_exchange_pointer(current, made);
	if (old != NULL)
		schedule(old);
}

static void by_call(struct config *old)
{
	mc_call(&old->head, config_free);
}

static void by_retire(struct config *old)
{
	mc_retire(mc_domain_default(), &old->head, sizeof(*old), config_free_soon);
}

int main(void)
{
	const mc_domain *domain = mc_domain_default();

	set_limit(7, by_call);
	mc_thread_register(domain); /* before the handler can run */
	signal(SIGUSR1, handler);
	mc_enter(domain);
	raise(SIGUSR1);
	printf("%s: the handler saw %d, inside: %d\n", mc_version(), (int)seen, mc_is_inside(domain));
	mc_leave(domain);

	set_limit(8, by_call);
	mc_call_barrier();
	set_limit(9, by_retire);
	mc_collect(domain); /* what can be freed now */
	mc_synchronize(domain);
	free(current);
	mc_barrier(domain);
	mc_thread_unregister(domain);
	return seen != 7 || !in_callback || others != 1;
}
