/* Callbacks: bounded, in clean UTF-8, each receipt with something to find its message by. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/err.h"
#include "worker/core/utf8.h"
#include "worker/engine/plugin_host.h"

enum {
    EVENTS_MAX = 1000,
    NUMBER_SIZE = 65,
    TEXT_SIZE = 4097,
    ANSWER_MAX = 64 * 1024,
    URL_MAX = 4096,
    UUID_LEN = 36,
};

/* The end of the year 9999, which is as far as dates are written. */
static const int64_t time_max_ms = INT64_C(253402300799999);

struct provider_events {
    struct plugin_events *out;
    bool answered;
    int error; /* first failure that is more than one event's */
    const char *fault;
};

static void clear_receipt(struct plugin_receipt *r)
{
    free(r->ref);
    free(r->vendor_id);
    free(r->code);
    free(r->detail);
    *r = (struct plugin_receipt){0};
}

static void clear_inbound(struct plugin_inbound *m)
{
    free(m->from);
    free(m->to);
    free(m->text);
    free(m->id);
    *m = (struct plugin_inbound){0};
}

void plugin_events_clear(struct plugin_events *events)
{
    for (size_t i = 0; i < events->receipts_n; i++)
        clear_receipt(&events->receipts[i]);
    for (size_t i = 0; i < events->inbounds_n; i++)
        clear_inbound(&events->inbounds[i]);
    free(events->receipts);
    free(events->inbounds);
    free(events->content_type);
    free(events->body);
    free(events->confirm);
    *events = (struct plugin_events){.status = 200};
}

bool plugin_takes_receipts(const struct plugin *plugin)
{
    return plugin->caps.receipts != PROVIDER_RECEIPTS_NONE && plugin->api->receipt;
}

static int events_fail(struct provider_events *e, int code, const char *fault)
{
    if (!e->error) {
        e->error = code;
        e->fault = fault;
    }
    return code;
}

/* ---- texts ---------------------------------------------------------------------------------- */

/* The message's id as SQL writes it, NULL when it is not one of ours. False: out of memory. */
static bool copy_uuid(char **field, const char *text)
{
    if (!text || strlen(text) != UUID_LEN)
        return true;
    for (size_t i = 0; i < UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
            return true;
    }
    *field = strdup(text);
    for (char *p = *field; p && *p; p++)
        *p = (char)tolower((unsigned char)*p);
    return *field != NULL;
}

/* NULL when it is no id. False: out of memory. */
static bool copy_id(char **field, const char *id)
{
    if (!id || !plugin_id_ok(id, strlen(id)))
        return true;
    *field = strdup(id);
    return *field != NULL;
}

static bool is_utf8(const char *text)
{
    size_t len = strlen(text);
    uint32_t code;

    for (size_t at = 0; at < len;)
        if (utf8_next(text, len, &at, &code) < 0)
            return false;
    return true;
}

/* Cleaned, without blanks around it. An empty text stays one. */
static int copy_text(char **field, const char *text, size_t size)
{
    size_t len;

    text += strspn(text, " \t\r\n");
    len = strlen(text);
    while (len > 0 && strchr(" \t\r\n", text[len - 1]))
        len--;
    if (len > 0)
        return plugin_set_clean(field, text, len, size, 0);
    *field = strdup("");
    return *field ? 0 : -ENOMEM;
}

/* ---- what the plugin says ------------------------------------------------------------------- */

static int one_more(struct provider_events *e)
{
    if (e->out->receipts_n + e->out->inbounds_n < EVENTS_MAX)
        return 0;
    return events_fail(e, -E2BIG, "more than 1,000 events in one callback");
}

int plugin_host_receipt(struct provider_events *e, const struct provider_receipt *r)
{
    struct plugin_events *out = e->out;
    struct plugin_receipt *grown, copy = {0};
    int rc = one_more(e);

    if (rc < 0)
        return rc;
    if (r->status >= PROVIDER_STATUS_MAX_)
        return events_fail(e, -EINVAL, "a receipt's status is out of range");
    grown = realloc(out->receipts, (out->receipts_n + 1) * sizeof(*grown));
    if (!grown)
        return events_fail(e, -ENOMEM, NULL);
    out->receipts = grown;
    copy.status = (enum provider_status)r->status;
    copy.at_ms = r->at_ms > 0 && r->at_ms <= time_max_ms ? r->at_ms : 0;
    if (!copy_uuid(&copy.ref, r->ref) || !copy_id(&copy.vendor_id, r->vendor_id) ||
        plugin_set_code(&copy.code, r->code, r->code ? strlen(r->code) : 0) < 0 ||
        plugin_set_detail(&copy.detail, r->detail, r->detail ? strlen(r->detail) : 0) < 0) {
        clear_receipt(&copy);
        return events_fail(e, -ENOMEM, NULL);
    }
    grown[out->receipts_n++] = copy;
    return 0;
}

