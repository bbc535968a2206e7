/* What is asked of a configuration that was read: does it fit its plugins, is something odd,
 * may a running worker take it over. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/provider.h"
#include "worker/core/err.h"
#include "worker/engine/config.h"

int config_check_plugin(const struct config *config, const struct config_provider *provider,
                        const struct provider_caps *caps, struct err *err)
{
    if (caps->dedup != PROVIDER_DEDUP_NONE && config->lease_s * 1000 >= caps->dedup_window_ms) {
        err_set(err, -EINVAL,
                "provider \"%s\": lease_s is %" PRId64 " (%" PRId64 " ms), but the vendor "
                "remembers a key for %" PRId64 " ms only",
                provider->name, config->lease_s, config->lease_s * 1000, caps->dedup_window_ms);
        err_hint(err, "lower lease_s, or declare no de-duplication: a resend after the window "
                      "would be doubled");
        return -EINVAL;
    }
    if (caps->worst_answer_ms > provider->timeout_ms) {
        err_set(err, -EINVAL,
                "provider \"%s\": timeout_ms is %" PRId64 ", but plugin \"%s\" says an answer may "
                "take %" PRId64 " ms",
                provider->name, provider->timeout_ms, provider->plugin, caps->worst_answer_ms);
        err_hint(err,
                 "raise timeout_ms to at least %" PRId64 ": giving up earlier leaves "
                 "messages unknown that were taken",
                 caps->worst_answer_ms);
        return -EINVAL;
    }
    return 0;
}

/* ---- warnings ----------------------------------------------------------------------------- */

static void tell(config_warn_fn *warn, void *arg, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void tell(config_warn_fn *warn, void *arg, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) >= 0)
        warn(arg, text);
    va_end(ap);
    free(text);
}

void config_warnings(const struct config *config, config_warn_fn *warn, void *arg)
{
    for (size_t i = 0; i < config->notes_count; i++)
        warn(arg, config->notes[i]);
    for (size_t i = 0; i < config->providers_count; i++) {
        const struct config_provider *p = &config->providers[i];
        int64_t end = p->timeout_ms + config->settle_allowance_ms;

        if (config->drain_s * 1000 < end)
            tell(warn, arg,
                 "provider \"%s\": drain_s is %" PRId64 " (%" PRId64 " ms), shorter than "
                 "timeout_ms %" PRId64 " + settle_allowance_ms %" PRId64 ": a stop may leave "
                 "messages unknown",
                 p->name, config->drain_s, config->drain_s * 1000, p->timeout_ms,
                 config->settle_allowance_ms);
        if (p->receipt_token && (!config->public_url || !config->listen))
            tell(warn, arg,
                 "provider \"%s\": receipt_token is set, but %s is not: no receipts are taken",
                 p->name, config->public_url ? "listen" : "public_url");
        if (p->rate_per_s != 0)
            tell(warn, arg, "provider \"%s\": rate_per_s is %" PRId64 ", but is not enforced yet",
                 p->name, p->rate_per_s);
    }
}

/* ---- reload ------------------------------------------------------------------------------- */

static const void *field(const struct config_setting *s, const void *base)
{
    return (const char *)base + s->offset;
}

static bool same(const struct config_setting *s, const void *a, const void *b)
{
    char *x, *y;

    if (s->type == CONFIG_OBJECT)
        return true;
    if (s->type == CONFIG_INT)
        return memcmp(field(s, a), field(s, b), sizeof(int64_t)) == 0;
    memcpy(&x, field(s, a), sizeof(x));
    memcpy(&y, field(s, b), sizeof(y));
    return x && y ? strcmp(x, y) == 0 : x == y;
}

static int check_table(const struct config_setting *table, const void *now, const void *next,
                       const char *where, struct err *err)
{
    for (const struct config_setting *s = table; s->name; s++) {
        if (s->reloadable || same(s, now, next))
            continue;
        err_set(err, -EINVAL, "%s%s cannot change while the worker runs", where, s->name);
        err_hint(err, "restart the worker to use the new %s", s->name);
        return -EINVAL;
    }
    return 0;
}

static int refuse_set(const char *name, const char *what, struct err *err)
{
    err_set(err, -EINVAL, "provider \"%s\" cannot be %s while the worker runs", name, what);
    err_hint(err, "restart the worker");
    return -EINVAL;
}

static int check_provider(const struct config *next, const struct config_provider *p,
                          struct err *err)
{
    const struct config_provider *q = config_provider_find(next, p->name);
    char *where = NULL;
    int r;

    if (!q)
        return refuse_set(p->name, "removed", err);
    if (asprintf(&where, "provider \"%s\": ", p->name) < 0)
        return -ENOMEM;
    r = check_table(config_provider_settings, p, q, where, err);
    free(where);
    return r;
}

int config_reload_check(const struct config *now, const struct config *next, struct err *err)
{
    int r = check_table(config_settings, now, next, "", err);

    for (size_t i = 0; i < now->providers_count && r == 0; i++)
        r = check_provider(next, &now->providers[i], err);
    for (size_t i = 0; i < next->providers_count && r == 0; i++)
        if (!config_provider_find(now, next->providers[i].name))
            r = refuse_set(next->providers[i].name, "added", err);
    return r;
}
