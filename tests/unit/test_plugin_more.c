/* The guard of what ABI 1.1 added, against a plugin that breaks its rules
 * (tests/unit/badplugins/odd_more.c): signing, parts, duplicates, logins, look-ups, callbacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/err.h"
#include "worker/engine/plugin.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char uuid[] = "018f4e2a-7c1b-7d3e-9f00-0123456789ab";

static struct plugin *open_odd(const char *settings)
{
    static char dir[PATH_MAX];
    char exe[PATH_MAX] = {0};
    struct err err = ERR_INIT;
    struct plugin *p = NULL;

    assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
    assert_true(snprintf(dir, sizeof(dir), "%s/badplugins", dirname(exe)) < (int)sizeof(dir));
    if (plugin_open(dir, "odd_more", settings, &p, &err) < 0)
        fail_msg("%s", err_text(&err));
    err_done(&err);
    return p;
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static struct provider_reply reply_of(int status, const char *body)
{
    return (struct provider_reply){
        .status = status, .complete = true, .body = body, .body_len = strlen(body)};
}

/* ---- signing -------------------------------------------------------------------------------- */

static const struct {
    const char *name, *region, *key, *secret, *kind, *header, *why;
} signings[] = {
    {"good", "eu-central-1", "AKID", "s/e+c:r", "k", "Content-Type", NULL},
    {"session", "-", "-", "-", "session", "Content-Type", NULL},
    {"twice", "eu-central-1", "AKID", "s", "twice", "Content-Type", "signed twice"},
    {"a colon in the region", "eu:x", "AKID", "s", "k", "Content-Type", "region or service"},
    {"no region", "", "AKID", "s", "k", "Content-Type", "region or service"},
    {"a colon in the key", "eu-central-1", "AK:ID", "s", "k", "Content-Type", "keys"},
    {"no key", "eu-central-1", "", "s", "k", "Content-Type", "keys"},
    {"no secret", "eu-central-1", "AKID", "", "k", "Content-Type", "keys"},
    {"D14 a line end in the secret", "eu-central-1", "AKID", "s\r\nx: y", "k", "Content-Type",
     "keys"},
    {"no type", "eu-central-1", "AKID", "s", "k", NULL, "no Content-Type"},
    {"its own signature", "eu-central-1", "AKID", "s", "k", "authorization", "signature's to set"},
    {"its own date", "eu-central-1", "AKID", "s", "k", "X-Amz-Date", "signature's to set"},
    {"its own session", "eu-central-1", "AKID", "s", "k", "X-Amz-Security-Token",
     "signature's to set"},
};

static void what_is_signed_can_be_signed(void **state)
{
    struct plugin *p = open_odd("{}");
    struct plugin_request request = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(signings) / sizeof(signings[0]); i++) {
        struct provider_msg msg = {.key = signings[i].key,
                                   .recipient = signings[i].region,
                                   .body = signings[i].secret,
                                   .sender = signings[i].header,
                                   .kind = signings[i].kind};
        struct err err = ERR_INIT;
        int r = plugin_build(p, &msg, &request, &err);

        if (r != (signings[i].why ? -EINVAL : 0) ||
            (signings[i].why && !strstr(err_text(&err), signings[i].why)))
            fail_msg("%s: %d, %s", signings[i].name, r, err_text(&err));
        /* The reason is logged. */
        assert_true(r == 0 || !strstr(err_text(&err), "AKID"));
        assert_true(same(request.sigv4, r == 0 ? "aws:amz:eu-central-1:sns" : NULL));
        assert_true(same(request.sigv4_userpwd, r == 0 ? "AKID:s/e+c:r" : NULL));
        assert_int_equal(request.headers_count, r < 0 ? 0 : request.sigv4_session ? 2 : 1);
        if (request.sigv4_session) {
            assert_string_equal(request.headers[1].name, "x-amz-security-token");
            assert_string_equal(request.headers[1].value, "tok+en/=");
        }
        err_done(&err);
    }
    plugin_request_clear(&request);
    plugin_close(p);
}

/* ---- verdicts ------------------------------------------------------------------------------- */

