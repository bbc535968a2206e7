/* Any bytes a vendor may send, to any plugin: linked once with each (fuzz_plugin_NAME). Whatever
 * comes, the plugin reads within bounds, keeps the rules of the border, and says the same the
 * second time. Settings are those of its fixtures; run in the root of the checkout.
 * tests/fuzz/seeds.py turns the fixtures' replies and callbacks into inputs:
 *
 *   byte 0   what is called: judge, ask and ask_judge, login_judge, receipt, build
 *   byte 1   which settings: the fixture files in order of their names
 *   byte 2   1: the reply is not complete; 2: the callback is a GET
 *   3 and 4  the status, big-endian
 *   then texts, each ended by a NUL, and the body up to the end:
 *     judge, login_judge   headers
 *     ask, build           recipient, text, sender, vendor's id, cursor, from_ms, headers
 *     receipt              now_ms, url, headers
 *   Headers are "name:value" a line. */
#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/core/err.h"
#include "worker/core/query.h"
#include "worker/engine/plugin.h"
#include "worker/engine/plugin_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

enum { HEADERS_MAX = 16, PLUGINS_MAX = 64 };

static struct plugin plugins[PLUGINS_MAX];
static size_t plugins_n;

static void check(bool holds)
{
    if (!holds)
        abort();
}

/* ---- settings ------------------------------------------------------------------------------- */

static void open_one(const char *path)
{
    struct plugin *p = &plugins[plugins_n];
    struct provider_report report = {0};
    struct err err = ERR_INIT;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, NULL);
    char *settings = json_dumps(json_object_get(root, "settings"), 0);

    check(settings != NULL);
    p->name = (char *)(uintptr_t)provider_entry()->name;
    check(plugin_check_table(p->name, provider_entry(), &p->table, &err) == 0);
    p->api = &p->table;
    /* A file of refusals may have settings that are none. */
    if (p->api->open(&plugin_host, settings, &report, &p->self) == 0) {
        p->api->describe(p->self, &p->caps);
        check(plugin_check_caps(p->name, p->api, &p->caps, &err) == 0);
    } else {
        p->api = NULL;
    }
    plugins_n++;
    free(report.setting);
    free(report.why);
    free(report.cure);
    free(settings);
    json_decref(root);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    char pattern[256];
    glob_t found = {0};

    (void)argc;
    (void)argv;
    snprintf(pattern, sizeof(pattern), "providers/%s/fixtures/*.json", provider_entry()->name);
    if (glob(pattern, 0, NULL, &found) != 0) {
        fprintf(stderr, "%s: no fixtures\n", pattern);
        exit(1);
    }
    for (size_t i = 0; i < found.gl_pathc && i < PLUGINS_MAX; i++)
        open_one(found.gl_pathv[i]);
    globfree(&found);
    return 0;
}

/* ---- input ---------------------------------------------------------------------------------- */

struct input {
    char *text; /* what was not taken yet; a copy, so that reading behind its end is seen */
    size_t left;
};

/* The next text; "" when nothing is left. */
static char *take(struct input *in)
{
    char *text = in->text, *end = memchr(text, '\0', in->left + 1);
    size_t len = (size_t)(end - text);

    in->text += len < in->left ? len + 1 : in->left;
    in->left -= len < in->left ? len + 1 : in->left;
    return text;
}

static const char *take_or_null(struct input *in)
{
    const char *text = take(in);

    return *text ? text : NULL;
}

/* What plugin.h promises of headers: names in lower case, no line ends. */
static size_t take_headers(struct input *in, struct provider_header headers[HEADERS_MAX])
{
    char *line = take(in), *colon, *next;
    size_t n = 0;

    for (; line && *line && n < HEADERS_MAX; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        colon = strchr(line, ':');
        if (!colon)
            continue;
        *colon = '\0';
        for (char *p = line; *p; p++)
            if (*p >= 'A' && *p <= 'Z')
                *p = (char)(*p - 'A' + 'a');
        headers[n++] = (struct provider_header){line, colon + 1};
    }
    return n;
}

/* Times are the host's own, so they make sense. */
static int64_t take_time(struct input *in)
{
    return (int64_t)(strtoull(take(in), NULL, 10) % UINT64_C(4102444800000));
}

