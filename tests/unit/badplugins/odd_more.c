/* Misbehaves in what ABI 1.1 added: `ask` and `login` as the settings say, the judges as the
 * reply's status says, `receipt` as the callback's body says. The word "several" in the settings
 * declares several ids, "by text" another look-up, "no id" answers without one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/badplugins/base.h"

static char *words;

static bool has(const char *word)
{
    return strstr(words, word) != NULL;
}

static int odd_open(const struct provider_host *host, const char *settings_json,
                    struct provider_report *report, void **ret_self)
{
    words = strdup(settings_json);
    return words ? base_open(host, settings_json, report, ret_self) : -ENOMEM;
}

static void odd_close(void *self)
{
    (void)self;
    free(words);
}

static void describe(const void *self, struct provider_caps *ret)
{
    (void)self;
    ret->ask = has("by text") ? PROVIDER_ASK_BY_TEXT : PROVIDER_ASK_BY_KEY;
    ret->receipts = has("no receipts") ? PROVIDER_RECEIPTS_NONE : PROVIDER_RECEIPTS_UNSIGNED;
    ret->several_ids = has("several");
    ret->answers_without_id = has("no id");
}

/* ---- requests ---- */

static int build(const void *self, const struct provider_msg *msg, struct provider_req *req)
{
    const struct provider_host *h = base_host;

    (void)self;
    h->req_method(req, "POST");
    h->req_url(req, "https://sns.eu-central-1.amazonaws.com/");
    if (msg->sender)
        h->req_header(req, msg->sender, "x");
    h->req_body(req, "x", 1);
    if (strcmp(msg->kind, "session") == 0)
        h->req_sigv4(req, "eu-central-1", "sns", "AKID", "s/e+c:r", "tok+en/=");
    else
        h->req_sigv4(req, msg->recipient, "sns", msg->key, msg->body, NULL);
    if (strcmp(msg->kind, "twice") == 0)
        h->req_sigv4(req, "eu-central-1", "sns", "AKID", "secret", NULL);
    return 0;
}

static int ask(const void *self, const struct provider_question *q, struct provider_req *req)
{
    if (has("nothing to ask"))
        return -ENODATA;
    if (has("ask fails"))
        return -EIO;
    if (has("ask refused")) /* a refused URL is worse than nothing to ask by */
        return base_host->req_url(req, "ftp://x/"), -ENODATA;
    return has("no request") ? 0 : base_build(self, q->msg, req);
}

static int login(const void *self, int64_t now_ms, struct provider_req *req,
                 struct provider_grant *grant)
{
    const struct provider_host *h = base_host;

    (void)now_ms;
    if (has("login fails"))
        return -EIO;
    if (has("token made") || has("both"))
        h->grant_token(grant, "made", 4, 60000);
    if (has("refuses"))
        h->grant_refuse(grant, "7", "no");
    if (has("bad token"))
        h->grant_token(grant, "a\r\nb", 4, 0);
    return has("token made") || has("refuses") || has("bad token") ? 0
                                                                   : base_build(self, NULL, req);
}

/* ---- judges ---- */

static int judge(const void *self, const struct provider_reply *reply, struct provider_verdict *v)
{
    const struct provider_host *h = base_host;
    int r = 0;

    (void)self;
    switch (reply->status) {
    case 201: /* one id a byte */
        for (size_t i = 0; r == 0 && i < reply->body_len; i++)
            r = h->verdict_part(v, reply->body + i, 1);
        h->verdict(v, PROVIDER_ACCEPTED);
        return r;
    case 202:
        h->verdict_id(v, "other", 5);
        h->verdict_part(v, "a", 1);
        h->verdict(v, PROVIDER_ACCEPTED);
        return 0;
    case 203:
        h->verdict_duplicate(v);
        h->verdict(v, PROVIDER_ACCEPTED);
        return 0;
    case 204:
        h->verdict_login(v);
        return 0;
    case 205:
        h->verdict_login(v);
        h->verdict(v, PROVIDER_REJECTED);
        return 0;
    default:
        h->verdict_duplicate(v);
        h->verdict(v, PROVIDER_REJECTED);
        return 0;
    }
}

