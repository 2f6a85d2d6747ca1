#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER manycore

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./events.h"

#if !defined(EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define EVENTS_H
#include <stdint.h>

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT_CLASS(manycore, fields,
	LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b),
	LTTNG_UST_TP_FIELDS(
		lttng_ust_field_integer(uint64_t, a, a)
		lttng_ust_field_integer(uint64_t, b, b)))

#define WITH_FIELDS(name) \
	LTTNG_UST_TRACEPOINT_EVENT_INSTANCE(manycore, fields, manycore, name, \
		LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b))
WITH_FIELDS(sample)
WITH_FIELDS(part_begin)
WITH_FIELDS(hidden)

LTTNG_UST_TRACEPOINT_EVENT(manycore, part_end, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())
#endif

#include <lttng/tracepoint-event.h>
