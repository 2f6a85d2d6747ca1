/* Checks what the functions for pages and mappings refuse, and that no page is lost or given out twice. */
#define _DEFAULT_SOURCE
#include "check.h"

#include <manycore/mappings.h>
#include <manycore/pages.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALIGNED(pointer, bytes) ((uintptr_t)(pointer) % (bytes) == 0)

static void pools(void)
{
	struct mc_page_pool_options options = MC_PAGE_POOL_OPTIONS_INIT;
	mc_page_pool *pool = NULL;
	char *one, *run;

	CHECK(mc_page_pool_new(NULL, 8, NULL) == -EINVAL && mc_page_pool_new(&pool, 0, NULL) == -EINVAL);
	options.flags = UINT64_C(1) << 63;
	CHECK(mc_page_pool_new(&pool, 8, &options) == -EINVAL);
	options.flags = MC_PAGES_NODE;
	options.node = 1000;
	CHECK(mc_page_pool_new(&pool, 8, &options) < 0 && pool == NULL);
	CHECK(mc_page_pool_free(NULL) == 0);

	CHECK(mc_page_pool_new(&pool, 8, NULL) == 0 && mc_page_pool_idle(pool) == 8);
	CHECK(mc_pages_alloc(pool, 0) == NULL && mc_pages_alloc(pool, 9) == NULL);
	CHECK(mc_pages_alloc(pool, SIZE_MAX) == NULL && mc_pages_alloc_zeroed(pool, SIZE_MAX) == NULL);
	CHECK(mc_pages_alloc_aligned(pool, 1, 0) == NULL && mc_pages_alloc_aligned(pool, 1, 3) == NULL);
	CHECK(mc_pages_alloc_aligned(pool, 1, SIZE_MAX / 2 + 1) == NULL);
	one = (char *)mc_pages_alloc(pool, 1);
	CHECK(one != NULL && ALIGNED(one, MC_PAGE_BYTES) && mc_page_pool_free(pool) == -EBUSY);
	memset(one, 7, MC_PAGE_BYTES);
	CHECK(mc_pages_free(pool, one + 1, 1) == -EINVAL && mc_pages_free(pool, one, 0) == -EINVAL);
	CHECK(mc_pages_free(pool, one, 9) == -EINVAL && mc_pages_free(pool, one, SIZE_MAX) == -EINVAL);
	CHECK(mc_pages_free(pool, &pool, 1) == -EINVAL && mc_pages_free(pool, NULL, 1) == 0);
	CHECK(mc_page_pool_index(pool, &pool) == -EINVAL && mc_page_pool_index(pool, NULL) == -EINVAL);
	CHECK(mc_page_pool_index(pool, one + 4095) == mc_page_pool_index(pool, one));
	CHECK(mc_page_pool_resident(pool) >= 1 && mc_pages_free(pool, one, 1) == 0);
	run = (char *)mc_pages_alloc_zeroed(pool, 8); /* the used page among them */
	CHECK(run != NULL && mc_pages_alloc(pool, 1) == NULL);
	for (one = run; one < run + 8 * MC_PAGE_BYTES; one++)
		CHECK(*one == 0);
	/* In pieces. */
	CHECK(mc_pages_free(pool, run + 2 * MC_PAGE_BYTES, 6) == 0 && mc_page_pool_free(pool) == -EBUSY);
	CHECK(mc_pages_free(pool, run, 1) == 0 && mc_pages_free(pool, run + MC_PAGE_BYTES, 1) == 0);
	CHECK(mc_page_pool_idle(pool) == 8 && mc_page_pool_free(pool) == 0);

	options.flags = MC_PAGES_KEEP_NONE | MC_PAGES_HUGE;
	if (mc_page_pool_new(&pool, 2048, &options) == 0) { /* a system may have no huge pages */
		run = (char *)mc_pages_alloc_aligned(pool, 512, 512);
		CHECK(run != NULL && ALIGNED(run, 512 * MC_PAGE_BYTES) && mc_pages_free(pool, run, 512) == 0);
		mc_page_pool_trim(pool);
		CHECK(mc_page_pool_free(pool) == 0);
	}
}

#define PAGES 512
#define THREADS 3

static mc_page_pool *shared;
static uintptr_t *handed[THREADS]; /* a page on its way to the next thread, or null */

/* Takes pages, marks them as its own, and frees those that the thread before has taken. */
static void *pass_on(void *argument)
{
	size_t own = (size_t)(uintptr_t)argument, i;

	for (i = 0; i < 20000; i++) {
		uintptr_t *page = (uintptr_t *)mc_pages_alloc(shared, 1 + i % 3), *other;

		if (page == NULL)
			continue;
		page[0] = own;
		page[1] = 1 + i % 3;
		other = mc_exchange_pointer(handed[(own + 1) % THREADS], page);
		if (other != NULL) {
			CHECK(other[0] == own);
			CHECK(mc_pages_free(shared, other, other[1]) == 0);
		}
		other = mc_exchange_pointer(handed[own], NULL);
		if (other != NULL) {
			CHECK(other[0] == (own + THREADS - 1) % THREADS);
			CHECK(mc_pages_free(shared, other, other[1]) == 0);
		}
	}
	return NULL;
}

