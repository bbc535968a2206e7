/* login.c - tokens of vendors that want one: fetched before anything is claimed for them, renewed
 * ahead of their end, and once more when the vendor refuses one.
 *
 * Without a token nothing is claimed for a vendor (R8). A token that was never accepted since it
 * was granted is not renewed in a circle: the provider is held like any other with bad
 * credentials. Tokens are never logged. */
#include <stdlib.h>
#include <string.h>

#include "worker/core/backoff.h"
#include "worker/engine/internal.h"
#include "worker/io/clock.h"
#include "worker/io/log.h"

enum {
    LOGIN_PAUSE_MS = 1000,
    LOGIN_PAUSE_MAX_MS = 60000,
    LOGIN_AHEAD = 10 /* renewed when a tenth of its life is left */
};

static bool is_over(const struct login *l, int64_t now)
{
    return l->expires > 0 && now >= l->expires;
}

bool login_ready(const struct vendor *v, int64_t now)
{
    return !plugin_logs_in(v->plugin) || (v->login.token && !is_over(&v->login, now));
}

void login_done(struct login *l)
{
    if (l->token)
        explicit_bzero(l->token, strlen(l->token));
    free(l->token);
    *l = (struct login){0};
}

static void drop(struct login *l)
{
    if (l->token)
        explicit_bzero(l->token, strlen(l->token));
    free(l->token);
    l->token = NULL;
}

static void take(struct engine *e, struct vendor *v, struct plugin_grant *grant)
{
    struct login *l = &v->login;
    int64_t now = clock_boot_ms();

    drop(l);
    l->token = grant->token;
    grant->token = NULL;
    l->generation++;
    l->proven = false;
    l->fails = 0;
    l->expires = grant->lifetime_ms > 0 ? now + grant->lifetime_ms : 0;
    l->renew = grant->lifetime_ms > 0 ? l->expires - grant->lifetime_ms / LOGIN_AHEAD : INT64_MAX;
    log_event(LOG_LEVEL_INFO, "logged_in", "provider=%s lifetime_s=%lld", v->conf->name,
              (long long)(grant->lifetime_ms / 1000));
    engine_wake(e);
}

static void missed(struct vendor *v, const struct plugin_grant *grant, const char *why)
{
    struct login *l = &v->login;
    int64_t pause = backoff_ms(LOGIN_PAUSE_MS, LOGIN_PAUSE_MAX_MS, ++l->fails, engine_jitter());

    if (grant->refused)
        pause = LOGIN_PAUSE_MAX_MS;
    l->again = clock_boot_ms() + pause;
    log_event(LOG_LEVEL_ERROR, grant->refused ? "login_refused" : "login_failed",
              "provider=%s why=%s code=%s detail=%s ms=%lld", v->conf->name, why, grant->code,
              grant->detail, (long long)pause);
}

static void on_login(void *arg, const struct http_result *r)
{
    struct vendor *v = arg;
    struct provider_reply reply = vendor_reply(r);
    struct plugin_grant grant = {0};

    v->login.busy = false;
    if (r->complete)
        plugin_login_judge(v->plugin, &reply, &grant);
    if (grant.token)
        take(v->login.engine, v, &grant);
    else
        missed(v, &grant,
               grant.fault   ? grant.fault
               : r->complete ? "no token in the answer"
                             : r->error);
    plugin_grant_clear(&grant);
}

static void log_in(struct engine *e, struct vendor *v)
{
    struct plugin_request built = {0};
    struct plugin_grant grant = {0};
    struct err err = ERR_INIT;
    int rc = plugin_login(v->plugin, clock_real_ms(), &built, &grant, &err);

    v->login.engine = e;
    if (rc == 0 && grant.token) { /* made here: no request */
        take(e, v, &grant);
    } else if (rc == 0) {
        struct http_request request = vendor_request(v, &built);

        request.may_repeat = true; /* a second token harms nobody */
        request.arg = v;
        rc = http_start(v->pool, &request, on_login, NULL, &err);
        v->login.busy = rc == 0;
    }
    if (rc < 0)
        missed(v, &grant, err_text(&err));
    plugin_request_clear(&built);
    plugin_grant_clear(&grant);
    err_done(&err);
}

void login_turn(struct engine *e)
{
    int64_t now = clock_boot_ms();

    for (size_t i = 0; i < e->setup.n; i++) {
        struct vendor *v = e->setup.vendors[i];
        struct login *l = &v->login;

        if (!plugin_logs_in(v->plugin) || l->busy || now < l->again)
            continue;
        if (!login_ready(v, now) || now >= l->renew)
            log_in(e, v);
    }
}

bool login_refused(struct engine *e, struct vendor *v, uint64_t generation)
{
    struct login *l = &v->login;
    bool again = generation != l->generation || l->proven;

    if (generation == l->generation && l->token) {
        log_event(LOG_LEVEL_WARN, "token_refused", "provider=%s proven=%d", v->conf->name,
                  (int)l->proven);
        drop(l);
        if (!again)
            l->again = clock_boot_ms() + LOGIN_PAUSE_MAX_MS;
        login_turn(e);
    }
    return again;
}

void login_proven(struct vendor *v, uint64_t generation)
{
    if (generation == v->login.generation)
        v->login.proven = true;
}
