/* Logins: a token becomes part of requests, so it may hold nothing that breaks one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/err.h"
#include "worker/engine/plugin_host.h"

enum { TOKEN_MAX = 16 * 1024 };

struct provider_grant {
    struct plugin_grant *out;
    unsigned calls;
    const char *fault;
};

void plugin_grant_clear(struct plugin_grant *grant)
{
    free(grant->token);
    free(grant->code);
    free(grant->detail);
    *grant = (struct plugin_grant){0};
}

bool plugin_logs_in(const struct plugin *plugin)
{
    return plugin->api->login != NULL;
}

int plugin_host_grant_token(struct provider_grant *g, const char *token, size_t len,
                            int64_t lifetime_ms)
{
    char *copy;

    if (g->calls++ > 0)
        g->fault = "it granted twice";
    else if (!token || len > TOKEN_MAX || memchr(token, '\0', len))
        g->fault = "its token is not one";
    else if (lifetime_ms < 0)
        g->fault = "its token's lifetime is negative";
    if (g->fault)
        return -EINVAL;
    copy = strndup(token, len);
    if (!copy)
        return -ENOMEM;
    if (!plugin_is_header_value(copy)) {
        g->fault = "its token is not one";
        free(copy);
        return -EINVAL;
    }
    g->out->token = copy;
    g->out->lifetime_ms = lifetime_ms;
    return 0;
}

void plugin_host_grant_refuse(struct provider_grant *g, const char *code, const char *detail)
{
    if (g->calls++ > 0)
        g->fault = "it granted twice";
    g->out->refused = true;
    (void)plugin_set_code(&g->out->code, code, code ? strlen(code) : 0);
    (void)plugin_set_detail(&g->out->detail, detail, detail ? strlen(detail) : 0);
}

/* A grant at fault is none. */
static void drop(struct plugin_grant *grant, const char *fault)
{
    plugin_grant_clear(grant);
    grant->fault = fault;
}

int plugin_login(const struct plugin *plugin, int64_t now_ms, struct plugin_request *request,
                 struct plugin_grant *grant, struct err *err)
{
    struct provider_req req = {.out = request};
    struct provider_grant g = {.out = grant};
    int r;

    plugin_request_clear(request);
    plugin_grant_clear(grant);
    if (!plugin_logs_in(plugin))
        return err_set(err, -EINVAL, "plugin \"%s\": it has no login", plugin->name);
    r = plugin->api->login(plugin->self, now_ms, &req, &g);
    if (r == 0 && !req.error && g.calls == 0)
        return plugin_req_end(plugin, &req, r, "login", err);
    if (r == 0 && !req.error && grant->token && !g.fault && !request->method && !request->url)
        return 0; /* made here: nothing leaves */
    if (r == 0 && !req.error) {
        if (!g.fault)
            g.fault = grant->refused ? "it refuses its own login" : "a token and a request at once";
        r = err_set(err, -EINVAL, "plugin \"%s\": %s", plugin->name, g.fault);
        plugin_request_clear(request);
    } else {
        r = plugin_req_end(plugin, &req, r, "login", err);
    }
    drop(grant, g.fault);
    return r;
}

void plugin_login_judge(const struct plugin *plugin, const struct provider_reply *reply,
                        struct plugin_grant *grant)
{
    struct provider_grant g = {.out = grant};
    int r;

    plugin_grant_clear(grant);
    if (!plugin->api->login_judge || !reply->complete || reply->status < 200)
        return;
    r = plugin->api->login_judge(plugin->self, reply, &g);
    if (r != 0 && r != -ENOMEM && !g.fault)
        g.fault = "judging a login failed";
    if (r != 0 || g.fault)
        drop(grant, g.fault);
}