static void threads(void)
{
	pthread_t thread[THREADS];
	size_t i;

	CHECK(mc_page_pool_new(&shared, PAGES, NULL) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_create(&thread[i], NULL, pass_on, (void *)i) == 0);
	for (i = 0; i < THREADS; i++)
		CHECK(pthread_join(thread[i], NULL) == 0);
	for (i = 0; i < THREADS; i++)
		if (handed[i] != NULL)
			CHECK(mc_pages_free(shared, handed[i], handed[i][1]) == 0);
	CHECK(mc_page_pool_idle(shared) == PAGES && mc_page_pool_free(shared) == 0);
}

/* Tells whether a signal ends a child that reads (or writes) there. */
static int faults(volatile char *at, int writes)
{
	pid_t child = fork();
	int status;

	CHECK(child >= 0);
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL); /* a sanitizer has its own */
		if (writes)
			*at = 1;
		else
			(void)*at;
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void refused(mc_mappings *mappings)
{
	uint64_t space, other;
	void *at, *to = NULL;

	CHECK(mc_space_new(mappings, 0, &space) == -EINVAL && mc_space_new(mappings, 8, NULL) == -EINVAL);
	CHECK(mc_space_new(mappings, (size_t)1 << 32, &space) == -ENOSPC);
	CHECK(mc_space_new(mappings, 8, &space) == 0 && mc_space_new(mappings, 4, &other) == 0);
	CHECK(mc_mappings_grant(mappings, space, 0, MC_RIGHTS_READ, &at) == -EINVAL);
	CHECK(mc_mappings_grant(mappings, space, 1, 3, &at) == -EINVAL);
	CHECK(mc_mappings_grant(mappings, space, 1, -1, &at) == -EINVAL);
	CHECK(mc_mappings_grant(mappings, space, 1, MC_RIGHTS_READ, NULL) == -EINVAL);
	CHECK(mc_mappings_grant(mappings, space, 9, MC_RIGHTS_READ, &at) == -ENOSPC);
	CHECK(mc_mappings_grant(mappings, other + 1, 1, MC_RIGHTS_READ, &at) == -ESRCH);
	CHECK(mc_mappings_grant(mappings, 0, 1, MC_RIGHTS_READ, &at) == -ESRCH);
	CHECK(mc_mappings_grant(mappings, UINT64_MAX, 1, MC_RIGHTS_READ, &at) == -ESRCH);
	CHECK(mc_space_end(mappings, 0) == -ESRCH && mc_space_base(mappings, 0) == NULL);
	CHECK(mc_space_end(mappings, space | UINT64_C(1) << 62) == -ESRCH); /* as if it were an extent's */
	CHECK(mc_mappings_grant(mappings, space, 5, MC_RIGHTS_READ, &at) == 0);
	CHECK(mc_mappings_grant(mappings, space, 3, MC_RIGHTS_READ, &to) == 0);
	CHECK(mc_mappings_grant(mappings, other, 1, MC_RIGHTS_READ, &to) == -ENOMEM); /* frames */
	to = NULL;
	CHECK(mc_mappings_alias(mappings, space, at, 1, other, NULL, MC_RIGHTS_READ) == -EINVAL);
	CHECK(mc_mappings_alias(mappings, space, at, 0, other, &to, MC_RIGHTS_READ) == -EINVAL);
	CHECK(mc_mappings_alias(mappings, space, (char *)at + 1, 1, other, &to, MC_RIGHTS_READ) == -EINVAL);
	CHECK(mc_mappings_alias(mappings, space, at, SIZE_MAX, other, &to, MC_RIGHTS_READ) == -EINVAL);
	CHECK(mc_mappings_alias(mappings, space, at, 5, other, &to, MC_RIGHTS_READ) == -ENOSPC);
	CHECK(mc_mappings_alias(mappings, space, at, 1, other, &to, MC_RIGHTS_WRITE) == -EACCES);
	CHECK(mc_mappings_alias(mappings, space, at, 1, 0, &to, MC_RIGHTS_READ) == -ESRCH && to == NULL);
	CHECK(mc_mappings_alias(mappings, space, at, 1, other, &to, MC_RIGHTS_NONE) == 0 && to != NULL);
	CHECK(mc_mappings_alias(mappings, space, at, 1, other, &to, MC_RIGHTS_READ) == -EEXIST);
	CHECK(mc_mappings_revoke(mappings, other, (char *)to + 4096, 1) == -ENOENT);
	CHECK(mc_mappings_revoke(mappings, other, NULL, 1) == -EINVAL);
	CHECK(mc_mappings_restrict(mappings, space, at, 1, MC_RIGHTS_WRITE) == -EACCES);
	CHECK(mc_mappings_restrict(mappings, space, at, 1, 7) == -EINVAL);
	CHECK(mc_mappings_revoke(mappings, space, at, 5) == 1);
	CHECK(mc_mappings_unmap(mappings, space, at, 5) == 5);
	CHECK(mc_mappings_unmap(mappings, space, at, 5) == -ENOENT);
	CHECK(mc_space_end(mappings, space) == 3 && mc_space_end(mappings, space) == -ESRCH);
	CHECK(mc_space_end(mappings, other) == 0 && mc_mappings_flush(mappings) >= 0);
	CHECK(mc_mappings_pending(mappings) == 0 && mc_mappings_free_frames(mappings) == 8);
}