int plugin_host_inbound(struct provider_events *e, const struct provider_inbound *m)
{
    struct plugin_events *out = e->out;
    struct plugin_inbound *grown, copy = {0};
    int rc = one_more(e);

    if (rc < 0)
        return rc;
    if (!m->from || !m->text || !plugin_id_ok(m->from, strlen(m->from)) || !is_utf8(m->text))
        return -EINVAL; /* this one only: the next may be good */
    grown = realloc(out->inbounds, (out->inbounds_n + 1) * sizeof(*grown));
    if (!grown)
        return events_fail(e, -ENOMEM, NULL);
    out->inbounds = grown;
    if (copy_text(&copy.from, m->from, NUMBER_SIZE) < 0 ||
        (m->to && copy_text(&copy.to, m->to, NUMBER_SIZE) < 0) ||
        copy_text(&copy.text, m->text, TEXT_SIZE) < 0 || !copy_id(&copy.id, m->id)) {
        clear_inbound(&copy);
        return events_fail(e, -ENOMEM, NULL);
    }
    grown[out->inbounds_n++] = copy;
    return 0;
}

/* The events are stored when this is said: anything but a success would bring them again. */
int plugin_host_callback_answer(struct provider_events *e, int status, const char *content_type,
                                const char *body, size_t len)
{
    struct plugin_events *out = e->out;

    if (e->answered)
        return events_fail(e, -EINVAL, "it answers the callback twice");
    if (status < 200 || status > 299 || len > ANSWER_MAX || (!body && len > 0) ||
        (content_type && (!*content_type || !plugin_is_header_value(content_type))))
        return events_fail(e, -EINVAL, "its answer to the callback is not one");
    e->answered = true;
    out->status = status;
    if (content_type && !(out->content_type = strdup(content_type)))
        return events_fail(e, -ENOMEM, NULL);
    if (len == 0)
        return 0;
    out->body = malloc(len + 1);
    if (!out->body)
        return events_fail(e, -ENOMEM, NULL);
    memcpy(out->body, body, len);
    out->body[len] = '\0';
    out->body_len = len;
    return 0;
}

int plugin_host_callback_confirm(struct provider_events *e, const char *url)
{
    if (!url || strlen(url) > URL_MAX || !plugin_is_url(url))
        return -EINVAL;
    free(e->out->confirm);
    e->out->confirm = strdup(url);
    return e->out->confirm ? 0 : events_fail(e, -ENOMEM, NULL);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Our own id out of the callback's URL. */
static const char *query_k(const struct provider_callback *cb)
{
    for (size_t i = 0; i < cb->query_count; i++)
        if (strcmp(cb->query[i].name, "k") == 0)
            return cb->query[i].value;
    return NULL;
}

/* Receipts nobody could find a message by go. Returns 0 or -ENOMEM. */
static int settle_refs(const struct provider_callback *cb, struct plugin_events *out)
{
    size_t kept = 0;

    if (out->receipts_n == 1 && !out->receipts[0].ref &&
        !copy_uuid(&out->receipts[0].ref, query_k(cb)))
        return -ENOMEM;
    for (size_t i = 0; i < out->receipts_n; i++) {
        struct plugin_receipt *r = &out->receipts[i];

        if (r->ref || r->vendor_id)
            out->receipts[kept++] = *r;
        else
            clear_receipt(r);
    }
    out->receipts_n = kept;
    return 0;
}

static int read_failed(const struct plugin *plugin, const struct provider_events *e, int r,
                       struct err *err)
{
    const char *name = plugin->name;

    if (r == -ENOMEM)
        return -ENOMEM;
    if (r == -EACCES)
        return err_set(err, r, "plugin \"%s\": the signature is missing or wrong", name);
    if (e->fault)
        return err_set(err, -EBADMSG, "plugin \"%s\": %s", name, e->fault);
    if (r == -EBADMSG)
        return err_set(err, r, "plugin \"%s\": this is no callback of the vendor", name);
    return err_set(err, -EBADMSG, "plugin \"%s\": receipt answered %d", name, r);
}

int plugin_read(const struct plugin *plugin, const struct provider_callback *callback,
                struct plugin_events *events, struct err *err)
{
    struct provider_events e = {.out = events};
    int r;

    plugin_events_clear(events);
    if (!plugin_takes_receipts(plugin))
        return err_set(err, -EBADMSG, "plugin \"%s\": it takes no receipts", plugin->name);
    r = plugin->api->receipt(plugin->self, callback, &e);
    /* A refusal stands, whatever else was said; so does our own trouble. */
    if (r == 0 || (e.error == -ENOMEM && r != -EACCES))
        r = e.error ? e.error : r;
    if (r == 0)
        r = settle_refs(callback, events);
    if (r == 0)
        return 0;
    plugin_events_clear(events);
    return read_failed(plugin, &e, r, err);
}
