/* Every plugin, through the guard, driven by the files in providers/NAME/fixtures: settings and
 * what they are refused for, messages and the request they must become, replies and what they
 * prove, questions and answers, logins, callbacks and the events in them. Each case is a test of
 * its own, so that a failure names plugin, file and rule. providers/README.md tells the format.
 *
 * A member a case does not name must not be there, `detail` aside; a member nobody knows is a
 * mistake in the file. A plugin without fixtures fails.
 *
 *   test_plugins [NAME | FOLDER]   one plugin of this tree; or FOLDER/NAME.so of any other, where
 *                                  FOLDER ends in /NAME and has a slash */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/fixture.h"
#include "worker/core/err.h"
#include "worker/core/query.h"
#include "worker/engine/plugin.h"

#include <errno.h>
#include <glob.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define NOW_MS INT64_C(1700000000000) /* where a case tells no time */
enum { PATH_SIZE = 2 * PATH_MAX };

/* The program is O/tests/NAME, the plugins lie in O/providers; tests run in the checkout. */
static char provider_dir[PATH_SIZE];

struct example {
    char *plugin; /* shared by a folder's cases; never freed before the end */
    const json_t *settings;
    const json_t *example;
};

static struct plugin *open_plugin(const struct example *c, const json_t *settings, struct err *err)
{
    struct plugin *p = NULL;
    char *text = json_dumps(settings, JSON_COMPACT);

    assert_non_null(text);
    if (plugin_open(provider_dir, c->plugin, text, &p, err) < 0)
        p = NULL;
    free(text);
    return p;
}

static struct plugin *must_open(const struct example *c)
{
    struct err err = ERR_INIT;
    struct plugin *p = open_plugin(c, c->settings, &err);

    if (!p)
        fail_msg("%s %s", err_text(&err), err.hint ? err.hint : "");
    err_done(&err);
    return p;
}

/* ---- messages ------------------------------------------------------------------------------- */

/* *ret_meta is for the caller to free. */
static struct provider_msg msg_of(const json_t *message, char **ret_meta)
{
    static const char some_key[] = "018f4e2a-7c1b-7d3e-9f00-0123456789ab";
    const json_t *meta = member(message, "meta");

    only(message, " id key recipient body sender kind meta meta_json created_ms expires_ms"
                  " validity_ms callback_url token ");
    *ret_meta = json_is_object(meta) ? json_dumps(meta, 0) : NULL;
    return (struct provider_msg){
        .id = text_of(message, "id") ? text_of(message, "id") : some_key,
        .key = text_of(message, "key") ? text_of(message, "key") : some_key,
        .recipient = text_of(message, "recipient") ? text_of(message, "recipient") : "+1",
        .body = text_of(message, "body") ? text_of(message, "body") : "",
        .body_len = json_string_length(member(message, "body")),
        .sender = text_of(message, "sender"),
        .kind = text_of(message, "kind") ? text_of(message, "kind") : "otp",
        .meta_json = *ret_meta ? *ret_meta : text_of(message, "meta_json"),
        .created_ms = number_of(message, "created_ms", 0),
        .expires_ms = number_of(message, "expires_ms", 0),
        .validity_ms = number_of(message, "validity_ms", 0),
        .callback_url = text_of(message, "callback_url"),
        .token = text_of(message, "token"),
    };
}

static void check_failure(int r, const struct err *err, const char *failure)
{
    if (r >= 0)
        fail_msg("was built, wanted an error with: %s", failure);
    if (!strstr(err_text(err), failure))
        fail_msg("%s, wanted: %s", err_text(err), failure);
}

static void check_build(const struct example *c, const json_t *message)
{
    const char *failure = text_of(c->example, "build_error");
    struct plugin *p = must_open(c);
    struct plugin_request request = {0};
    struct err err = ERR_INIT;
    char *meta;
    struct provider_msg msg = msg_of(message, &meta);
    int r = plugin_build(p, &msg, &request, &err);

    if (failure)
        check_failure(r, &err, failure);
    else if (r < 0)
        fail_msg("%s", err_text(&err));
    else
        same_request(member(c->example, "request"), &request);
    plugin_request_clear(&request);
    plugin_close(p);
    err_done(&err);
    free(meta);
}

