/* Unloads a plug-in that has read and retired, while its threads live on. */
#ifdef PLUGIN
#include "check.h"

void plugin_work(const mc_domain *domain, long *count);

void plugin_work(const mc_domain *domain, long *count)
{
	mc_enter(domain);
	retire_counted(domain, count);
	mc_leave(domain);
	CHECK(mc_barrier(domain) == 0); /* before its call-back is unloaded */
}
#else
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loads it by dlopen alone: the program itself is not linked with the library. */
static const char *path;
static long count;

static void *use(void *argument)
{
	void *plugin = dlopen(path, RTLD_NOW), *symbol;
	const void *(*domain)(void);
	void (*work)(const void *, long *);

	(void)argument;
	if (plugin == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		abort();
	}
	symbol = dlsym(plugin, "mc_domain_default");
	memcpy(&domain, &symbol, sizeof(symbol));
	symbol = dlsym(plugin, "plugin_work");
	memcpy(&work, &symbol, sizeof(symbol));
	work(domain(), &count);
	if (dlclose(plugin) != 0)
		abort();
	return NULL;
}

int main(int argc, char **argv)
{
	int i;

	if (argc != 2)
		return 2;
	path = argv[1];
	for (i = 0; i < 20; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, use, NULL) != 0)
			return 1;
		pthread_join(thread, NULL);
		use(NULL);
	}
	return count != 40;
}
#endif