static const struct {
    const char *name, *settings;
    int status;
    bool complete;
    const char *body;
    enum provider_outcome outcome;
    const char *id;
    size_t parts;
    bool login;
    const char *fault;
} verdicts[] = {
    {"three parts", "several", 201, true, "abc", PROVIDER_ACCEPTED, "a", 3, false, NULL},
    {"one part is none", "several", 201, true, "a", PROVIDER_ACCEPTED, "a", 0, false, NULL},
    {"parts nobody keeps", "", 201, true, "ab", PROVIDER_UNKNOWN, NULL, 0, false, "judging failed"},
    {"a part that is no id", "several", 201, true, "a\n", PROVIDER_UNKNOWN, NULL, 1, false,
     "judging failed"},
    {"the id is no part", "several", 202, true, "", PROVIDER_UNKNOWN, "other", 0, false,
     "its first part is not its id"},
    {"a duplicate needs no id", "", 203, true, "", PROVIDER_ACCEPTED, NULL, 0, false, NULL},
    {"half a duplicate", "", 203, false, "", PROVIDER_UNKNOWN, NULL, 0, false, NULL},
    {"token refused", "", 204, true, "", PROVIDER_HELD, NULL, 0, true, NULL},
    {"token half refused", "", 204, false, "", PROVIDER_UNKNOWN, NULL, 0, false, NULL},
    {"login and verdict", "", 205, true, "", PROVIDER_UNKNOWN, NULL, 0, false, "it judged twice"},
    {"a rejected duplicate", "", 200, true, "", PROVIDER_REJECTED, NULL, 0, false, NULL},
};

static void verdicts_of_1_1(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(verdicts) / sizeof(verdicts[0]); i++) {
        struct plugin *p = open_odd(verdicts[i].settings);
        struct plugin_verdict v = {0};
        struct provider_reply reply = reply_of(verdicts[i].status, verdicts[i].body);

        reply.complete = verdicts[i].complete;
        plugin_judge(p, &reply, 0, &v);
        if (v.outcome != verdicts[i].outcome || !same(v.id, verdicts[i].id) ||
            v.parts_n != verdicts[i].parts || v.login != verdicts[i].login ||
            !same(v.fault, verdicts[i].fault))
            fail_msg("%s: outcome %d, id %s, %zu parts, login %d, fault %s", verdicts[i].name,
                     (int)v.outcome, v.id ? v.id : "-", v.parts_n, v.login,
                     v.fault ? v.fault : "-");
        plugin_verdict_clear(&v);
        assert_null(v.parts);
        plugin_close(p);
    }
}

static void parts_are_bounded(void **state)
{
    struct plugin *p = open_odd("several");
    struct plugin_verdict v = {0};
    char body[66];
    struct provider_reply reply;

    (void)state;
    memset(body, 'a', sizeof(body));
    body[64] = '\0';
    reply = reply_of(201, body);
    plugin_judge(p, &reply, 0, &v);
    assert_int_equal(v.outcome, PROVIDER_ACCEPTED);
    assert_int_equal(v.parts_n, 64);
    assert_string_equal(v.parts[63], "a");
    body[64] = 'a';
    body[65] = '\0';
    reply = reply_of(201, body);
    plugin_judge(p, &reply, 0, &v);
    assert_int_equal(v.outcome, PROVIDER_UNKNOWN);
    plugin_verdict_clear(&v);
    plugin_close(p);
}

/* ---- look-ups ------------------------------------------------------------------------------- */

static const struct {
    const char *settings;
    int code;
    const char *why;
} asks[] = {
    {"", 0, NULL},
    {"nothing to ask", -ENODATA, "nothing to ask by"},
    {"ask fails", -EIO, "cannot ask a request"},
    {"ask refused", -EINVAL, "not http or https"},
    {"no request", -EINVAL, "no method"},
};

static void questions_are_requests(void **state)
{
    struct provider_question question = {.msg = NULL};

    (void)state;
    for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
        struct plugin *p = open_odd(asks[i].settings);
        struct plugin_request request = {0};
        struct err err = ERR_INIT;
        int r = plugin_ask(p, &question, &request, &err);

        if (r != asks[i].code || (asks[i].why && !strstr(err_text(&err), asks[i].why)))
            fail_msg("%s: %d, %s", asks[i].settings, r, err_text(&err));
        assert_true((request.method != NULL) == (r == 0));
        plugin_request_clear(&request);
        plugin_close(p);
        err_done(&err);
    }
}