/* ---- replies -------------------------------------------------------------------------------- */

/* *ret_body is for the caller to free. */
static struct provider_reply
reply_of(const json_t *reply, struct provider_header headers[FIXTURE_HEADERS_MAX], char **ret_body)
{
    struct provider_reply r = {
        .status = (int)number_of(reply, "status", 0),
        .complete = !json_is_false(member(reply, "complete")),
        .headers = headers,
    };

    only(reply, " status headers body complete ");
    r.headers_count = headers_of(reply, headers);
    *ret_body = body_of(reply, &r.body_len);
    r.body = *ret_body;
    return r;
}

static void same_verdict(const json_t *wanted, const struct plugin_verdict *v)
{
    static const char *const outcomes[] = {"accepted", "rejected", "throttled", "held",
                                           "refused",  "unknown",  NULL};

    only(wanted, " outcome id code detail retry_after_ms opt_out login parts ");
    same("the guard's complaint", v->fault, NULL);
    assert_in_range(v->outcome, 0, PROVIDER_OUTCOME_MAX_ - 1);
    index_of("outcome", outcomes, text_of(wanted, "outcome"));
    same("the outcome", outcomes[v->outcome], text_of(wanted, "outcome"));
    same("the id", v->id, text_of(wanted, "id"));
    same("the code", v->code, text_of(wanted, "code"));
    same_detail(v->detail, wanted);
    same_number("retry_after_ms", v->retry_after_ms, number_of(wanted, "retry_after_ms", -1));
    same_number("opt_out", v->opt_out, json_is_true(member(wanted, "opt_out")));
    same_number("login", v->login, json_is_true(member(wanted, "login")));
    same_list("the parts", v->parts, v->parts_n, member(wanted, "parts"));
}

static void check_judge(const struct example *c, const json_t *reply)
{
    struct provider_header headers[FIXTURE_HEADERS_MAX];
    struct plugin *p = must_open(c);
    struct plugin_verdict v = {0};
    char *body;
    struct provider_reply r = reply_of(reply, headers, &body);

    plugin_judge(p, &r, NOW_MS / 1000, &v);
    same_verdict(member(c->example, "verdict"), &v);
    plugin_verdict_clear(&v);
    plugin_close(p);
    free(body);
}

/* ---- look-ups ------------------------------------------------------------------------------- */

static int errno_of(const char *name)
{
    static const char *const names[] = {"ENODATA", "EACCES", "EBADMSG", "EINVAL", NULL};
    static const int codes[] = {ENODATA, EACCES, EBADMSG, EINVAL};

    return codes[index_of("error", names, name)];
}

static void same_answer(const json_t *wanted, const struct plugin_answer *a)
{
    static const char *const findings[] = {"cannot_say", "has_it", "refused_it", "never_seen",
                                           NULL};

    only(wanted, " finding ids cursor code detail retry_after_ms login ");
    same("the guard's complaint", a->fault, NULL);
    same("the cursor", a->cursor, text_of(wanted, "cursor"));
    same_number("login", a->login, json_is_true(member(wanted, "login")));
    assert_in_range(a->finding, 0, PROVIDER_FINDING_MAX_ - 1);
    if (member(wanted, "finding") || (!a->cursor && !a->login)) {
        index_of("finding", findings, text_of(wanted, "finding"));
        same("the finding", findings[a->finding], text_of(wanted, "finding"));
    }
    same_list("the ids", a->ids, a->ids_n, member(wanted, "ids"));
    same("the code", a->code, text_of(wanted, "code"));
    same_detail(a->detail, wanted);
    same_number("retry_after_ms", a->retry_after_ms, number_of(wanted, "retry_after_ms", -1));
}

static void check_answer(const struct example *c, const struct plugin *p,
                         const struct provider_question *q)
{
    struct provider_header headers[FIXTURE_HEADERS_MAX];
    struct plugin_answer a = {0};
    char *body;
    struct provider_reply r = reply_of(member(c->example, "reply"), headers, &body);

    plugin_ask_judge(p, q, &r, NOW_MS / 1000, &a);
    same_answer(member(c->example, "answer"), &a);
    plugin_answer_clear(&a);
    free(body);
}