static struct provider_reply take_reply(struct input *in, const uint8_t head[5],
                                        struct provider_header headers[HEADERS_MAX])
{
    struct provider_reply r = {
        .status = (head[3] << 8 | head[4]) % 700, .complete = !(head[2] & 1), .headers = headers};

    r.headers_count = take_headers(in, headers);
    r.body = in->text;
    r.body_len = in->left;
    return r;
}

/* ---- what must hold ------------------------------------------------------------------------- */

/* A vendor's bytes may make a plugin give up (the guard then calls it unknown); what it must not do
 * whatever they are is to speak twice, not at all, or outside its words. */
static void check_fault(const char *fault)
{
    check(!fault || strstr(fault, "failed"));
}

static void check_words(const char *code, const char *detail, int64_t wait)
{
    check(!code || (strlen(code) < PLUGIN_CODE_SIZE && !strpbrk(code, "\r\n\t\x1b")));
    check(!detail || (strlen(detail) < PLUGIN_DETAIL_SIZE && !strpbrk(detail, "\r\n\t\x1b")));
    check(wait >= -1 && wait <= INT64_C(604800000));
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void fuzz_judge(const struct plugin *p, struct input *in, const uint8_t head[5])
{
    struct provider_header headers[HEADERS_MAX];
    struct provider_reply r = take_reply(in, head, headers);
    struct plugin_verdict v = {0}, again = {0};

    plugin_judge(p, &r, 1700000000, &v);
    check_fault(v.fault);
    check_words(v.code, v.detail, v.retry_after_ms);
    check((unsigned)v.outcome < PROVIDER_OUTCOME_MAX_);
    if (!r.complete || r.status < 200)
        check(v.outcome == PROVIDER_UNKNOWN);
    check(!v.opt_out || v.outcome == PROVIDER_REJECTED);
    check(!v.login || v.outcome == PROVIDER_HELD);
    check(!v.parts || (v.parts_n > 1 && v.id && strcmp(v.parts[0], v.id) == 0));
    plugin_judge(p, &r, 1700000000, &again);
    check(v.outcome == again.outcome && same(v.id, again.id) && same(v.code, again.code) &&
          v.parts_n == again.parts_n);
    plugin_verdict_clear(&v);
    plugin_verdict_clear(&again);
}

static struct provider_msg take_msg(struct input *in)
{
    static const char key[] = "018f4e2a-7c1b-7d3e-9f00-0123456789ab";
    struct provider_msg msg = {.id = key,
                               .key = key,
                               .kind = "otp",
                               .callback_url = "https://r.example/receipts/x/t?k=018f4e2a",
                               .token = "token",
                               .created_ms = 1700000000000,
                               .expires_ms = 1700000300000,
                               .validity_ms = 300000};

    msg.recipient = take(in);
    if (msg.recipient[0] != '+' || !msg.recipient[1])
        msg.recipient = "+998901234567"; /* E.164, the database saw to that */
    msg.body = take(in);
    msg.body_len = strlen(msg.body);
    msg.sender = take_or_null(in);
    return msg;
}

static void fuzz_build(const struct plugin *p, struct input *in)
{
    struct plugin_request request = {0};
    struct provider_msg msg = take_msg(in);

    if (plugin_build(p, &msg, &request, NULL) == 0)
        check(request.method && plugin_is_url(request.url));
    plugin_request_clear(&request);
}

static void fuzz_ask(const struct plugin *p, struct input *in, const uint8_t head[5])
{
    struct provider_header headers[HEADERS_MAX];
    struct plugin_request request = {0};
    struct plugin_answer a = {0}, again = {0};
    struct provider_msg msg = take_msg(in);
    struct provider_question q = {.msg = &msg};
    struct provider_reply r;

    q.vendor_id = take_or_null(in);
    q.cursor = take_or_null(in);
    q.from_ms = take_time(in);
    q.to_ms = q.from_ms + 60000;
    r = take_reply(in, head, headers);
    if (plugin_ask(p, &q, &request, NULL) == 0)
        check(request.method && plugin_is_url(request.url));
    plugin_request_clear(&request);
    plugin_ask_judge(p, &q, &r, 1700000000, &a);
    if (!same(a.fault, "its next page is the same page")) /* a vendor may say so */
        check_fault(a.fault);
    check_words(a.code, a.detail, a.retry_after_ms);
    check((unsigned)a.finding < PROVIDER_FINDING_MAX_);
    check(!a.cursor || (a.finding == PROVIDER_CANNOT_SAY && !a.login));
    if (!r.complete || r.status < 200 || r.status >= 500)
        check(a.finding == PROVIDER_CANNOT_SAY);
    plugin_ask_judge(p, &q, &r, 1700000000, &again);
    check(a.finding == again.finding && a.ids_n == again.ids_n && same(a.cursor, again.cursor));
    plugin_answer_clear(&a);
    plugin_answer_clear(&again);
}

static void fuzz_login(const struct plugin *p, struct input *in, const uint8_t head[5])
{
    struct provider_header headers[HEADERS_MAX];
    struct provider_reply r = take_reply(in, head, headers);
    struct plugin_grant g = {0};

    plugin_login_judge(p, &r, &g);
    if (!same(g.fault, "its token is not one")) /* the vendor's bytes, handed on */
        check_fault(g.fault);
    check_words(g.code, g.detail, -1);
    check(!g.token || (r.complete && !g.refused && plugin_is_header_value(g.token)));
    plugin_grant_clear(&g);
}

static void check_events(const struct plugin_events *e)
{
    check(e->status >= 200 && e->status < 300 && e->receipts_n + e->inbounds_n <= 1000);
    for (size_t i = 0; i < e->receipts_n; i++) {
        check(e->receipts[i].ref || e->receipts[i].vendor_id);
        check((unsigned)e->receipts[i].status < PROVIDER_STATUS_MAX_);
        check_words(e->receipts[i].code, e->receipts[i].detail, -1);
    }
    for (size_t i = 0; i < e->inbounds_n; i++)
        check(e->inbounds[i].from && e->inbounds[i].text);
}

static bool is_form(const struct provider_callback *cb)
{
    static const char form[] = "application/x-www-form-urlencoded";

    for (size_t i = 0; i < cb->headers_count; i++)
        if (strcmp(cb->headers[i].name, "content-type") == 0)
            return strncasecmp(cb->headers[i].value, form, strlen(form)) == 0;
    return false;
}

static void fuzz_receipt(const struct plugin *p, struct input *in, const uint8_t head[5])
{
    struct provider_header headers[HEADERS_MAX];
    struct provider_callback cb = {.method = head[2] & 2 ? "GET" : "POST", .headers = headers};
    struct query query, form;
    struct plugin_events e = {0}, again = {0};
    const char *mark;

    cb.now_ms = take_time(in);
    cb.url = take(in);
    cb.headers_count = take_headers(in, headers);
    cb.body = in->text;
    cb.body_len = in->left;
    mark = strchr(cb.url, '?');
    (void)query_split(mark ? mark + 1 : "", mark ? strlen(mark + 1) : 0, &query);
    (void)query_split(cb.body, is_form(&cb) ? cb.body_len : 0, &form);
    cb.query = query.params;
    cb.query_count = query.count;
    cb.form = form.params;
    cb.form_count = form.count;
    int r = plugin_read(p, &cb, &e, NULL);
    check(r == 0 || r == -EACCES || r == -EBADMSG);
    check_events(&e);
    check(plugin_read(p, &cb, &again, NULL) == r && again.receipts_n == e.receipts_n &&
          again.inbounds_n == e.inbounds_n);
    plugin_events_clear(&e);
    plugin_events_clear(&again);
    query_done(&query);
    query_done(&form);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in;
    char *copy;

    if (size < 5)
        return 0;
    const struct plugin *p = &plugins[data[1] % plugins_n];
    if (!p->api)
        return 0;
    copy = malloc(size - 5 + 1);
    check(copy != NULL);
    memcpy(copy, data + 5, size - 5);
    copy[size - 5] = '\0';
    in = (struct input){copy, size - 5};
    if (data[0] % 5 == 0)
        fuzz_judge(p, &in, data);
    else if (data[0] % 5 == 1 && plugin_asks(p))
        fuzz_ask(p, &in, data);
    else if (data[0] % 5 == 2 && plugin_logs_in(p))
        fuzz_login(p, &in, data);
    else if (data[0] % 5 == 3 && plugin_takes_receipts(p))
        fuzz_receipt(p, &in, data);
    else if (data[0] % 5 == 4)
        fuzz_build(p, &in);
    free(copy);
    return 0;
}