static const struct {
    const char *name, *settings;
    int status;
    bool complete;
    const char *body, *vendor_id, *cursor;
    enum provider_finding finding;
    size_t ids;
    const char *first, *next, *fault;
} answers[] = {
    {"never seen", "", 200, true, "", NULL, NULL, PROVIDER_NEVER_SEEN, 0, NULL, NULL, NULL},
    {"half a list", "", 200, false, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL, NULL},
    {"an interim status", "", 103, true, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL, NULL},
    {"no answer", "", 210, true, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL,
     "it did not answer"},
    {"two answers", "", 211, true, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL,
     "it answered twice"},
    {"out of range", "", 212, true, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL,
     "its finding is out of range"},
    {"failed", "", 213, true, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL,
     "judging an answer failed"},
    {"no memory is no fault", "", 218, true, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL,
     NULL},
    {"candidates in order", "", 214, true, "ba", NULL, NULL, PROVIDER_HAS_IT, 2, "b", NULL, NULL},
    {"found without an id", "", 214, true, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL,
     NULL},
    {"found by the id it has", "", 214, true, "", "v7", NULL, PROVIDER_HAS_IT, 1, "v7", NULL, NULL},
    {"a vendor without ids", "no id", 214, true, "", NULL, NULL, PROVIDER_HAS_IT, 0, NULL, NULL,
     NULL},
    {"by text an id is needed", "no id by text", 214, true, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0,
     NULL, NULL, NULL},
    {"a bad id", "", 214, true, "a\n", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL,
     "judging an answer failed"},
    {"the next page", "", 215, true, "p2", NULL, "p1", PROVIDER_CANNOT_SAY, 1, "x", "p2", NULL},
    {"the same page", "", 215, true, "p1", NULL, "p1", PROVIDER_CANNOT_SAY, 0, NULL, NULL,
     "its next page is the same page"},
    {"no cursor", "", 215, true, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL,
     "judging an answer failed"},
    {"more and enough", "", 216, true, "", NULL, NULL, PROVIDER_CANNOT_SAY, 0, NULL, NULL,
     "it answered twice"},
    {"refused, whatever id", "", 220, true, "", NULL, NULL, PROVIDER_REFUSED_IT, 0, NULL, NULL,
     NULL},
};

static void answers_prove_no_more_than_they_may(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct plugin *p = open_odd(answers[i].settings);
        struct plugin_answer a = {0};
        struct provider_question q = {.vendor_id = answers[i].vendor_id,
                                      .cursor = answers[i].cursor};
        struct provider_reply reply = reply_of(answers[i].status, answers[i].body);

        reply.complete = answers[i].complete;
        plugin_ask_judge(p, &q, &reply, 0, &a);
        if (a.finding != answers[i].finding || a.ids_n != answers[i].ids || a.login ||
            !same(a.cursor, answers[i].next) || !same(a.fault, answers[i].fault) ||
            (a.ids_n > 0 && !same(a.ids[0], answers[i].first)))
            fail_msg("%s: finding %d, %zu ids, cursor %s, fault %s", answers[i].name,
                     (int)a.finding, a.ids_n, a.cursor ? a.cursor : "-", a.fault ? a.fault : "-");
        plugin_answer_clear(&a);
        assert_null(a.ids);
        plugin_close(p);
    }
}

static void answers_are_bounded_cleaned_and_patient(void **state)
{
    struct plugin *p = open_odd("");
    struct plugin_answer a = {0};
    struct provider_question q = {0};
    const struct provider_header wait = {"retry-after", "7"};
    char body[102];
    struct provider_reply reply = reply_of(429, "no\x1b[31m 998901234567\r\n");

    (void)state;
    reply.headers = &wait;
    reply.headers_count = 1;
    plugin_ask_judge(p, &q, &reply, 0, &a);
    assert_int_equal(a.retry_after_ms, 7000);
    assert_null(strpbrk(a.detail, "\r\n\x1b"));
    assert_null(strpbrk(a.code, "\r\n\x1b"));
    assert_null(strstr(a.detail, "998901234567"));
    reply.status = 219; /* the plugin's own word wins */
    plugin_ask_judge(p, &q, &reply, 0, &a);
    assert_int_equal(a.retry_after_ms, 2500);
    reply.status = 217;
    plugin_ask_judge(p, &q, &reply, 0, &a);
    assert_true(a.login);
    assert_null(a.fault);

    memset(body, 'i', sizeof(body));
    body[100] = '\0';
    reply = reply_of(214, body);
    plugin_ask_judge(p, &q, &reply, 0, &a);
    assert_int_equal(a.ids_n, 100);
    body[100] = 'i';
    body[101] = '\0';
    reply = reply_of(214, body);
    plugin_ask_judge(p, &q, &reply, 0, &a);
    assert_int_equal(a.finding, PROVIDER_CANNOT_SAY);
    assert_int_equal(a.ids_n, 0);
    plugin_answer_clear(&a);
    plugin_close(p);
}

