/* Events that are recorded all the time: mc_event, mc_recording. `manycore trace show` reads the file. */
#include <manycore/trace.h>

#include <stdio.h>
#include <string.h>

#define REQUESTS 1
#define INTERNALS 2

static struct mc_event begin = MC_EVENT(REQUESTS, "requests", MC_EVENT_BEGIN, "Request", 2,
    { "id", MC_FIELD_U64 }, { "url", MC_FIELD_TEXT });
static struct mc_event end = MC_EVENT(REQUESTS, "requests", MC_EVENT_END, "Request", 0, { NULL, 0 });
static struct mc_event load = MC_EVENT(INTERNALS, "internals", MC_EVENT_COUNTER, "Load", 2,
    { "value", MC_FIELD_F64 }, { "change", MC_FIELD_I64 });

int main(int count, char **arguments)
{
	struct mc_recording_options options = MC_RECORDING_OPTIONS_INIT;
	const char *path = count > 1 ? arguments[1] : NULL;
	mc_recording *recording;
	union mc_value values[2];
	int i;

	/* Rings in memory, saved when something looks wrong. With a path, the rings lie in that file. */
	options.classes = 1 << REQUESTS;
	options.ring_bytes = 1 << 18;
	if (mc_recording_start(&recording, &options) != 0)
		return 1;
	for (i = 0; i < 100; i++) {
		values[0] = mc_u64((uint64_t)i);
		values[1] = mc_text("/index.html");
		mc_event_record(&begin, values);
		if (mc_event_is_on(&load)) { /* for values that cost something */
			values[0] = mc_f64(i / 100.0);
			values[1] = mc_i64(-1);
			mc_event_record(&load, values);
		}
		mc_event_record(&end, NULL);
		if (i == 50)
			mc_recording_set_classes(recording, 1 << REQUESTS | 1 << INTERNALS);
	}
	if (path != NULL && mc_recording_save(recording, path) != 0)
		return 1;
	printf("internals were on at last: %d\n", mc_event_is_on(&load));
	return mc_recording_stop(recording) != 0 || mc_event_is_on(&begin);
}
