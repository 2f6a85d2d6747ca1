/* Concurrency Kit: epochs, the big-reader lock, and the queue lock of Mellor-Crummey and Scott. */
#include <stdlib.h>
#include <string.h>

#include <ck_brlock.h>
#include <ck_epoch.h>
#include <ck_pr.h>
#include <ck_spinlock.h>

#include "smr.h"

_Static_assert(sizeof(ck_epoch_entry_t) <= sizeof(((struct node *)0)->head), "the head has room");

/* How many nodes a thread retires between two polls for a grace period. */
#define POLL_EVERY 64

static void *zeroed(size_t size)
{
	void *memory = NULL;

	if (posix_memalign(&memory, 128, size) != 0)
		return NULL;
	return memset(memory, 0, size);
}

/* --- epochs --------------------------------------------------------------------------------- */

/* A record cannot be given back while its epoch is in use: they are kept in a list. */
struct epoch_record {
	ck_epoch_record_t record;
	struct epoch_record *next;
};

struct epoch_domain {
	ck_epoch_t epoch;
	struct epoch_record *records;
};

struct epoch_thread {
	struct thread base;
	ck_epoch_record_t *record;
	unsigned int retired;
};

static void *epoch_open(void)
{
	struct epoch_domain *domain = zeroed(sizeof(*domain));

	if (domain != NULL)
		ck_epoch_init(&domain->epoch);
	return domain;
}

static void epoch_close(struct epoch_domain *domain)
{
	struct epoch_record *next, *record;

	for (record = domain->records; record != NULL; record = next) {
		next = record->next;
		free(record);
	}
	free(domain);
}

static void epoch_join(struct epoch_thread *self)
{
	struct epoch_domain *domain = self->base.domain;
	struct epoch_record *record = zeroed(sizeof(*record));

	if (record == NULL)
		abort();
	ck_epoch_register(&domain->epoch, &record->record, NULL);
	self->record = &record->record;
	do {
		record->next = ck_pr_load_ptr(&domain->records);
	} while (!ck_pr_cas_ptr(&domain->records, record->next, record));
}

static void epoch_leave(struct epoch_thread *self)
{
	ck_epoch_barrier(self->record);
	ck_epoch_unregister(self->record);
	free(self);
}

static void epoch_drop(ck_epoch_entry_t *entry)
{
	manycore_smr_drop((struct node *)entry);
}

/* The section keeps the old node's pointer from meaning a newer node while it is queued. */
static inline void epoch_update(struct epoch_thread *self, struct node **slot, struct node *new)
{
	struct node *old;

	ck_epoch_begin(self->record, NULL);
	old = ck_pr_fas_ptr(slot, new);
	ck_epoch_call(self->record, (ck_epoch_entry_t *)old->head, epoch_drop);
	ck_epoch_end(self->record, NULL);
	if (++self->retired % POLL_EVERY == 0)
		ck_epoch_poll(self->record);
}

#define NAME ck_epoch
#define STATE struct epoch_thread
#define LOCK(self) ck_epoch_begin((self)->record, NULL)
#define UNLOCK(self) ck_epoch_end((self)->record, NULL)
#define LOAD(slot) ((struct node *)ck_pr_load_ptr(slot))
#define UPDATE(self, slot, new) epoch_update(self, slot, new)
#define OPEN() epoch_open()
#define CLOSE(domain) epoch_close(domain)
#define JOIN(self) epoch_join(self)
#define LEAVE(self) epoch_leave(self)
#define REST(self) ((void)(self))
#define FLUSH(self) ((void)ck_epoch_poll((self)->record))
#define PAUSE(self) ((void)(self))
#define RESUME(self) ((void)(self))
#include "scheme.inc"

/* --- the big-reader lock -------------------------------------------------------------------- */

struct brlock_thread {
	struct thread base;
	ck_brlock_reader_t reader;
};

static void *brlock_open(void)
{
	ck_brlock_t *lock = zeroed(sizeof(*lock));

	if (lock != NULL)
		ck_brlock_init(lock);
	return lock;
}

static void brlock_leave(struct brlock_thread *self)
{
	ck_brlock_read_unregister(self->base.domain, &self->reader);
	free(self);
}

static inline void brlock_update(struct brlock_thread *self, struct node **slot, struct node *new)
{
	struct node *old;

	ck_brlock_write_lock(self->base.domain);
	old = *slot;
	*slot = new;
	ck_brlock_write_unlock(self->base.domain);
	manycore_smr_drop(old);
}

#define NAME ck_brlock
#define STATE struct brlock_thread
#define LOCK(self) ck_brlock_read_lock((self)->base.domain, &(self)->reader)
#define UNLOCK(self) ck_brlock_read_unlock(&(self)->reader)
#define LOAD(slot) (*(slot))
#define UPDATE(self, slot, new) brlock_update(self, slot, new)
#define OPEN() brlock_open()
#define CLOSE(domain) free(domain)
#define JOIN(self) ck_brlock_read_register((self)->base.domain, &(self)->reader)
#define LEAVE(self) brlock_leave(self)
#define REST(self) ((void)(self))
#define FLUSH(self) ((void)(self))
#define PAUSE(self) ((void)(self))
#define RESUME(self) ((void)(self))
#include "scheme.inc"

/* --- the queue lock ------------------------------------------------------------------------- */

struct mcs_thread {
	struct thread base;
	ck_spinlock_mcs_context_t context;
};

static void *mcs_open(void)
{
	ck_spinlock_mcs_t *lock = zeroed(sizeof(*lock));

	if (lock != NULL)
		ck_spinlock_mcs_init(lock);
	return lock;
}

static inline void mcs_update(struct mcs_thread *self, struct node **slot, struct node *new)
{
	struct node *old;

	ck_spinlock_mcs_lock(self->base.domain, &self->context);
	old = *slot;
	*slot = new;
	ck_spinlock_mcs_unlock(self->base.domain, &self->context);
	manycore_smr_drop(old);
}

#define NAME ck_mcs
#define STATE struct mcs_thread
#define LOCK(self) ck_spinlock_mcs_lock((self)->base.domain, &(self)->context)
#define UNLOCK(self) ck_spinlock_mcs_unlock((self)->base.domain, &(self)->context)
#define LOAD(slot) (*(slot))
#define UPDATE(self, slot, new) mcs_update(self, slot, new)
#define OPEN() mcs_open()
#define CLOSE(domain) free(domain)
#define JOIN(self) ((void)(self))
#define LEAVE(self) free(self)
#define REST(self) ((void)(self))
#define FLUSH(self) ((void)(self))
#define PAUSE(self) ((void)(self))
#define RESUME(self) ((void)(self))
#include "scheme.inc"