static void in_call_back(struct mc_head *head)
{
	(void)head;
	CHECK(mc_mappings_flush((mc_mappings *)(void *)shared) == -EDEADLK);
}

static void mapped(void)
{
	struct mc_mappings_options options = MC_MAPPINGS_OPTIONS_INIT;
	const mc_domain *domain = eager_domain();
	mc_mappings *mappings = NULL, *books;
	struct mc_mapping mapping = { 9, 9 };
	struct mc_head head;
	uint64_t one, other;
	char *buffer, *seen, *view;
	void *at, *to = NULL;
	int i;

	CHECK(mc_mappings_new(NULL, domain, 8, NULL) == -EINVAL);
	CHECK(mc_mappings_new(&mappings, domain, 0, NULL) == -EINVAL);
	options.flags = UINT64_C(1) << 63;
	CHECK(mc_mappings_new(&mappings, domain, 8, &options) == -EINVAL && mappings == NULL);
	options.flags = MC_MAPPINGS_BOOKS;
	options.tick_us = 1;
	CHECK(mc_mappings_new(&books, domain, 8, &options) == 0);
	CHECK(mc_mappings_fd(books) == -EOPNOTSUPP);
	refused(books);
	mc_mappings_free(books);
	mc_mappings_free(NULL);

	CHECK(mc_mappings_new(&mappings, domain, 8, NULL) == 0);
	CHECK(mc_domain_free(domain) == -EBUSY);
	refused(mappings);
	CHECK(mc_space_new(mappings, 8, &one) == 0 && mc_space_new(mappings, 8, &other) == 0);
	CHECK(mc_mappings_grant(mappings, one, 2, MC_RIGHTS_WRITE, &at) == 0);
	CHECK(mc_mappings_alias(mappings, one, at, 2, other, &to, MC_RIGHTS_READ) == 0);
	buffer = (char *)at, seen = (char *)to;
	CHECK(mc_space_base(mappings, one) <= at && buffer[0] == 0);
	buffer[4096] = 5;
	CHECK(seen[4096] == 5 && !faults(seen, 0) && faults(seen, 1));
	CHECK(mc_mappings_resolve(mappings, other, seen + 4097, &mapping) == 0); /* outside sections */
	CHECK(mapping.frame < 8 && mapping.rights == MC_RIGHTS_READ);
	view = (char *)mmap(NULL, 4096, PROT_READ, MAP_SHARED, mc_mappings_fd(mappings),
	    (off_t)mapping.frame * 4096);
	CHECK(view != MAP_FAILED && view[0] == 5 && munmap(view, 4096) == 0);

	/* A section keeps a page that was found mapped, even if it is revoked; a flush would wait for it. */
	mc_enter(domain);
	CHECK(mc_mappings_resolve(mappings, other, seen, NULL) == 0);
	CHECK(mc_mappings_revoke(mappings, one, buffer, 2) == 2);
	CHECK(mc_mappings_resolve(mappings, other, seen, NULL) == -ENOENT && seen[4096] == 5);
	CHECK(mc_mappings_flush(mappings) == -EDEADLK && mc_mappings_tick(mappings) == 0);
	mc_leave(domain);
	shared = (mc_page_pool *)(void *)mappings;
	CHECK(mc_retire(domain, &head, sizeof(head), in_call_back) == 0 && mc_barrier(domain) == 0);
	CHECK(mc_mappings_flush(mappings) == 2 && faults(seen, 0) && buffer[4096] == 5);
	CHECK(mc_mappings_restrict(mappings, one, buffer, 1, MC_RIGHTS_NONE) == 0 && faults(buffer, 0));

	/* Frames come back filled with zeros. */
	for (i = 0; i < 20; i++) {
		CHECK(mc_mappings_grant(mappings, other, 6, MC_RIGHTS_WRITE, &to) == 0);
		CHECK(((char *)to)[5 * 4096] == 0);
		memset(to, 1, 6 * 4096);
		CHECK(mc_mappings_unmap(mappings, other, to, 6) == 6 && mc_mappings_flush(mappings) == 6);
	}
	mc_mappings_free(mappings); /* with spaces and mappings in it */
	CHECK(faults(buffer + 4096, 0) && mc_domain_free(domain) == 0);
}

int main(void)
{
	pools();
	threads();
	mapped();
	return 0;
}