/* ---- logins --------------------------------------------------------------------------------- */

static const struct {
    const char *settings;
    int code;
    const char *method, *token, *why;
} logins[] = {
    {"", 0, "POST", NULL, NULL},
    {"token made", 0, NULL, "made", NULL},
    {"both", -EINVAL, NULL, NULL, "a token and a request at once"},
    {"refuses", -EINVAL, NULL, NULL, "refuses its own login"},
    {"bad token", -EINVAL, NULL, NULL, "token is not one"},
    {"login fails", -EIO, NULL, NULL, "cannot login a request"},
};

static void a_login_is_a_request_or_a_token(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(logins) / sizeof(logins[0]); i++) {
        struct plugin *p = open_odd(logins[i].settings);
        struct plugin_request request = {0};
        struct plugin_grant grant = {0};
        struct err err = ERR_INIT;
        int r = plugin_login(p, 0, &request, &grant, &err);

        if (r != logins[i].code || !same(request.method, logins[i].method) ||
            !same(grant.token, logins[i].token) ||
            (logins[i].why && !strstr(err_text(&err), logins[i].why)))
            fail_msg("%s: %d, method %s, token %s, %s", logins[i].settings, r,
                     request.method ? request.method : "-", grant.token ? grant.token : "-",
                     err_text(&err));
        assert_true(!grant.token || grant.lifetime_ms == 60000);
        plugin_request_clear(&request);
        plugin_grant_clear(&grant);
        plugin_close(p);
        err_done(&err);
    }
}

static const struct {
    const char *name;
    int status;
    bool complete;
    const char *body, *token;
    bool refused;
    const char *fault;
} grants[] = {
    {"a token", 200, true, "eyJ.x-_=", "eyJ.x-_=", false, NULL},
    {"an empty one: none is needed", 200, true, "", "", false, NULL},
    {"half an answer", 200, false, "eyJ", NULL, false, NULL},
    {"D14 a line end in it", 200, true, "a\r\nX: y", NULL, false, "its token is not one"},
    {"two", 210, true, "", NULL, false, "it granted twice"},
    {"over before it began", 211, true, "", NULL, false, "its token's lifetime is negative"},
    {"failed", 212, true, "", NULL, false, "judging a login failed"},
    {"granted and refused", 213, true, "", NULL, false, "it granted twice"},
    {"unreadable", 214, true, "<html>", NULL, false, NULL},
    {"refused", 401, true, "", NULL, true, NULL},
};

static void grants_are_kept_when_they_are_good(void **state)
{
    struct plugin *p = open_odd("");
    struct plugin_grant g = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(grants) / sizeof(grants[0]); i++) {
        struct provider_reply reply = reply_of(grants[i].status, grants[i].body);

        reply.complete = grants[i].complete;
        plugin_login_judge(p, &reply, &g);
        if (!same(g.token, grants[i].token) || g.refused != grants[i].refused ||
            !same(g.fault, grants[i].fault))
            fail_msg("%s: token %s, refused %d, fault %s", grants[i].name, g.token ? g.token : "-",
                     g.refused, g.fault ? g.fault : "-");
        assert_int_equal(g.lifetime_ms, g.token ? 3600000 : 0);
        assert_true(same(g.code, g.refused ? "E\\n1" : NULL));
        assert_true(!g.detail || !strstr(g.detail, "998901234567"));
    }
    plugin_grant_clear(&g);
    plugin_close(p);
}

/* ---- callbacks ------------------------------------------------------------------------------ */

static struct provider_callback callback_of(const char *body, const struct provider_param *word,
                                            const struct provider_param *k)
{
    return (struct provider_callback){.method = "POST",
                                      .url = "https://r.example/receipts/x/token",
                                      .query = k,
                                      .query_count = k ? 1 : 0,
                                      .form = word,
                                      .form_count = word ? 1 : 0,
                                      .body = body,
                                      .body_len = strlen(body)};
}

