/* The library's own sections as C programs have them: inlined from its header. */
#include <stdlib.h>
#include <string.h>

#include "smr.h"

#include <manycore/manycore.h>

struct own_thread {
	struct thread base;
};

_Static_assert(sizeof(struct mc_head) <= sizeof(((struct node *)0)->head), "the head has room");

static void *own_open(void)
{
	const mc_domain *domain = NULL;

	return mc_domain_new(&domain, NULL) == 0 ? (void *)(uintptr_t)domain : NULL;
}

static void own_close(void *domain)
{
	if (mc_domain_free(domain) != 0)
		abort();
}

static void own_free(struct mc_head *head)
{
	manycore_smr_drop((struct node *)head);
}

static void own_leave(struct own_thread *self)
{
	mc_thread_unregister(self->base.domain);
	free(self);
}

static inline void own_update(struct own_thread *self, struct node **slot, struct node *new)
{
	const mc_domain *domain = self->base.domain;
	struct node *old;

	mc_enter(domain);
	old = mc_exchange_pointer(*slot, new);
	mc_retire(domain, (struct mc_head *)old->head, sizeof(*old), own_free);
	mc_leave(domain);
}

#define NAME manycore_c
#define STATE struct own_thread
#define LOCK(self) mc_enter((self)->base.domain)
#define UNLOCK(self) mc_leave((self)->base.domain)
#define LOAD(slot) mc_dereference(*(slot))
#define UPDATE(self, slot, new) own_update(self, slot, new)
#define OPEN() own_open()
#define CLOSE(domain) own_close(domain)
#define JOIN(self) mc_thread_register((self)->base.domain)
#define LEAVE(self) own_leave(self)
#define REST(self) ((void)(self))
#define FLUSH(self) mc_collect((self)->base.domain)
#define PAUSE(self) mc_collect((self)->base.domain)
#define RESUME(self) ((void)(self))
#include "scheme.inc"

/* The same threads stay inside, and say when they hold nothing: as liburcu's qsbr. */
static inline void resting_update(struct own_thread *self, struct node **slot, struct node *new)
{
	struct node *old = mc_exchange_pointer(*slot, new);

	mc_retire(self->base.domain, (struct mc_head *)old->head, sizeof(*old), own_free);
}

static void resting_leave(struct own_thread *self)
{
	mc_leave(self->base.domain);
	own_leave(self);
}

#define NAME manycore_c_quiescent
#define STATE struct own_thread
#define LOCK(self) ((void)(self))
#define UNLOCK(self) ((void)(self))
#define LOAD(slot) mc_dereference(*(slot))
#define UPDATE(self, slot, new) resting_update(self, slot, new)
#define OPEN() own_open()
#define CLOSE(domain) own_close(domain)
#define JOIN(self) mc_enter((self)->base.domain)
#define LEAVE(self) resting_leave(self)
#define REST(self) mc_quiescent((self)->base.domain)
#define FLUSH(self) (mc_quiescent((self)->base.domain), (void)mc_collect((self)->base.domain))
#define PAUSE(self) (mc_leave((self)->base.domain), (void)mc_collect((self)->base.domain))
#define RESUME(self) mc_enter((self)->base.domain)
#include "scheme.inc"
