/*
 * What the Rust side and the C schemes of `smr` know of each other.
 *
 * The table of pointers is Rust's; a scheme gets its address with each thread that joins. Nodes
 * are made and dropped by Rust, which counts them. A thread's loops run here, so that a section
 * is inlined as it is in a C program.
 */
#ifndef MANYCORE_SMR_H
#define MANYCORE_SMR_H

#include <stddef.h>
#include <stdint.h>

/* A node: room for what a scheme embeds, and the words that Rust uses. */
struct node {
	uintptr_t head[2];
	uint64_t value;
	uint64_t check;
	const void *counts;
	uint64_t pad[3];
};

/* Rust's side: a new node, and the end of one. */
struct node *manycore_smr_node(uint64_t value, const void *counts);
void manycore_smr_drop(struct node *node);

/* What every thread has; a scheme's own state follows it in memory. */
struct thread {
	void *domain;
	struct node **table;
	const void *counts;
};

/* A scheme as Rust calls it. */
struct scheme {
	/* NULL when there is no memory. */
	void *(*open)(void);
	void (*close)(void *domain);
	/* Aborts when there is no memory. */
	struct thread *(*join)(void *domain, struct node **table, const void *counts);
	void (*leave)(struct thread *thread);
	void (*empty)(struct thread *thread);
	uint64_t (*read)(struct thread *thread, size_t slot);
	void (*update)(struct thread *thread, size_t slot, uint64_t value);
	struct node *(*enter)(struct thread *thread, size_t slot);
	void (*exit)(struct thread *thread);
	void (*rest)(struct thread *thread);
	void (*flush)(struct thread *thread);
	/* Before and after a long wait outside of sections. */
	void (*pause)(struct thread *thread);
	void (*resume)(struct thread *thread);
	uint64_t (*run)(struct thread *thread, const uint16_t *ops, size_t count, int read_node,
	    uint64_t *number);
	void (*sections)(struct thread *thread, uint64_t count);
};

/* An operation is a slot, and this bit if it is an update. */
#define OP_UPDATE 0x8000u
/* A value is a number, and the slot above it. */
#define VALUE_SLOT_SHIFT 48

#endif
