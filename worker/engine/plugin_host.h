/* plugin_host.h - the two halves of plugin.h know each other through this: the loader
 * (plugin.c) and the guard that gives plugins their functions (plugin_guard.c). Private. */
#ifndef POSTRIDER_ENGINE_PLUGIN_HOST_H
#define POSTRIDER_ENGINE_PLUGIN_HOST_H

#include "worker/engine/plugin.h"

struct plugin {
    void *so; /* dlopen's handle */
    const struct provider *api;
    void *self;
    char *name; /* as it was asked for */
    struct provider_caps caps;
};

/* What `open` said; first word wins. Owned strings, NULL if nothing was said. */
struct provider_report {
    char *setting;
    char *why;
    char *cure;
};

/* The table every plugin gets. */
extern const struct provider_host plugin_host;

#endif