static int ask_judge(const void *self, const struct provider_question *q,
                     const struct provider_reply *reply, struct provider_answer *a)
{
    const struct provider_host *h = base_host;
    int r = 0;

    (void)self;
    (void)q;
    h->answer_code(a, reply->body, reply->body_len);
    h->answer_detail(a, reply->body, reply->body_len);
    switch (reply->status) {
    case 210:
        return 0;
    case 211:
        h->answer(a, PROVIDER_NEVER_SEEN);
        h->answer(a, PROVIDER_NEVER_SEEN);
        return 0;
    case 212:
        h->answer(a, PROVIDER_FINDING_MAX_);
        return 0;
    case 213:
        h->answer(a, PROVIDER_NEVER_SEEN);
        return -EIO;
    case 214: /* an id a byte */
        for (size_t i = 0; r == 0 && i < reply->body_len; i++)
            r = h->answer_id(a, reply->body + i, 1);
        h->answer(a, PROVIDER_HAS_IT);
        return r;
    case 215:
        h->answer_id(a, "x", 1);
        return h->answer_more(a, reply->body, reply->body_len);
    case 216:
        h->answer_more(a, "next", 4);
        h->answer(a, PROVIDER_NEVER_SEEN);
        return 0;
    case 217:
        h->answer_login(a);
        return 0;
    case 218:
        h->answer(a, PROVIDER_NEVER_SEEN);
        return -ENOMEM;
    case 219:
        h->answer_retry_after(a, 2500);
        h->answer(a, PROVIDER_CANNOT_SAY);
        return 0;
    case 220:
        h->answer_id(a, "x", 1);
        h->answer(a, PROVIDER_REFUSED_IT);
        return 0;
    case 429:
        h->answer(a, PROVIDER_CANNOT_SAY);
        return 0;
    default:
        h->answer_id(a, "x", 1);
        h->answer(a, PROVIDER_NEVER_SEEN);
        return 0;
    }
}

static int login_judge(const void *self, const struct provider_reply *reply,
                       struct provider_grant *g)
{
    const struct provider_host *h = base_host;

    (void)self;
    switch (reply->status) {
    case 210:
        h->grant_token(g, "a", 1, 0);
        h->grant_token(g, "b", 1, 0);
        return 0;
    case 211:
        h->grant_token(g, "a", 1, -1);
        return 0;
    case 212:
        h->grant_token(g, "a", 1, 5000);
        return -EIO;
    case 213:
        h->grant_token(g, "a", 1, 5000);
        h->grant_refuse(g, "x", NULL);
        return 0;
    case 214:
        return 0;
    case 401:
        h->grant_refuse(g, "E\n1", "no user 998901234567");
        return 0;
    default:
        return h->grant_token(g, reply->body, reply->body_len, 3600000);
    }
}

/* ---- callbacks ---- */

static const char uuid[] = "018F4E2A-7C1B-7D3E-9F00-0123456789AB";

/* One letter of the body, one event. */
static int event(char letter, const struct provider_callback *cb, struct provider_events *out)
{
    const struct provider_host *h = base_host;
    const char *word = cb->form_count ? cb->form[0].value : NULL;
    struct provider_receipt r = {.status = PROVIDER_STATUS_DELIVERED, .vendor_id = "v1"};
    struct provider_inbound m = {.from = "998901234567", .to = "4546", .text = word ? word : ""};

    switch (letter) {
    case 'u':
        r.ref = uuid;
        r.code = r.detail = word;
        r.at_ms = 1700000000000;
        return h->receipt(out, &r);
    case 'i':
        return h->receipt(out, &r);
    case 'n': /* nothing to find it by */
        r.vendor_id = NULL;
        return h->receipt(out, &r);
    case 'w': /* a ref that is another's */
        r.ref = word;
        r.vendor_id = word;
        r.at_ms = INT64_MAX;
        return h->receipt(out, &r);
    case 's':
        r.status = PROVIDER_STATUS_MAX_;
        return h->receipt(out, &r);
    case 'm':
        (void)h->inbound(out, &m); /* a bad one does not spoil the rest */
        return 0;
    case 'a':
        return h->callback_answer(out, 202, "text/plain", "ACK/Jasmin", 10);
    case 'e':
        return h->callback_answer(out, 500, NULL, NULL, 0);
    case 'h':
        return h->callback_answer(out, 200, "a\r\nb: c", NULL, 0);
    case 'c':
        return h->callback_confirm(out, word);
    case 'x':
        return -EACCES;
    case 'b':
        return -EBADMSG;
    case 'o':
        return -ENOMEM;
    case 'p':
        return 3;
    default:
        return -EIO;
    }
}

static int receipt(const void *self, const struct provider_callback *cb,
                   struct provider_events *out)
{
    (void)self;
    for (size_t i = 0; i < cb->body_len; i++) {
        int r = event(cb->body[i], cb, out);

        /* 's' is not passed on: the host must remember. */
        if (r != 0 && cb->body[i] != 's')
            return r;
    }
    return 0;
}

const struct provider *provider_entry(void)
{
    static struct provider table = BASE_TABLE("odd_more");

    table.open = odd_open;
    table.close = odd_close;
    table.describe = describe;
    table.build = build;
    table.judge = judge;
    table.ask = ask;
    table.ask_judge = ask_judge;
    table.login = login;
    table.login_judge = login_judge;
    table.receipt = receipt;
    return &table;
}