static void check_ask(const struct example *c, const struct plugin *p,
                      const struct provider_question *q)
{
    const char *failure = text_of(c->example, "ask_error");
    struct plugin_request request = {0};
    struct err err = ERR_INIT;
    int r = plugin_ask(p, q, &request, &err);

    if (failure)
        same_number("ask", r, -errno_of(failure));
    else if (r < 0)
        fail_msg("%s", err_text(&err));
    else
        same_request(member(c->example, "request"), &request);
    plugin_request_clear(&request);
    err_done(&err);
}

static void check_question(const struct example *c, const json_t *question)
{
    struct plugin *p = must_open(c);
    char *meta;
    struct provider_msg msg = msg_of(member(question, "message"), &meta);
    struct provider_question q = {.msg = &msg,
                                  .vendor_id = text_of(question, "vendor_id"),
                                  .from_ms = number_of(question, "from_ms", 0),
                                  .to_ms = number_of(question, "to_ms", 0),
                                  .cursor = text_of(question, "cursor")};

    only(question, " message vendor_id from_ms to_ms cursor ");
    assert_true(plugin_asks(p));
    if (member(c->example, "request") || member(c->example, "ask_error"))
        check_ask(c, p, &q);
    if (member(c->example, "reply"))
        check_answer(c, p, &q);
    plugin_close(p);
    free(meta);
}

/* ---- logins --------------------------------------------------------------------------------- */

static void same_grant(const json_t *wanted, const struct plugin_grant *g)
{
    only(wanted, " token lifetime_ms refused code detail ");
    same("the guard's complaint", g->fault, NULL);
    same("the token", g->token, text_of(wanted, "token"));
    same_number("lifetime_ms", g->lifetime_ms, number_of(wanted, "lifetime_ms", 0));
    same_number("refused", g->refused, json_is_true(member(wanted, "refused")));
    same("the code", g->code, text_of(wanted, "code"));
    same_detail(g->detail, wanted);
}

static void check_login(const struct example *c, const json_t *login)
{
    struct plugin *p = must_open(c);
    struct plugin_request request = {0};
    struct plugin_grant grant = {0};
    struct err err = ERR_INIT;

    only(login, " now_ms ");
    assert_true(plugin_logs_in(p));
    if (plugin_login(p, number_of(login, "now_ms", NOW_MS), &request, &grant, &err) < 0)
        fail_msg("%s", err_text(&err));
    if (member(c->example, "request"))
        same_request(member(c->example, "request"), &request);
    else
        same("the method", request.method, NULL);
    same_grant(member(c->example, "grant"), &grant);
    plugin_request_clear(&request);
    plugin_grant_clear(&grant);
    plugin_close(p);
    err_done(&err);
}

static void check_login_judge(const struct example *c, const json_t *reply)
{
    struct provider_header headers[FIXTURE_HEADERS_MAX];
    struct plugin *p = must_open(c);
    struct plugin_grant grant = {0};
    char *body;
    struct provider_reply r = reply_of(reply, headers, &body);

    assert_true(plugin_logs_in(p));
    plugin_login_judge(p, &r, &grant);
    same_grant(member(c->example, "grant"), &grant);
    plugin_grant_clear(&grant);
    plugin_close(p);
    free(body);
}

/* ---- callbacks ------------------------------------------------------------------------------ */

static void same_receipts(const json_t *wanted, const struct plugin_events *events)
{
    static const char *const statuses[] = {"in_transit", "delivered", "undelivered",
                                           "expired",    "rejected",  NULL};

    same_number("the number of receipts", (int64_t)events->receipts_n,
                (int64_t)json_array_size(wanted));
    for (size_t i = 0; i < events->receipts_n; i++) {
        const json_t *w = json_array_get(wanted, i);
        const struct plugin_receipt *r = &events->receipts[i];

        only(w, " status ref vendor_id code detail at_ms ");
        index_of("status", statuses, text_of(w, "status"));
        same("the status", statuses[r->status], text_of(w, "status"));
        same("the ref", r->ref, text_of(w, "ref"));
        same("the vendor's id", r->vendor_id, text_of(w, "vendor_id"));
        same("the code", r->code, text_of(w, "code"));
        same_detail(r->detail, w);
        same_number("at_ms", r->at_ms, number_of(w, "at_ms", 0));
    }
}

