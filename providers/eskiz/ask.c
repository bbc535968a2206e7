/* Eskiz.uz: the message list, and the receipts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/eskiz/eskiz.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/when.h"

/* The list is asked by the minute, and a message may enter it a little later than it was sent. */
static const int64_t before_ms = INT64_C(2) * 60 * 1000;
static const int64_t after_ms = INT64_C(5) * 60 * 1000;

enum { PAGE_MAX = 1000 };

/* ---- ask ------------------------------------------------------------------------------------ */

/* The page a cursor names, 1 without one, 0 for nonsense. */
static int64_t page_of(const char *cursor)
{
    size_t len = cursor ? strlen(cursor) : 0;

    if (!cursor)
        return 1;
    if (len == 0 || len > 4 || strspn(cursor, "0123456789") != len)
        return 0;
    return strtoll(cursor, NULL, 10);
}

/* "2026-11-30 22:10" in Tashkent. */
static void add_minute(struct form *body, const char *name, int64_t unix_ms)
{
    char buf[WHEN_SIZE];

    form_add_n(body, name, when_local(unix_ms, EZ_UTC_OFFSET_MIN, buf), strlen("2026-11-30 22:10"));
}

int ez_ask(const void *arg, const struct provider_question *q, struct provider_req *req)
{
    const struct ez_self *self = arg;
    struct form path = {0}, body = {0};
    int64_t page = page_of(q->cursor);
    int r;

    if (page <= 0 || !q->msg->token)
        return -EINVAL;
    form_printf(&path, "/api/message/sms/get-user-messages%s?page=%d",
                self->by_dispatch ? "-by-dispatch" : "", (int)page);
    if (self->by_dispatch) {
        form_add_i64(&body, "dispatch_id", ez_dispatch_id(q->msg->id));
    } else {
        add_minute(&body, "start_date", q->from_ms - before_ms);
        add_minute(&body, "to_date", q->to_ms + after_ms);
    }
    form_add_i64(&body, "page_size", self->page_size);
    r = path.error;
    if (r == 0)
        r = ez_post(self, req, path.text, q->msg->token, EZ_FORM, &body);
    form_done(&path);
    form_done(&body);
    return r;
}

static const json_t *find_row(const json_t *rows, const char *id)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *ours = json_text_at(row, "user_sms_id");

        if (ours && strcmp(ours, id) == 0)
            return row;
    }
    return NULL;
}

static int cannot_say(const struct ez_self *self, struct provider_answer *answer,
                      const json_t *body, const char *why)
{
    const char *words = json_text_at(body, "message");
    const char *detail = words ? words : why;

    self->host->answer(answer, PROVIDER_CANNOT_SAY);
    return self->host->answer_detail(answer, detail, strlen(detail));
}

/* Not on this page: the next one, or nowhere. */
static int go_on(const struct ez_self *self, const struct provider_question *q, const json_t *body,
                 struct provider_answer *answer)
{
    int64_t page, last;
    struct form next = {0};
    int r;

    if (!json_i64_at(body, "data/current_page", &page) || page != page_of(q->cursor) ||
        !json_i64_at(body, "data/last_page", &last) || last > PAGE_MAX)
        return cannot_say(self, answer, NULL, "the list does not say which page this is");
    if (page >= last) {
        self->host->answer(answer, PROVIDER_NEVER_SEEN);
        return 0;
    }
    form_printf(&next, "%d", (int)page + 1);
    r = next.error ? next.error : self->host->answer_more(answer, next.text, next.len);
    form_done(&next);
    return r;
}

int ez_ask_judge(const void *arg, const struct provider_question *q,
                 const struct provider_reply *reply, struct provider_answer *answer)
{
    const struct ez_self *self = arg;
    json_auto_t *body = json_body(reply->body, reply->body_len);
    const char *status = json_text_at(body, "status"), *id;
    const json_t *rows = json_path(body, "data/result"), *row;

    if (reply->status == 401 && body) {
        self->host->answer_login(answer);
        return 0;
    }
    if (reply->status != 200 || !status || strcmp(status, "success") != 0 || !json_is_array(rows))
        return cannot_say(self, answer, body, "not the vendor's list");
    row = find_row(rows, q->msg->id);
    if (!row)
        return go_on(self, q, body, answer);
    /* Whatever became of it since: the vendor took it, and its receipts say the rest. */
    self->host->answer(answer, PROVIDER_HAS_IT);
    id = json_text_at(row, "request_id");
    return id && *id ? self->host->answer_id(answer, id, strlen(id)) : 0;
}

/* ---- receipts ------------------------------------------------------------------------------- */

/* Of the message and of its parts: both spellings come. */
static const struct {
    const char *word;
    enum provider_status status;
} statuses[] = {
    {"DELIVRD", PROVIDER_STATUS_DELIVERED},        {"DELIVERED", PROVIDER_STATUS_DELIVERED},
    {"UNDELIV", PROVIDER_STATUS_UNDELIVERED},      {"UNDELIVERABLE", PROVIDER_STATUS_UNDELIVERED},
    {"DELETED", PROVIDER_STATUS_UNDELIVERED},      {"UNKNOWN", PROVIDER_STATUS_UNDELIVERED},
    {"EXPIRED", PROVIDER_STATUS_EXPIRED},          {"REJECTED", PROVIDER_STATUS_REJECTED},
    {"REJECTD", PROVIDER_STATUS_REJECTED},         {"NEW", PROVIDER_STATUS_IN_TRANSIT},
    {"STORED", PROVIDER_STATUS_IN_TRANSIT},        {"ACCEPTED", PROVIDER_STATUS_IN_TRANSIT},
    {"ENROUTE", PROVIDER_STATUS_IN_TRANSIT},       {"TRANSMTD", PROVIDER_STATUS_IN_TRANSIT},
    {"PARTDELIVERED", PROVIDER_STATUS_IN_TRANSIT},
};

/* A word nobody told us of ends nothing: it is kept, and the message stays under way. */
static enum provider_status status_of(const char *word)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++)
        if (strcmp(statuses[i].word, word) == 0)
            return statuses[i].status;
    return PROVIDER_STATUS_IN_TRANSIT;
}

int ez_receipt(const void *arg, const struct provider_callback *cb, struct provider_events *out)
{
    const struct ez_self *self = arg;
    json_auto_t *body = json_body(cb->body, cb->body_len);
    const char *word = json_text_at(body, "status"), *date = json_text_at(body, "status_date");
    struct provider_receipt receipt = {
        .ref = json_text_at(body, "user_sms_id"),
        .vendor_id = json_text_at(body, "request_id"),
    };

    if (!word || (!receipt.vendor_id && !receipt.ref))
        return -EBADMSG;
    if (receipt.ref && strlen(receipt.ref) != 36) /* no id of ours */
        receipt.ref = NULL;
    if (!receipt.ref && !receipt.vendor_id)
        return -EBADMSG;
    receipt.status = status_of(word);
    receipt.code = receipt.status == PROVIDER_STATUS_DELIVERED ? NULL : word;
    if (!date || !when_parse(date, EZ_UTC_OFFSET_MIN, &receipt.at_ms))
        receipt.at_ms = 0;
    return self->host->receipt(out, &receipt);
}
