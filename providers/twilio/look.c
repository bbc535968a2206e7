/* Asking Twilio: its list of messages to one number, compared by text.
 *
 * There is no reference of ours on record, so a message is known by number, text, sender and the
 * time it was created. The list is asked for by To alone: a filter on DateSent could hide a
 * message that still waits in a queue and has none. It comes newest first. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/verdict.h"
#include "providers/kit/when.h"
#include "providers/twilio/twilio.h"

/* Their clock is not ours, and date_created is in whole seconds. */
static const int64_t before_ms = 2000, after_ms = 60000;
/* A message waits 10 h at most: on a page where all were created this long before the window
 * nothing further back, by either date, can be in it. */
static const int64_t far_back_ms = INT64_C(11) * 3600 * 1000;

enum { PAGE_SIZE = 20 }; /* with 1,600 escaped characters each still within the host's limit */

/* Our cursor: "Page PageToken sid,sid,…", the candidates of earlier pages at its end. */
static void add_page(struct form *url, const char *cursor)
{
    size_t page = strcspn(cursor, " ");
    size_t token = strcspn(cursor + page + (cursor[page] == ' '), " ");

    form_add_n(url, "Page", cursor, page);
    if (cursor[page] == ' ')
        form_add_n(url, "PageToken", cursor + page + 1, token);
}

static const char *candidates_of(const char *cursor)
{
    const char *blank = cursor ? strrchr(cursor, ' ') : NULL;

    return blank ? blank + 1 : "";
}

int twilio_ask(const void *self, const struct provider_question *q, struct provider_req *req)
{
    const struct twilio *t = self;
    struct form url = {0};
    int r;

    form_raw(&url, t->messages_url);
    form_raw(&url, "?");
    form_add(&url, "To", q->msg->recipient);
    form_add_i64(&url, "PageSize", PAGE_SIZE);
    if (q->cursor)
        add_page(&url, q->cursor);
    r = url.error;
    if (r == 0)
        r = request_get(t->host, req, url.text, t->authorization);
    form_done(&url);
    return r;
}

/* ---- judging -------------------------------------------------------------------------------- */

struct page {
    const struct twilio *t;
    const struct provider_question *q;
    const json_t *body;
    struct form found; /* sids, a comma between */
    bool all_far_back;
};

static bool same_text(const json_t *message, const char *name, const char *text, size_t len)
{
    const json_t *value = json_object_get(message, name);

    return json_is_string(value) && json_string_length(value) == len &&
           memcmp(json_string_value(value), text, len) == 0;
}

static bool same_sender(const struct page *p, const json_t *message)
{
    bool is_service;
    const char *sender = twilio_sender(p->t, p->q->msg, &is_service);

    return same_text(message, is_service ? "messaging_service_sid" : "from", sender,
                     strlen(sender));
}

static bool is_ours(const struct page *p, const json_t *message, int64_t created_ms)
{
    const struct provider_msg *msg = p->q->msg;
    const char *direction = json_text_at(message, "direction");

    return created_ms >= p->q->from_ms - before_ms && created_ms <= p->q->to_ms + after_ms &&
           same_text(message, "to", msg->recipient, strlen(msg->recipient)) &&
           same_text(message, "body", msg->body, msg->body_len) && same_sender(p, message) &&
           !(direction && strcmp(direction, "inbound") == 0);
}

/* False when the page is not Twilio's: then it proves nothing. */
static bool read_page(struct page *p)
{
    const json_t *list = json_object_get(p->body, "messages"), *message;
    const char *sid;
    size_t i;
    int64_t created_ms;

    if (!json_is_array(list))
        return false;
    p->all_far_back = json_array_size(list) > 0;
    json_array_foreach (list, i, message) {
        sid = json_text_at(message, "sid");
        if (!sid || !*sid || strpbrk(sid, " ,") ||
            !when_parse(json_text_at(message, "date_created"), 0, &created_ms))
            return false;
        if (created_ms >= p->q->from_ms - far_back_ms)
            p->all_far_back = false;
        if (!is_ours(p, message, created_ms))
            continue;
        if (p->found.len > 0)
            form_raw(&p->found, ",");
        form_raw(&p->found, sid);
    }
    return true;
}

/* The value of one parameter of the next page's address, decoded; NULL: none. The caller frees. */
static char *next_param(const char *uri, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = strchr(uri, '?'); at; at = strchr(at + 1, '&')) {
        char *value;

        if (strncmp(at + 1, name, len) != 0 || at[1 + len] != '=')
            continue;
        value = strndup(at + len + 2, strcspn(at + len + 2, "&#"));
        if (value && (form_decode(value, 1) <= 0 || strchr(value, ' '))) {
            free(value);
            return NULL;
        }
        return value;
    }
    return NULL;
}

static int go_on(struct page *p, const char *uri, struct provider_answer *answer)
{
    char *token = next_param(uri, "PageToken"), *number = next_param(uri, "Page");
    struct form cursor = {0};
    int r = 0;

    if (!token || !number) { /* there is more, and we cannot get there */
        p->t->host->answer(answer, PROVIDER_CANNOT_SAY);
        goto out;
    }
    form_printf(&cursor, "%s %s %s", number, token, p->found.text ? p->found.text : "");
    r = cursor.error;
    if (r == 0)
        r = p->t->host->answer_more(answer, cursor.text, cursor.len);
out:
    form_done(&cursor);
    free(token);
    free(number);
    return r;
}

/* The list's order is newest first; the first attempt in doubt made the oldest. */
static int tell(struct page *p, struct provider_answer *answer)
{
    const struct provider_host *host = p->t->host;
    const char *end;
    int r = 0;

    if (p->found.len == 0) {
        host->answer(answer, PROVIDER_NEVER_SEEN);
        return 0;
    }
    host->answer(answer, PROVIDER_HAS_IT);
    for (end = p->found.text + p->found.len; end > p->found.text && r == 0;) {
        const char *begin = memrchr(p->found.text, ',', (size_t)(end - p->found.text));

        begin = begin ? begin + 1 : p->found.text;
        r = host->answer_id(answer, begin, (size_t)(end - begin));
        end = begin > p->found.text ? begin - 1 : begin;
    }
    return r;
}

static int cannot_say(const struct twilio *t, const json_t *body, struct provider_answer *answer)
{
    char buf[24];
    const char *code = json_word_at(body, "code", buf, sizeof(buf));
    int r = code ? t->host->answer_code(answer, code, strlen(code)) : 0;

    t->host->answer(answer, PROVIDER_CANNOT_SAY);
    return r;
}

int twilio_ask_judge(const void *self, const struct provider_question *q,
                     const struct provider_reply *reply, struct provider_answer *answer)
{
    const struct twilio *t = self;
    json_t *body = json_body(reply->body, reply->body_len);
    struct page p = {.t = t, .q = q, .body = body};
    const char *uri, *earlier = candidates_of(q->cursor);
    int r;

    if (*earlier)
        form_raw(&p.found, earlier);
    if (reply->status != 200 || !read_page(&p))
        r = cannot_say(t, body, answer);
    else if (p.found.error)
        r = p.found.error;
    else if ((uri = json_text_at(body, "next_page_uri")) && !p.all_far_back)
        r = go_on(&p, uri, answer);
    else
        r = tell(&p, answer);
    form_done(&p.found);
    json_decref(body);
    return r;
}
