/* Asking Vonage: the Reports API, by date window, for the record that shows our client_ref.
 *
 * It cannot filter on client_ref, so every record of the window is read. A busy account writes
 * many: the window is walked in slices, so that no answer gets longer than the host takes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/when.h"
#include "providers/vonage/vonage.h"

/* Their clock is not ours. */
static const int64_t clocks_ms = 10000;
static const int64_t day_ms = INT64_C(86400000);
/* The host follows 20 pages; two are left for slices that need a second one. */
enum { SLICES_MAX = 18 };

struct walk {
    int64_t from, to; /* of this slice */
    int64_t end;      /* of all */
    const char *rest; /* "CURSOR IV" within the slice, "" at its beginning */
};

/* Our cursor: "BEGIN", or "BEGIN CURSOR IV". A broken one begins anew. */
static struct walk walk_at(const struct vonage *v, const struct provider_question *q)
{
    struct walk w = {.from = q->from_ms - clocks_ms, .end = q->to_ms + clocks_ms, .rest = ""};
    int64_t slice = (w.end - w.from) / SLICES_MAX + 1000, begin = 0;
    const char *c = q->cursor ? q->cursor : "";

    for (; *c >= '0' && *c <= '9' && begin < INT64_MAX / 100; c++)
        begin = begin * 10 + (*c - '0');
    if (begin >= w.from && begin < w.end) {
        w.from = begin;
        w.rest = *c == ' ' ? c + 1 : "";
    }
    if (slice < v->lookup_slice_ms)
        slice = v->lookup_slice_ms;
    if (slice > day_ms)
        slice = day_ms; /* their limit */
    slice -= slice % 1000;
    w.to = w.from + slice < w.end ? w.from + slice : w.end;
    return w;
}

/* Whole seconds: the beginning down, the end, which is exclusive, up. */
static void fill(const struct vonage *v, const struct walk *w, struct form *url)
{
    char begin[WHEN_SIZE], end[WHEN_SIZE];
    size_t cursor = strcspn(w->rest, " ");

    form_printf(url, "%s/v2/reports/records?", v->reports_url);
    form_add(url, "account_id", v->api_key);
    form_add(url, "product", v->api == VONAGE_SMS ? "SMS" : "MESSAGES");
    form_add(url, "direction", "outbound");
    form_add(url, "date_start", when_rfc3339(w->from, begin));
    form_add(url, "date_end", when_rfc3339(w->to + 999, end));
    if (w->rest[cursor] == ' ') {
        form_add_n(url, "cursor", w->rest, cursor);
        form_add(url, "iv", w->rest + cursor + 1);
    }
}

int vonage_ask(const void *self, const struct provider_question *q, struct provider_req *req)
{
    const struct vonage *v = self;
    struct walk w = walk_at(v, q);
    struct form url = {0};
    int r;

    if (!v->basic)
        return -ENODATA;
    fill(v, &w, &url);
    r = url.error;
    if (r == 0)
        r = request_get(v->host, req, url.text, v->basic);
    form_done(&url);
    return r;
}

/* ---- judging -------------------------------------------------------------------------------- */

static int say_more(const struct vonage *v, const struct walk *w, const json_t *body,
                    bool truncated, struct provider_answer *answer)
{
    const char *cursor = json_text_at(body, "cursor"), *iv = json_text_at(body, "iv");
    struct form next = {0};
    int r;

    if (!truncated && w->to >= w->end) {
        v->host->answer(answer, PROVIDER_NEVER_SEEN);
        return 0;
    }
    if (truncated && (!cursor || !iv || strchr(cursor, ' ') || !*cursor || !*iv)) {
        v->host->answer(answer, PROVIDER_CANNOT_SAY); /* there is more, and no way there */
        return 0;
    }
    form_printf(&next, "%" PRId64, truncated ? w->from : w->to);
    if (truncated)
        form_printf(&next, " %s %s", cursor, iv);
    r = next.error ? next.error : v->host->answer_more(answer, next.text, next.len);
    form_done(&next);
    return r;
}

/* A message has a record a part. A later refusal by the network is no reason to send again here:
 * Vonage took it. */
static int tell(const struct vonage *v, const struct provider_question *q, const json_t *records,
                bool *ret_found, struct provider_answer *answer)
{
    const json_t *record;
    const char *ref, *id;
    size_t i;
    int r = 0;

    *ret_found = false;
    json_array_foreach (records, i, record) {
        ref = json_text_at(record, "client_ref");
        id = json_text_at(record, "message_id");
        if (r < 0 || !ref || strcmp(ref, q->msg->id) != 0 || !id || !*id)
            continue;
        if (!*ret_found)
            v->host->answer(answer, PROVIDER_HAS_IT);
        *ret_found = true;
        r = v->host->answer_id(answer, id, strlen(id));
    }
    return r;
}

static int cannot_say(const struct vonage *v, const json_t *body, struct provider_answer *answer)
{
    const char *code = vonage_problem(body);

    v->host->answer(answer, PROVIDER_CANNOT_SAY);
    return code ? v->host->answer_code(answer, code, strlen(code)) : 0;
}

int vonage_ask_judge(const void *self, const struct provider_question *q,
                     const struct provider_reply *reply, struct provider_answer *answer)
{
    const struct vonage *v = self;
    json_t *body = json_body(reply->body, reply->body_len);
    const json_t *records = json_object_get(body, "records");
    const char *status = json_text_at(body, "request_status");
    bool truncated = status && strcmp(status, "TRUNCATED") == 0, found;
    struct walk w = walk_at(v, q);
    int r;

    if (reply->status != 200 || !json_is_array(records) ||
        (status && !truncated && strcmp(status, "SUCCESS") != 0)) {
        r = cannot_say(v, body, answer);
    } else {
        r = tell(v, q, records, &found, answer);
        if (r == 0 && !found)
            r = say_more(v, &w, body, truncated, answer);
    }
    json_decref(body);
    return r;
}
