/* Verdicts: one that proves less than it claims is PROVIDER_UNKNOWN (R6). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/plugin_host.h"

/* A text of 10 segments has 10 parts; a list far beyond is a mistake. */
enum { PARTS_MAX = 64 };

struct provider_verdict {
    const struct plugin *plugin;
    struct plugin_verdict *out;
    unsigned calls;
    const char *fault;
};

void plugin_verdict_clear(struct plugin_verdict *verdict)
{
    free(verdict->id);
    free(verdict->code);
    free(verdict->detail);
    plugin_ids_free(&verdict->parts, &verdict->parts_n);
    *verdict = (struct plugin_verdict){.outcome = PROVIDER_UNKNOWN, .retry_after_ms = -1};
}

void plugin_host_verdict(struct provider_verdict *v, enum provider_outcome outcome)
{
    if (v->calls++ > 0)
        v->fault = "it judged twice";
    else if ((unsigned)outcome >= PROVIDER_OUTCOME_MAX_)
        v->fault = "its verdict is out of range";
    else
        v->out->outcome = outcome;
}

void plugin_host_verdict_login(struct provider_verdict *v)
{
    plugin_host_verdict(v, PROVIDER_HELD);
    v->out->login = true;
    if (!v->plugin->api->login)
        v->fault = "it asks for a login it does not have";
}

int plugin_host_verdict_id(struct provider_verdict *v, const char *id, size_t len)
{
    char *copy;

    if (!id || !plugin_id_ok(id, len))
        return -EINVAL;
    copy = strndup(id, len);
    if (!copy)
        return -ENOMEM;
    free(v->out->id);
    v->out->id = copy;
    return 0;
}

int plugin_host_verdict_part(struct provider_verdict *v, const char *id, size_t len)
{
    if (!v->plugin->caps.several_ids)
        return -EINVAL; /* nobody is prepared to keep them */
    return plugin_ids_add(&v->out->parts, &v->out->parts_n, PARTS_MAX, id, len);
}

int plugin_host_verdict_code(struct provider_verdict *v, const char *code, size_t len)
{
    return plugin_set_code(&v->out->code, code, len);
}

int plugin_host_verdict_detail(struct provider_verdict *v, const char *text, size_t len)
{
    return plugin_set_detail(&v->out->detail, text, len);
}

void plugin_host_verdict_retry_after(struct provider_verdict *v, int64_t ms)
{
    plugin_set_wait(&v->out->retry_after_ms, ms);
}

void plugin_host_verdict_opt_out(struct provider_verdict *v)
{
    v->out->opt_out = true;
}

void plugin_host_verdict_duplicate(struct provider_verdict *v)
{
    v->out->duplicate = true;
}

/* Why the verdict proves less than it says, NULL if it does not. A plugin at fault and a vendor's
 * half answer both come here. */
static const char *unproven(const struct provider_verdict *v, const struct provider_reply *reply)
{
    const struct plugin_verdict *out = v->out;

    if (out->outcome == PROVIDER_UNKNOWN)
        return NULL;
    if (!reply->complete || reply->status < 200)
        return "the reply is not complete";
    if (out->outcome == PROVIDER_ACCEPTED && !out->id && !out->duplicate &&
        !v->plugin->caps.answers_without_id)
        return "accepted without the vendor's id";
    return NULL;
}

static void make_unknown(struct plugin_verdict *v, const char *why)
{
    v->outcome = PROVIDER_UNKNOWN;
    v->login = false;
    if (!v->detail)
        (void)plugin_set_clean(&v->detail, why, strlen(why), PLUGIN_DETAIL_SIZE, 0);
}

/* The first part's id is the message's; one part is none. Returns 0 or -ENOMEM. */
static int settle_parts(struct provider_verdict *v)
{
    struct plugin_verdict *out = v->out;

    if (out->parts_n == 0)
        return 0;
    if (!out->id && !(out->id = strdup(out->parts[0])))
        return -ENOMEM;
    if (strcmp(out->id, out->parts[0]) != 0)
        v->fault = "its first part is not its id";
    if (out->parts_n == 1)
        plugin_ids_free(&out->parts, &out->parts_n);
    return 0;
}

static bool is_patient(enum provider_outcome outcome)
{
    return outcome == PROVIDER_THROTTLED || outcome == PROVIDER_HELD || outcome == PROVIDER_REFUSED;
}

void plugin_judge(const struct plugin *plugin, const struct provider_reply *reply,
                  int64_t now_unix_s, struct plugin_verdict *verdict)
{
    struct provider_verdict v = {.plugin = plugin, .out = verdict};
    const char *why;
    int r;

    plugin_verdict_clear(verdict);
    r = plugin->api->judge(plugin->self, reply, &v);
    if (r == 0)
        r = settle_parts(&v);
    if (r == -ENOMEM)
        make_unknown(verdict, "out of memory while judging");
    else if (r != 0)
        v.fault = "judging failed";
    else if (v.calls == 0)
        v.fault = "it did not judge";
    verdict->fault = v.fault;
    why = v.fault ? v.fault : unproven(&v, reply);
    if (why)
        make_unknown(verdict, why);
    if (verdict->outcome != PROVIDER_REJECTED)
        verdict->opt_out = false;
    if (verdict->outcome != PROVIDER_ACCEPTED)
        verdict->duplicate = false;
    if (is_patient(verdict->outcome) && verdict->retry_after_ms < 0)
        plugin_read_wait(reply, now_unix_s, &verdict->retry_after_ms);
}
