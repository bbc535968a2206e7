/* Asking Infobip under our own messageId, and reading its delivery reports.
 *
 * GET /sms/3/logs shows a message as often as it is asked. /sms/3/reports would not do: it gives
 * each report once, so reading it there would take it from whoever else reads them. */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "providers/infobip/infobip.h"
#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/when.h"

/* ---- asking --------------------------------------------------------------------------------- */

int infobip_ask(const void *self, const struct provider_question *q, struct provider_req *req)
{
    const struct infobip *ib = self;
    struct form url = {0};
    int r;

    form_printf(&url, "%s/sms/3/logs?", ib->url);
    form_add(&url, "messageId", q->msg->key);
    r = url.error;
    if (r == 0)
        r = request_get(ib->host, req, url.text, ib->authorization);
    form_done(&url);
    return r;
}

struct log {
    bool taken;            /* an entry that is no rejection */
    bool duplicate;        /* a second try was refused: so a first was there */
    const json_t *refused; /* status of an entry that was rejected */
};

/* False when the reply is not a list of log entries under this id. */
static bool read_log(const json_t *results, const char *key, struct log *log)
{
    const json_t *entry;
    int64_t group, id;
    size_t i;

    if (!json_is_array(results))
        return false;
    json_array_foreach (results, i, entry) {
        const json_t *status = json_object_get(entry, "status");
        const char *message = json_text_at(entry, "messageId");

        if (!message || strcmp(message, key) != 0 || !json_i64_at(status, "groupId", &group) ||
            !json_i64_at(status, "id", &id))
            return false;
        if (group != INFOBIP_REJECTED)
            log->taken = true;
        else if (id == INFOBIP_DUPLICATE)
            log->duplicate = true;
        else
            log->refused = status;
    }
    return true;
}

static int tell(const struct infobip *ib, const struct provider_question *q, const struct log *log,
                struct provider_answer *answer)
{
    const struct provider_host *host = ib->host;
    const char *code, *name;
    char buf[24];
    int r = 0;

    if (log->taken || (log->duplicate && !log->refused)) {
        host->answer(answer, PROVIDER_HAS_IT);
        return host->answer_id(answer, q->msg->key, strlen(q->msg->key));
    }
    if (!log->refused) {
        host->answer(answer, PROVIDER_NEVER_SEEN);
        return 0;
    }
    host->answer(answer, PROVIDER_REFUSED_IT);
    if ((code = json_word_at(log->refused, "id", buf, sizeof(buf))))
        r = host->answer_code(answer, code, strlen(code));
    if (r == 0 && (name = json_text_at(log->refused, "name")))
        r = host->answer_detail(answer, name, strlen(name));
    return r;
}

int infobip_ask_judge(const void *self, const struct provider_question *q,
                      const struct provider_reply *reply, struct provider_answer *answer)
{
    const struct infobip *ib = self;
    json_t *body = json_body(reply->body, reply->body_len);
    const char *code = json_text_at(body, "errorCode");
    struct log log = {0};
    int r = 0;

    if (reply->status == 200 && read_log(json_object_get(body, "results"), q->msg->key, &log)) {
        r = tell(ib, q, &log, answer);
    } else {
        ib->host->answer(answer, PROVIDER_CANNOT_SAY);
        if (code)
            r = ib->host->answer_code(answer, code, strlen(code));
    }
    json_decref(body);
    return r;
}

/* ---- receipts ------------------------------------------------------------------------------- */

static enum provider_status status_of(int64_t group, int64_t id)
{
    switch (group) {
    case INFOBIP_DELIVERED: /* the operator has it, the handset may not yet */
        return id == INFOBIP_TO_OPERATOR ? PROVIDER_STATUS_IN_TRANSIT : PROVIDER_STATUS_DELIVERED;
    case INFOBIP_UNDELIVERABLE:
        return PROVIDER_STATUS_UNDELIVERED;
    case INFOBIP_EXPIRED:
        return PROVIDER_STATUS_EXPIRED;
    case INFOBIP_REJECTED:
        return PROVIDER_STATUS_REJECTED;
    default:
        return PROVIDER_STATUS_IN_TRANSIT;
    }
}

static int read_report(const struct infobip *ib, const json_t *report, struct provider_events *out)
{
    struct provider_receipt r = {
        .vendor_id = json_text_at(report, "messageId"),
        .ref = json_text_at(report, "callbackData"),
    };
    char buf[24];
    int64_t group, id, error;

    if (!json_i64_at(report, "status/groupId", &group) || !json_i64_at(report, "status/id", &id) ||
        !(r.vendor_id || r.ref))
        return -EBADMSG;
    /* Speaks of a second try under our messageId; the first one's fate is not in it. */
    if (id == INFOBIP_DUPLICATE)
        return 0;
    r.status = status_of(group, id);
    if (json_i64_at(report, "error/id", &error) && error != 0) {
        r.code = json_word_at(report, "error/id", buf, sizeof(buf));
        r.detail = json_text_at(report, "error/name");
    } else if (group == INFOBIP_REJECTED) {
        r.code = json_word_at(report, "status/id", buf, sizeof(buf));
        r.detail = json_text_at(report, "status/name");
    }
    if (!when_parse(json_text_at(report, "doneAt"), 0, &r.at_ms))
        r.at_ms = 0;
    return ib->host->receipt(out, &r);
}

static int read_inbound(const struct infobip *ib, const json_t *message,
                        struct provider_events *out)
{
    struct provider_inbound m = {
        .from = json_text_at(message, "from"),
        .to = json_text_at(message, "to"),
        .text = json_text_at(message, "text"),
        .id = json_text_at(message, "messageId"),
    };

    return m.from && m.text ? ib->host->inbound(out, &m) : -EBADMSG;
}

int infobip_receipt(const void *self, const struct provider_callback *cb,
                    struct provider_events *out)
{
    const struct infobip *ib = self;
    json_t *body = json_body(cb->body, cb->body_len);
    const json_t *results = json_object_get(body, "results"), *item;
    int r = json_array_size(results) > 0 ? 0 : -EBADMSG;
    size_t i;

    if (r == 0)
        json_array_foreach (results, i, item) {
            r = json_object_get(item, "status") ? read_report(ib, item, out)
                                                : read_inbound(ib, item, out);
            if (r < 0)
                break;
        }
    json_decref(body);
    return r;
}