static void same_inbounds(const json_t *wanted, const struct plugin_events *events)
{
    same_number("the number of inbound messages", (int64_t)events->inbounds_n,
                (int64_t)json_array_size(wanted));
    for (size_t i = 0; i < events->inbounds_n; i++) {
        const json_t *w = json_array_get(wanted, i);
        const struct plugin_inbound *m = &events->inbounds[i];

        only(w, " from to text id ");
        same("from", m->from, text_of(w, "from"));
        same("to", m->to, text_of(w, "to"));
        same("the text", m->text, text_of(w, "text"));
        same("the inbound id", m->id, text_of(w, "id"));
    }
}

static void same_events(const json_t *wanted, const struct plugin_events *events)
{
    const json_t *answer = member(wanted, "answer");
    const char *body = text_of(answer, "body");

    only(wanted, " receipts inbounds answer confirm ");
    only(answer, " status content_type body ");
    same_receipts(member(wanted, "receipts"), events);
    same_inbounds(member(wanted, "inbounds"), events);
    same_number("the answer's status", events->status, number_of(answer, "status", 200));
    same("the answer's type", events->content_type, text_of(answer, "content_type"));
    same("the answer's body", events->body ? events->body : "", body ? body : "");
    same("the URL to confirm", events->confirm, text_of(wanted, "confirm"));
}

static bool is_form(const struct provider_callback *cb)
{
    static const char form[] = "application/x-www-form-urlencoded";

    for (size_t i = 0; i < cb->headers_count; i++)
        if (strcmp(cb->headers[i].name, "content-type") == 0)
            return strncasecmp(cb->headers[i].value, form, strlen(form)) == 0;
    return false;
}

static void check_read(const struct example *c, const struct provider_callback *cb)
{
    const char *refused = text_of(c->example, "refused");
    struct plugin *p = must_open(c);
    struct plugin_events events = {0};
    struct err err = ERR_INIT;
    int r;

    assert_true(plugin_takes_receipts(p));
    r = plugin_read(p, cb, &events, &err);
    if (refused)
        same_number("the callback", r, -errno_of(refused));
    else if (r < 0)
        fail_msg("%s", err_text(&err));
    else
        same_events(member(c->example, "events"), &events);
    plugin_events_clear(&events);
    plugin_close(p);
    err_done(&err);
}

static void check_callback(const struct example *c, const json_t *callback)
{
    struct provider_header headers[FIXTURE_HEADERS_MAX];
    const char *url = text_of(callback, "url"), *mark = url ? strchr(url, '?') : NULL;
    struct provider_callback cb = {.method = text_of(callback, "method"),
                                   .url = url,
                                   .headers = headers,
                                   .now_ms = number_of(callback, "now_ms", NOW_MS)};
    struct query query, form;
    char *body;

    only(callback, " method url headers body now_ms ");
    if (!url || !cb.method)
        fail_msg("the fixture's callback has no url or method");
    cb.headers_count = headers_of(callback, headers);
    cb.body = body = body_of(callback, &cb.body_len);
    assert_int_equal(query_split(mark ? mark + 1 : "", mark ? strlen(mark + 1) : 0, &query), 0);
    assert_int_equal(query_split(body, is_form(&cb) ? cb.body_len : 0, &form), 0);
    cb.query = query.params;
    cb.query_count = query.count;
    cb.form = form.params;
    cb.form_count = form.count;
    check_read(c, &cb);
    query_done(&query);
    query_done(&form);
    free(body);
}

/* ---- settings ------------------------------------------------------------------------------- */

static void check_refused(const struct example *c, const json_t *change)
{
    json_t *settings = json_deep_copy(c->settings), *value;
    const char *message = text_of(c->example, "message"), *cure = text_of(c->example, "cure"), *key;
    struct err err = ERR_INIT;
    struct plugin *p;

    json_object_foreach ((json_t *)change, key, value) {
        if (json_is_string(value) && strcmp(json_string_value(value), "$delete") == 0)
            json_object_del(settings, key);
        else
            json_object_set(settings, key, value);
    }
    p = open_plugin(c, settings, &err);
    if (p)
        fail_msg("was taken");
    if (!message || !strstr(err_text(&err), message))
        fail_msg("%s", err_text(&err));
    if (cure && (!err.hint || !strstr(err.hint, cure)))
        fail_msg("hint %s", err.hint ? err.hint : "none");
    json_decref(settings);
    err_done(&err);
}

