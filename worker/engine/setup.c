/* setup.c - a configuration in force: its vendors opened, replaced as a whole on reload. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/internal.h"
#include "worker/io/clock.h"
#include "worker/io/log.h"
#include "worker/io/sdnotify.h"

void setup_close(struct setup *s)
{
    for (size_t i = 0; s->vendors && i < s->n; i++)
        vendor_free(s->vendors[i]);
    free(s->vendors);
    config_free(s->config);
    *s = (struct setup){0};
}

int setup_open(struct engine *e, const char *path, struct setup *ret, struct err *err)
{
    struct setup s = {0};
    int rc = config_load(path, &s.config, err);

    if (rc < 0)
        return rc;
    s.vendors = calloc(s.config->providers_count, sizeof(struct vendor *));
    if (!s.vendors)
        rc = -ENOMEM;
    for (size_t i = 0; rc == 0 && i < s.config->providers_count; i++) {
        rc = vendor_open(e, s.config, &s.config->providers[i], &s.vendors[i], err);
        if (rc == 0)
            s.n++;
    }
    if (rc < 0) {
        setup_close(&s);
        return rc;
    }
    *ret = s;
    return 0;
}

/* Old vendors keep their config alive with them: it is freed with the last of them. */
void setup_replace(struct engine *e, struct setup *next)
{
    struct setup old = e->setup;

    e->setup = *next;
    *next = (struct setup){0};
    for (size_t i = 0; i < old.n; i++) {
        struct vendor *v = old.vendors[i], *twin = setup_find(e, v->conf->name);

        if (twin)
            vendor_inherit(twin, v);
        v->next = e->retired;
        e->retired = v;
    }
    free(old.vendors);
    if (old.n > 0)
        e->retired->last_of = old.config;
    setup_reap(e);
}

void setup_reap(struct engine *e)
{
    /* The newest of a generation stands first and holds its config; all go together. */
    struct vendor **at = &e->retired;

    while (*at) {
        struct vendor *first = *at, *v = first;
        bool busy = false;

        do {
            busy = busy || v->claimed > 0 || v->in_air > 0 || v->asking > 0 || v->login.busy;
            v = v->next;
        } while (v && !v->last_of);
        if (busy) {
            while (*at != v)
                at = &(*at)->next;
            continue;
        }
        *at = v;
        struct config *config = first->last_of;

        while (first != v) {
            struct vendor *next = first->next;

            vendor_free(first);
            first = next;
        }
        config_free(config);
    }
}

struct vendor *setup_find(const struct engine *e, const char *name)
{
    for (size_t i = 0; i < e->setup.n; i++) {
        struct vendor *v = e->setup.vendors[i];

        if (v && strcmp(v->conf->name, name) == 0)
            return v;
    }
    return NULL;
}

/* The first vendor of the kind's route whose door is open; NULL when all are shut. */
struct vendor *setup_route(const struct engine *e, const struct kind *k, int64_t now)
{
    for (size_t i = 0; k->route ? k->route[i] != NULL : i < e->setup.n; i++) {
        struct vendor *v = k->route ? setup_find(e, k->route[i]) : e->setup.vendors[i];

        if (v && vendor_allowed(v, now) > 0)
            return v;
    }
    return NULL;
}

void engine_reload(struct engine *e)
{
    struct setup next = {0};
    struct err err = ERR_INIT;
    int rc;

    sdnotify_reloading();
    rc = setup_open(e, e->options->config_path, &next, &err);
    if (rc == 0)
        rc = config_reload_check(e->setup.config, next.config, &err);
    if (rc < 0) {
        log_event(LOG_LEVEL_ERROR, "reload_refused", "error=%s hint=%s", err_text(&err), err.hint);
        setup_close(&next);
    } else {
        setup_replace(e, &next);
        if (e->serve)
            serve_set_token(e->serve, e->setup.config->admin_token);
        log_event(LOG_LEVEL_INFO, "reloaded", "providers=%zu", e->setup.n);
    }
    err_done(&err);
    sdnotify_ready(NULL);
    engine_wake(e);
}
