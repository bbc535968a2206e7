/* Look-ups: an answer that proves less than it claims is PROVIDER_CANNOT_SAY. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/err.h"
#include "worker/engine/plugin_host.h"

enum {
    CANDIDATES_MAX = 100,
    CURSOR_MAX = 4096,
};

struct provider_answer {
    const struct plugin *plugin;
    struct plugin_answer *out;
    unsigned calls; /* of answer, answer_more and answer_login: one in all */
    const char *fault;
};

void plugin_answer_clear(struct plugin_answer *answer)
{
    plugin_ids_free(&answer->ids, &answer->ids_n);
    free(answer->cursor);
    free(answer->code);
    free(answer->detail);
    *answer = (struct plugin_answer){.finding = PROVIDER_CANNOT_SAY, .retry_after_ms = -1};
}

bool plugin_asks(const struct plugin *plugin)
{
    return plugin->caps.ask != PROVIDER_ASK_NONE && plugin->api->ask;
}

int plugin_ask(const struct plugin *plugin, const struct provider_question *question,
               struct plugin_request *request, struct err *err)
{
    struct provider_req req = {.out = request};
    int r = plugin_asks(plugin) ? 0 : -ENODATA;

    plugin_request_clear(request);
    if (r == 0)
        r = plugin->api->ask(plugin->self, question, &req);
    if (r == -ENODATA && !req.error) {
        plugin_request_clear(request);
        return err_set(err, -ENODATA, "plugin \"%s\": there is nothing to ask by", plugin->name);
    }
    return plugin_req_end(plugin, &req, r, "ask", err);
}

/* ---- what the plugin says ------------------------------------------------------------------- */

static bool said_twice(struct provider_answer *a)
{
    if (a->calls++ > 0)
        a->fault = "it answered twice";
    return a->calls > 1;
}

void plugin_host_answer(struct provider_answer *a, enum provider_finding finding)
{
    if (said_twice(a))
        return;
    if ((unsigned)finding >= PROVIDER_FINDING_MAX_)
        a->fault = "its finding is out of range";
    else
        a->out->finding = finding;
}

int plugin_host_answer_id(struct provider_answer *a, const char *id, size_t len)
{
    return plugin_ids_add(&a->out->ids, &a->out->ids_n, CANDIDATES_MAX, id, len);
}

int plugin_host_answer_more(struct provider_answer *a, const char *cursor, size_t len)
{
    if (said_twice(a) || !cursor || len == 0 || len > CURSOR_MAX || memchr(cursor, '\0', len))
        return -EINVAL;
    a->out->cursor = strndup(cursor, len);
    return a->out->cursor ? 0 : -ENOMEM;
}

void plugin_host_answer_retry_after(struct provider_answer *a, int64_t ms)
{
    plugin_set_wait(&a->out->retry_after_ms, ms);
}

int plugin_host_answer_code(struct provider_answer *a, const char *code, size_t len)
{
    return plugin_set_code(&a->out->code, code, len);
}

int plugin_host_answer_detail(struct provider_answer *a, const char *text, size_t len)
{
    return plugin_set_detail(&a->out->detail, text, len);
}

void plugin_host_answer_login(struct provider_answer *a)
{
    if (said_twice(a))
        return;
    a->out->login = true;
    if (!a->plugin->api->login)
        a->fault = "it asks for a login it does not have";
}

/* ---- what is believed ----------------------------------------------------------------------- */

static void cannot_say(struct plugin_answer *answer, const char *why)
{
    answer->finding = PROVIDER_CANNOT_SAY;
    answer->login = false;
    plugin_ids_free(&answer->ids, &answer->ids_n);
    free(answer->cursor);
    answer->cursor = NULL;
    if (!answer->detail)
        (void)plugin_set_clean(&answer->detail, why, strlen(why), PLUGIN_DETAIL_SIZE, 0);
}

static bool same_page(const struct provider_question *q, const struct plugin_answer *answer)
{
    return answer->cursor && q->cursor && strcmp(answer->cursor, q->cursor) == 0;
}

/* NULL when the answer is good for what it says. */
static const char *unproven(const struct plugin *plugin, const struct plugin_answer *answer)
{
    if (answer->finding == PROVIDER_HAS_IT && answer->ids_n == 0 &&
        (plugin->caps.ask == PROVIDER_ASK_BY_TEXT || !plugin->caps.answers_without_id))
        return "found without the vendor's id";
    return NULL;
}

static const char *judge(const struct plugin *plugin, const struct provider_question *question,
                         const struct provider_reply *reply, struct plugin_answer *answer)
{
    struct provider_answer a = {.plugin = plugin, .out = answer};
    int r = plugin->api->ask_judge(plugin->self, question, reply, &a);

    if (r == -ENOMEM)
        return "out of memory while judging";
    if (r != 0)
        a.fault = "judging an answer failed";
    else if (a.calls == 0)
        a.fault = "it did not answer";
    else if (same_page(question, answer))
        a.fault = "its next page is the same page";
    answer->fault = a.fault;
    return a.fault;
}

void plugin_ask_judge(const struct plugin *plugin, const struct provider_question *question,
                      const struct provider_reply *reply, int64_t now_unix_s,
                      struct plugin_answer *answer)
{
    const char *why = NULL;

    plugin_answer_clear(answer);
    if (!plugin_asks(plugin))
        why = "it has no look-up";
    else if (!reply->complete || reply->status < 200)
        why = "the reply is not complete";
    else
        why = judge(plugin, question, reply, answer);
    /* Asked about by its id, it is known by its id. */
    if (!why && answer->finding == PROVIDER_HAS_IT && answer->ids_n == 0 && question->vendor_id &&
        plugin_ids_add(&answer->ids, &answer->ids_n, CANDIDATES_MAX, question->vendor_id,
                       strlen(question->vendor_id)) == -ENOMEM)
        why = "out of memory while judging";
    if (!why)
        why = unproven(plugin, answer);
    if (why)
        cannot_say(answer, why);
    /* A page may bring candidates and say that the list goes on. */
    if (answer->finding != PROVIDER_HAS_IT && !answer->cursor)
        plugin_ids_free(&answer->ids, &answer->ids_n);
    if (answer->finding == PROVIDER_CANNOT_SAY && answer->retry_after_ms < 0)
        plugin_read_wait(reply, now_unix_s, &answer->retry_after_ms);
}