#define CAP(name)                                                                                  \
    {                                                                                              \
#name, offsetof(struct provider_caps, name), sizeof(((struct provider_caps *)0)->name)     \
    }

static void run_caps(void **state)
{
    static const struct {
        const char *name;
        size_t at, size;
    } known[] = {
        CAP(dedup),
        CAP(ask),
        CAP(dedup_window_ms),
        CAP(worst_answer_ms),
        CAP(answers_without_id),
        CAP(absence_proves),
        CAP(receipts_by_id),
        CAP(several_ids),
        CAP(receipts),
        CAP(ask_delay_ms),
        CAP(ask_window_ms),
        CAP(asks_per_minute),
        CAP(number),
        CAP(validity),
        CAP(limit),
    };
    const struct example *c = *state;
    struct plugin *p = must_open(c);
    const char *caps = (const char *)plugin_caps(p), *name;
    json_t *wanted;

    json_object_foreach ((json_t *)c->example, name, wanted) {
        size_t i = 0;
        int64_t is = 0;

        while (i < sizeof(known) / sizeof(known[0]) && strcmp(known[i].name, name) != 0)
            i++;
        if (i == sizeof(known) / sizeof(known[0]))
            fail_msg("no capability is called \"%s\"", name);
        memcpy(&is, caps + known[i].at, known[i].size); /* little-endian, none negative */
        same_number(name, is,
                    json_is_integer(wanted) ? json_integer_value(wanted) : json_is_true(wanted));
    }
    plugin_close(p);
}

/* ---- running -------------------------------------------------------------------------------- */

static void run_case(void **state)
{
    const struct example *c = *state;
    const json_t *part, *e = c->example;

    only(e, " name message request build_error reply verdict question ask_error answer login grant"
            " login_reply callback events refused ");
    if ((part = member(e, "question")))
        check_question(c, part);
    else if ((part = member(e, "message")))
        check_build(c, part);
    else if ((part = member(e, "reply")))
        check_judge(c, part);
    else if ((part = member(e, "login")))
        check_login(c, part);
    else if ((part = member(e, "login_reply")))
        check_login_judge(c, part);
    else if ((part = member(e, "callback")))
        check_callback(c, part);
    else
        fail_msg("the case tests nothing");
    if (member(e, "message") && member(e, "reply"))
        check_judge(c, member(e, "reply"));
}

static void run_refused(void **state)
{
    const struct example *c = *state;

    only(c->example, " name change message cure ");
    check_refused(c, member(c->example, "change"));
}

/* What no fixture can hold: a text that is not UTF-8, and one with a NUL. */
static void bytes_that_are_no_text(void **state)
{
    const struct example *c = *state;
    struct plugin *p = must_open(c);
    struct provider_msg msg = {
        .key = "k", .recipient = "+1", .kind = "otp", .body = "a\xff", .body_len = 2};
    struct plugin_request request = {0};
    struct err err = ERR_INIT;

    assert_true(plugin_build(p, &msg, &request, &err) < 0);
    msg.body = "a\0b";
    msg.body_len = 3;
    assert_int_equal(plugin_build(p, &msg, &request, &err), 0);
    assert_string_equal(request.body, "{\"t\":\"a\\u0000b\"}");
    plugin_request_clear(&request);
    plugin_close(p);
    err_done(&err);
}

static void has_fixtures(void **state)
{
    const struct example *c = *state;

    if (!json_array_size(c->example))
        fail_msg("%s has no fixtures with a case in them", c->plugin);
}

/* ---- collecting ----------------------------------------------------------------------------- */

static struct CMUnitTest *tests;
static size_t tests_count;
static json_t *roots; /* all that was read */