static const struct {
    const char *name, *settings, *body, *word;
    int code;
    const char *why;
} callbacks[] = {
    {"nothing in it", "", "", NULL, 0, NULL},
    {"wrong signature", "", "ux", NULL, -EACCES, "signature"},
    {"not theirs", "", "ub", NULL, -EBADMSG, "no callback of the vendor"},
    {"no memory", "", "o", NULL, -ENOMEM, NULL},
    {"failed", "", "q", NULL, -EBADMSG, "receipt answered -5"},
    {"positive", "", "p", NULL, -EBADMSG, "receipt answered 3"},
    {"a status of its own, not passed on", "", "us", NULL, -EBADMSG, "status is out of range"},
    {"a refusal stands after a fault", "", "sx", NULL, -EACCES, "signature"},
    {"an answer that makes them call again", "", "ue", NULL, -EBADMSG, "answer to the callback"},
    {"D14 a line end in the answer's type", "", "uh", NULL, -EBADMSG, "answer to the callback"},
    {"answered twice", "", "aa", NULL, -EBADMSG, "answers the callback twice"},
    {"C10 a URL to confirm that is none", "", "c", "file:///etc/passwd", -EBADMSG, "answered -22"},
    {"none are taken", "no receipts", "u", NULL, -EBADMSG, "takes no receipts"},
};

static void callbacks_are_refused_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(callbacks) / sizeof(callbacks[0]); i++) {
        struct plugin *p = open_odd(callbacks[i].settings);
        struct provider_param word = {"w", callbacks[i].word};
        struct provider_callback cb =
            callback_of(callbacks[i].body, callbacks[i].word ? &word : NULL, NULL);
        struct plugin_events events = {0};
        struct err err = ERR_INIT;
        int r = plugin_read(p, &cb, &events, &err);

        if (r != callbacks[i].code ||
            (callbacks[i].why && !strstr(err_text(&err), callbacks[i].why)))
            fail_msg("%s: %d, %s", callbacks[i].name, r, err_text(&err));
        assert_int_equal(events.receipts_n + events.inbounds_n, 0);
        assert_null(events.receipts);
        assert_int_equal(events.status, 200);
        plugin_events_clear(&events);
        plugin_close(p);
        err_done(&err);
    }
}

static struct plugin *read_ok(const char *body, const char *word, const char *k,
                              struct plugin_events *events)
{
    struct plugin *p = open_odd("");
    struct provider_param words = {"w", word}, ks = {"k", k};
    struct provider_callback cb = callback_of(body, word ? &words : NULL, k ? &ks : NULL);
    struct err err = ERR_INIT;

    if (plugin_read(p, &cb, events, &err) < 0)
        fail_msg("%s", err_text(&err));
    err_done(&err);
    return p;
}

static void receipts_are_cleaned_and_found(void **state)
{
    struct plugin_events e = {0};
    struct plugin *p = read_ok("uiw", "no\x1b[31m 998901234567\xff\n", uuid, &e);

    (void)state;
    plugin_close(p);
    assert_int_equal(e.receipts_n, 2); /* the third has neither a ref nor an id that is one */
    assert_string_equal(e.receipts[0].ref, uuid); /* as SQL writes it */
    assert_string_equal(e.receipts[0].vendor_id, "v1");
    assert_int_equal(e.receipts[0].at_ms, 1700000000000);
    assert_null(strpbrk(e.receipts[0].code, "\x1b\xff\n"));
    assert_null(strpbrk(e.receipts[0].detail, "\x1b\xff\n"));
    assert_null(strstr(e.receipts[0].detail, "998901234567"));
    assert_null(e.receipts[1].ref); /* `k` speaks for one receipt, not for one of several */
    plugin_events_clear(&e);
}

