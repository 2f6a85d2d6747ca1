/*
 * Tracing that can stay on: each thread records events into its own ring. `manycore trace` shows and
 * converts recordings.
 *
 *     static struct mc_event miss = MC_EVENT(1, "cache", MC_EVENT_INSTANT, "Miss", 1,
 *         { "bytes", MC_FIELD_U64 });
 *
 *     mc_recording_start(&recording, &options);      // with the path of a file
 *     if (mc_event_is_on(&miss)) {
 *         union mc_value bytes = mc_u64(300);
 *         mc_event_record(&miss, &bytes);
 *     }
 *     mc_recording_stop(recording);
 *
 * Recording is wait-free unless the policy is to wait. It takes no lock, except for the first event of a
 * thread and of a place. If the rings lie in a file, every event can be read after the process was
 * killed.
 */
#ifndef MANYCORE_TRACE_H
#define MANYCORE_TRACE_H

#include "manycore.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A running recording. A process has one at a time. */
typedef struct mc_recording mc_recording;

#define MC_TRACE_OVERWRITE 0 /* keeps the last events of each thread */
#define MC_TRACE_DROP 1 /* only streams: keeps the first events, counts the lost ones */
#define MC_TRACE_BLOCK 2 /* only streams: keeps all events; threads wait for the file */

#define MC_TRACE_STREAM UINT64_C(1) /* the file gets events as they come, not the rings */

/* Zero is the default of each field. */
struct mc_recording_options {
	size_t size; /* of this struct: MC_RECORDING_OPTIONS_INIT */
	uint64_t flags;
	const char *path; /* of a file; null for rings in memory and mc_recording_save */
	uint64_t classes; /* a bit for each class that is on; 0 for all */
	size_t ring_bytes; /* for each thread: 1 MiB */
	uint64_t policy;
};

#define MC_RECORDING_OPTIONS_INIT { sizeof(struct mc_recording_options), 0, NULL, 0, 0, 0 }

#define MC_EVENT_INSTANT 0 /* something happened */
#define MC_EVENT_BEGIN 1 /* a span of this name begins in this thread */
#define MC_EVENT_END 2 /* the innermost span of this thread ends */
#define MC_EVENT_COUNTER 3 /* the field "value" has this value from now on */
#define MC_EVENT_FLOW_BEGIN 4 /* work leaves this thread under the number in the field "flow" */
#define MC_EVENT_FLOW_END 5 /* work with that number arrives in this thread */

#define MC_FIELD_U64 1
#define MC_FIELD_I64 2
#define MC_FIELD_F64 3
#define MC_FIELD_TEXT 4 /* ends with a zero; kept up to 480 bytes */

struct mc_field {
	const char *name;
	uint64_t type;
};

#define MC_EVENT_FIELDS 8

/* A place in the program that records. It lies in static memory, and MC_EVENT makes it. */
struct mc_event {
	const char *name;
	const char *class_name;
	const char *file;
	uint32_t line;
	uint32_t class_number; /* below 64 */
	uint32_t kind;
	uint32_t field_count; /* at most MC_EVENT_FIELDS */
	struct mc_field fields[MC_EVENT_FIELDS];
	void *site_;
};

/*
 * The initializer of an event. Each of its FIELD_COUNT fields is { name, type }; without fields, { NULL,
 * 0 }.
 */
#define MC_EVENT(class_number, class_name, kind, name, field_count, ...) \
	{ name, class_name, __FILE__, __LINE__, class_number, kind, field_count, { __VA_ARGS__ }, NULL }

union mc_value {
	uint64_t u64;
	int64_t i64;
	double f64;
	const char *text;
};

static inline union mc_value mc_u64(uint64_t value)
{
	union mc_value made;

	made.u64 = value;
	return made;
}

static inline union mc_value mc_i64(int64_t value)
{
	union mc_value made;

	made.i64 = value;
	return made;
}

static inline union mc_value mc_f64(double value)
{
	union mc_value made;

	made.f64 = value;
	return made;
}

static inline union mc_value mc_text(const char *value)
{
	union mc_value made;

	made.text = value;
	return made;
}

/*
 * Starts a recording, in *out. OPTIONS may be null. -EINVAL: OUT is null, or an option is invalid.
 * -EEXIST: a recording runs already. Otherwise the system's error for the file.
 */
int mc_recording_start(mc_recording **out, const struct mc_recording_options *options);

/* Switches classes on and off. Threads see the change soon. */
void mc_recording_set_classes(mc_recording *recording, uint64_t classes);

/* Writes what the rings hold now to a file. The recording goes on. -EINVAL: a null pointer. */
int mc_recording_save(mc_recording *recording, const char *path);

/* Ends the recording and frees it. Returns the system's error if a stream could not be written. */
int mc_recording_stop(mc_recording *recording);

/* Returns 1 if the event would be recorded now, else 0. */
int mc_event_is_on(const struct mc_event *event);

/*
 * Records an event if its class is on. Returns 0, even if the class is off. VALUES has a value for each
 * field, and may be null if there are none. -EINVAL: the event is invalid.
 */
int mc_event_record(struct mc_event *event, const union mc_value *values);

#ifdef __cplusplus
}
#endif

#endif