/* `plugin` is a name, or the path of a file. */
static void add_test(const char *plugin, const char *file, const char *name, CMUnitTestFunction run,
                     const json_t *settings, const json_t *example)
{
    struct CMUnitTest *grown = realloc(tests, (tests_count + 1) * sizeof(*tests));
    struct example *c = malloc(sizeof(*c));
    const char *slash = strrchr(plugin, '/');
    char *full = NULL;

    if (!grown || !c ||
        asprintf(&full, "%s/%s: %s", slash ? slash + 1 : plugin, file, name ? name : "(no name)") <
            0)
        abort();
    *c = (struct example){strdup(plugin), settings, example};
    tests = grown;
    tests[tests_count++] = (struct CMUnitTest){full, run, NULL, NULL, c};
}

/* Adds the cases of one file; a file that cannot be read ends the run. */
static void add_file(const char *plugin, const char *path, json_t *ret_cases)
{
    const char *file = strrchr(path, '/') + 1;
    json_error_t je;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    json_t *settings = json_object_get(root, "settings"), *item;
    size_t i;

    if (!root) {
        fprintf(stderr, "%s: line %d: %s\n", path, je.line, je.text);
        exit(1);
    }
    json_array_append_new(roots, root);
    if (json_object_get(root, "caps"))
        add_test(plugin, file, "capabilities", run_caps, settings, json_object_get(root, "caps"));
    json_array_foreach (json_object_get(root, "cases"), i, item) {
        add_test(plugin, file, text_of(item, "name"), run_case, settings, item);
        json_array_append(ret_cases, item);
    }
    json_array_foreach (json_object_get(root, "refused"), i, item)
        add_test(plugin, file, text_of(item, "name"), run_refused, settings, item);
}

static void add_folder(const char *plugin, const char *folder)
{
    json_t *cases = json_array();
    glob_t found = {0};
    char *pattern = NULL;

    if (asprintf(&pattern, "%s/fixtures/*.json", folder) < 0)
        abort();
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            add_file(plugin, found.gl_pathv[i], cases);
    globfree(&found);
    free(pattern);
    add_test(plugin, "fixtures", "there are some", has_fixtures, NULL, cases);
    json_array_append_new(roots, cases);
}

/* A plugin is a folder with C files, as the Makefile sees it. */
static void add_plugins(const char *wanted)
{
    glob_t found = {0};
    const char *last = "";

    if (glob("providers/*/*.c", 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *folder = dirname(found.gl_pathv[i]), *name = strrchr(folder, '/') + 1;

        if (strcmp(name, last) != 0 && strcmp(name, "kit") != 0 && strcmp(name, "sandbox") != 0 &&
            (!wanted || strcmp(name, wanted) == 0))
            add_folder(name, folder);
        last = name;
    }
    globfree(&found);
}

/* One from outside the tree: its file is named by path. */
static void add_stranger(const char *folder)
{
    char *file = NULL;

    if (asprintf(&file, "%s%s.so", folder, strrchr(folder, '/')) < 0)
        abort();
    add_folder(file, folder);
    free(file);
}

/* What no fixture can hold. */
static void add_bytes(void)
{
    json_t *settings = json_loads("{\"url\": \"http://h/\", \"body\": {\"t\": \"{{body}}\"},"
                                  "\"headers\": {\"X\": \"{{meta.x}}\"},"
                                  "\"accepted\": {\"status\": 200, \"id\": \"/id\"}}",
                                  0, NULL);

    json_array_append_new(roots, settings);
    add_test("http", "bytes", "that are no text", bytes_that_are_no_text, settings, NULL);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

static void free_tests(void)
{
    for (size_t i = 0; i < tests_count; i++) {
        struct example *c = tests[i].initial_state;

        free((char *)tests[i].name);
        free(c->plugin);
        free(c);
    }
    free(tests);
    json_decref(roots);
}

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : NULL;
    char exe[PATH_MAX] = {0};
    int failed;

    if (readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0)
        return 1;
    snprintf(provider_dir, sizeof(provider_dir), "%s/../providers", dirname(exe));
    roots = json_array();
    if (wanted && strchr(wanted, '/'))
        add_stranger(wanted);
    else
        add_plugins(wanted);
    if (!wanted)
        add_bytes();
    if (tests_count == 0) {
        fprintf(stderr, "no plugin is called %s\n", wanted ? wanted : "anything");
        return 1;
    }
    qsort(tests, tests_count, sizeof(*tests), by_name);
    failed = _cmocka_run_group_tests("plugins", tests, tests_count, NULL, NULL);
    free_tests();
    return failed;
}