static void k_is_the_ref_of_one_receipt(void **state)
{
    static const struct {
        const char *body, *word, *k, *ref;
        size_t n;
    } rows[] = {
        {"n", NULL, "018F4E2A-7C1B-7D3E-9F00-0123456789AB", uuid, 1},
        {"i", NULL, uuid, uuid, 1},
        {"i", NULL, "018f4e2a-7c1b-7d3e-9f00-0123456789a", NULL, 1},
        {"i", NULL, "018f4e2a07c1b07d3e09f0000123456789ab", NULL, 1},
        {"i", NULL, "018f4e2a-7c1b-7d3e-9f00-0123456789ag", NULL, 1},
        {"n", NULL, "x", NULL, 0},
        {"n", NULL, NULL, NULL, 0},
        {"w", "order-77", uuid, uuid, 1}, /* another's ref is none */
        {"w", "order-77", NULL, NULL, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct plugin_events e = {0};
        struct plugin *p = read_ok(rows[i].body, rows[i].word, rows[i].k, &e);

        plugin_close(p);
        if (e.receipts_n != rows[i].n || (e.receipts_n && !same(e.receipts[0].ref, rows[i].ref)))
            fail_msg("row %zu: %zu receipts, ref %s", i, e.receipts_n,
                     e.receipts_n && e.receipts[0].ref ? e.receipts[0].ref : "-");
        assert_true(!e.receipts_n || e.receipts[0].at_ms == 0); /* INT64_MAX is no time */
        plugin_events_clear(&e);
    }
}

static void inbound_messages_are_text(void **state)
{
    struct plugin_events e = {0};
    struct plugin *p = read_ok("mac", "https://sns.example/?Action=Confirm", NULL, &e);

    (void)state;
    plugin_close(p);
    assert_int_equal(e.inbounds_n, 1);
    assert_string_equal(e.inbounds[0].from, "998901234567");
    assert_string_equal(e.inbounds[0].to, "4546");
    assert_null(e.inbounds[0].id);
    assert_int_equal(e.status, 202);
    assert_string_equal(e.content_type, "text/plain");
    assert_int_equal(e.body_len, 10);
    assert_string_equal(e.body, "ACK/Jasmin");
    assert_string_equal(e.confirm, "https://sns.example/?Action=Confirm");
    plugin_events_clear(&e);

    p = read_ok("mu", " \n Stop \xd0\xa1\xd0\xa2\xd0\x9e\xd0\x9f\x1b \r\n", NULL, &e);
    plugin_close(p);
    assert_string_equal(e.inbounds[0].text, "Stop \xd0\xa1\xd0\xa2\xd0\x9e\xd0\x9f\\u{1b}");
    plugin_events_clear(&e);

    p = read_ok("mu", "\xff not UTF-8", NULL, &e); /* refused alone */
    plugin_close(p);
    assert_int_equal(e.inbounds_n, 0);
    assert_int_equal(e.receipts_n, 1);
    plugin_events_clear(&e);

    p = read_ok("m", " ", NULL, &e);
    plugin_close(p);
    assert_string_equal(e.inbounds[0].text, "");
    plugin_events_clear(&e);
}

static void events_are_bounded(void **state)
{
    struct plugin *p = open_odd("");
    char body[1002];
    struct plugin_events e = {0};
    struct err err = ERR_INIT;
    struct provider_callback cb;

    (void)state;
    memset(body, 'u', sizeof(body));
    memset(body, 'm', 500);
    body[1000] = '\0';
    cb = callback_of(body, NULL, NULL);
    assert_int_equal(plugin_read(p, &cb, &e, &err), 0);
    assert_int_equal(e.inbounds_n, 500);
    assert_int_equal(e.receipts_n, 500);
    body[1000] = 'u';
    body[1001] = '\0';
    cb = callback_of(body, NULL, NULL);
    assert_int_equal(plugin_read(p, &cb, &e, &err), -EBADMSG);
    assert_non_null(strstr(err_text(&err), "more than 1,000 events"));
    plugin_events_clear(&e);
    plugin_close(p);
    err_done(&err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_signed_can_be_signed),
        cmocka_unit_test(verdicts_of_1_1),
        cmocka_unit_test(parts_are_bounded),
        cmocka_unit_test(questions_are_requests),
        cmocka_unit_test(answers_prove_no_more_than_they_may),
        cmocka_unit_test(answers_are_bounded_cleaned_and_patient),
        cmocka_unit_test(a_login_is_a_request_or_a_token),
        cmocka_unit_test(grants_are_kept_when_they_are_good),
        cmocka_unit_test(callbacks_are_refused_whole),
        cmocka_unit_test(receipts_are_cleaned_and_found),
        cmocka_unit_test(k_is_the_ref_of_one_receipt),
        cmocka_unit_test(inbound_messages_are_text),
        cmocka_unit_test(events_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
