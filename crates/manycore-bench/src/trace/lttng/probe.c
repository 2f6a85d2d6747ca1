/* Tracepoints of LTTng-UST, for a process that loads this as a shared library. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "events.h"

void manycore_event(uint64_t a, uint64_t b)
{
	lttng_ust_tracepoint(manycore, sample, a, b);
}

void manycore_span(uint64_t a, uint64_t b)
{
	lttng_ust_tracepoint(manycore, part_begin, a, b);
	lttng_ust_tracepoint(manycore, part_end);
}

void manycore_off(uint64_t a, uint64_t b)
{
	lttng_ust_tracepoint(manycore, hidden, a, b);
}

/* Whether all of them are recorded by now, or are off. */
int manycore_is_on(void)
{
	return lttng_ust_tracepoint_enabled(manycore, sample) &&
	       lttng_ust_tracepoint_enabled(manycore, part_begin) &&
	       lttng_ust_tracepoint_enabled(manycore, part_end);
}
