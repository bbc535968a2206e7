/* The http plugin, through the guard, driven by the files in providers/http/fixtures: settings,
 * messages and the request they must become, replies and what they prove. Each case is a test of
 * its own, so that a failure names the file and the rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/core/err.h"
#include "worker/engine/plugin.h"

#include <dirent.h>
#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* The program is O/tests/NAME, the plugins lie in O/providers; tests run in the checkout. */
static char provider_dir[PATH_MAX];
static const char fixtures[] = "providers/http/fixtures";

struct example {
    const json_t *settings;
    const json_t *example;
};

static struct plugin *open_http(const json_t *settings, struct err *err)
{
    struct plugin *p = NULL;
    char *text = json_dumps(settings, JSON_COMPACT);

    assert_non_null(text);
    if (plugin_open(provider_dir, "http", text, &p, err) < 0)
        p = NULL;
    free(text);
    return p;
}

static struct plugin *must_open(const json_t *settings)
{
    struct err err = ERR_INIT;
    struct plugin *p = open_http(settings, &err);

    if (!p)
        fail_msg("%s", err_text(&err));
    err_done(&err);
    return p;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* ---- requests ------------------------------------------------------------------------------- */

static void check_headers(const json_t *wanted, const struct plugin_request *request)
{
    assert_int_equal(request->headers_count, json_object_size(wanted));
    for (size_t i = 0; i < request->headers_count; i++) {
        const char *value = text_of(wanted, request->headers[i].name);

        if (!value)
            fail_msg("header %s is not wanted", request->headers[i].name);
        assert_string_equal(request->headers[i].value, value);
    }
}

/* A string is the very bytes; {"$json": …} what a vendor's parser must make of them. */
static void check_body(const json_t *wanted, const struct plugin_request *request)
{
    json_t *read;

    if (json_is_null(wanted)) {
        assert_null(request->body);
    } else if (json_is_string(wanted)) {
        assert_string_equal(request->body, json_string_value(wanted));
        assert_int_equal(request->body_len, json_string_length(wanted));
    } else {
        read = json_loadb(request->body, request->body_len, JSON_REJECT_DUPLICATES, NULL);
        if (!json_equal(read, json_object_get(wanted, "$json")))
            fail_msg("body is %s", request->body);
        json_decref(read);
    }
}

static void check_build(const struct example *c, const json_t *message)
{
    char *meta = json_is_object(json_object_get(message, "meta"))
                     ? json_dumps(json_object_get(message, "meta"), 0)
                     : NULL;
    const json_t *wanted = json_object_get(c->example, "request");
    const char *failure = text_of(c->example, "build_error");
    struct provider_msg msg = {
        .key = text_of(message, "key"),
        .recipient = text_of(message, "recipient"),
        .body = text_of(message, "body"),
        .body_len = json_string_length(json_object_get(message, "body")),
        .sender = text_of(message, "sender"),
        .kind = text_of(message, "kind"),
        .meta_json = meta ? meta : text_of(message, "meta_json"),
        .created_ms = json_integer_value(json_object_get(message, "created_ms")),
        .expires_ms = json_integer_value(json_object_get(message, "expires_ms")),
    };
    struct plugin *p = must_open(c->settings);
    struct plugin_request request = {0};
    struct err err = ERR_INIT;
    int r = plugin_build(p, &msg, &request, &err);

    if (failure) {
        assert_true(r < 0);
        if (!strstr(err_text(&err), failure))
            fail_msg("%s", err_text(&err));
    } else {
        if (r < 0)
            fail_msg("%s", err_text(&err));
        assert_string_equal(request.method, text_of(wanted, "method"));
        assert_string_equal(request.url, text_of(wanted, "url"));
        check_headers(json_object_get(wanted, "headers"), &request);
        check_body(json_object_get(wanted, "body"), &request);
    }
    plugin_request_clear(&request);
    plugin_close(p);
    err_done(&err);
    free(meta);
}

/* ---- verdicts ------------------------------------------------------------------------------- */

static const char *const outcomes[] = {"accepted", "rejected", "throttled", "held",
                                       "refused",  "unknown",  NULL};

static void check_verdict(const json_t *wanted, const struct plugin_verdict *v)
{
    const json_t *id = json_object_get(wanted, "id"), *wait;
    const char *detail = text_of(wanted, "detail"), *code = text_of(wanted, "code");

    assert_in_range(v->outcome, 0, PROVIDER_OUTCOME_MAX_ - 1);
    assert_string_equal(outcomes[v->outcome], text_of(wanted, "outcome"));
    assert_null(v->fault);
    if (json_is_string(id))
        assert_string_equal(v->id, json_string_value(id));
    else if (id || v->outcome == PROVIDER_UNKNOWN)
        assert_null(v->id);
    if (code)
        assert_string_equal(v->code, code);
    if (detail && (!v->detail || !strstr(v->detail, detail)))
        fail_msg("detail is %s", v->detail ? v->detail : "none");
    /* Bodies repeat the message: nothing of it may reach a record on its own. */
    assert_true(!v->detail || !strstr(v->detail, "482913"));
    wait = json_object_get(wanted, "retry_after_ms");
    if (wait)
        assert_int_equal(v->retry_after_ms, json_integer_value(wait));
    assert_int_equal(v->opt_out, json_is_true(json_object_get(wanted, "opt_out")));
}

static void check_judge(const struct example *c, const json_t *reply)
{
    struct provider_header headers[8] = {0};
    struct provider_reply r = {
        .status = (int)json_integer_value(json_object_get(reply, "status")),
        .complete = !json_is_false(json_object_get(reply, "complete")),
        .headers = headers,
        .body = text_of(reply, "body"),
        .body_len = json_string_length(json_object_get(reply, "body")),
    };
    struct plugin *p = must_open(c->settings);
    struct plugin_verdict v = {0};
    const char *name;
    json_t *value;

    json_object_foreach (json_object_get(reply, "headers"), name, value) {
        headers[r.headers_count].name = name;
        headers[r.headers_count++].value = json_string_value(value);
    }
    plugin_judge(p, &r, 1700000000, &v);
    check_verdict(json_object_get(c->example, "verdict"), &v);
    plugin_verdict_clear(&v);
    plugin_close(p);
}

/* ---- settings ------------------------------------------------------------------------------- */

static void check_refused(const struct example *c, const json_t *change)
{
    json_t *settings = json_deep_copy(c->settings), *value;
    const char *cure = text_of(c->example, "cure"), *key;
    struct err err = ERR_INIT;
    struct plugin *p;

    json_object_foreach ((json_t *)change, key, value) {
        if (json_is_string(value) && strcmp(json_string_value(value), "$delete") == 0)
            json_object_del(settings, key);
        else
            json_object_set(settings, key, value);
    }
    p = open_http(settings, &err);
    if (p)
        fail_msg("was taken");
    if (!strstr(err_text(&err), text_of(c->example, "message")))
        fail_msg("%s", err_text(&err));
    if (cure && (!err.hint || !strstr(err.hint, cure)))
        fail_msg("hint %s", err.hint ? err.hint : "none");
    json_decref(settings);
    err_done(&err);
}

static void check_caps(const struct example *c)
{
    struct plugin *p = must_open(c->settings);
    const struct provider_caps *caps = plugin_caps(p);

    assert_int_equal(caps->dedup, json_integer_value(json_object_get(c->example, "dedup")));
    assert_int_equal(caps->dedup_window_ms,
                     json_integer_value(json_object_get(c->example, "dedup_window_ms")));
    assert_int_equal(caps->worst_answer_ms,
                     json_integer_value(json_object_get(c->example, "worst_answer_ms")));
    assert_int_equal(caps->answers_without_id,
                     json_is_true(json_object_get(c->example, "answers_without_id")));
    plugin_close(p);
}

static void run_example(void **state)
{
    const struct example *c = *state;
    const json_t *part;

    if ((part = json_object_get(c->example, "message")) && !json_object_get(c->example, "change"))
        json_is_object(part) ? check_build(c, part) : (void)0;
    if ((part = json_object_get(c->example, "reply")))
        check_judge(c, part);
    if ((part = json_object_get(c->example, "change")))
        check_refused(c, part);
    if (json_object_get(c->example, "answers_without_id"))
        check_caps(c);
}

/* What no fixture can hold: a text that is not UTF-8, and one with a NUL. */
static void bytes_that_are_no_text(void **state)
{
    json_error_t je;
    json_t *settings = json_loads("{\"url\": \"http://h/\", \"body\": {\"t\": \"{{body}}\"},"
                                  "\"headers\": {\"X\": \"{{meta.x}}\"},"
                                  "\"accepted\": {\"status\": 200, \"id\": \"/id\"}}",
                                  0, &je);
    struct plugin *p = must_open(settings);
    struct provider_msg msg = {
        .key = "k", .recipient = "+1", .kind = "otp", .body = "a\xff", .body_len = 2};
    struct plugin_request request = {0};
    struct err err = ERR_INIT;

    (void)state;
    assert_true(plugin_build(p, &msg, &request, &err) < 0);
    msg.body = "a\0b";
    msg.body_len = 3;
    assert_int_equal(plugin_build(p, &msg, &request, &err), 0);
    assert_string_equal(request.body, "{\"t\":\"a\\u0000b\"}");
    plugin_request_clear(&request);
    plugin_close(p);
    json_decref(settings);
    err_done(&err);
}

/* ---- collecting ----------------------------------------------------------------------------- */

static struct CMUnitTest *tests;
static size_t tests_count;

static void add_test(const char *file, const char *name, CMUnitTestFunction run, void *arg)
{
    struct CMUnitTest *grown = realloc(tests, (tests_count + 1) * sizeof(*tests));
    char *full = NULL;

    if (!grown || asprintf(&full, "%s: %s", file, name) < 0)
        abort();
    tests = grown;
    tests[tests_count++] = (struct CMUnitTest){full, run, NULL, NULL, arg};
}

static void add_example(const char *file, const char *name, const json_t *settings,
                        const json_t *example)
{
    struct example *c = malloc(sizeof(*c));

    if (!c)
        abort();
    *c = (struct example){settings, example};
    add_test(file, name, run_example, c);
}

static json_t *add_file(const char *file)
{
    char path[PATH_MAX];
    json_error_t je;
    json_t *root, *caps, *item;
    size_t i;

    snprintf(path, sizeof(path), "%s/%s", fixtures, file);
    root = json_load_file(path, JSON_REJECT_DUPLICATES, &je);
    if (!root) {
        fprintf(stderr, "%s: line %d: %s\n", path, je.line, je.text);
        exit(1);
    }
    if ((caps = json_object_get(root, "caps")))
        add_example(file, "capabilities", json_object_get(root, "settings"), caps);
    json_array_foreach (json_object_get(root, "cases"), i, item)
        add_example(file, text_of(item, "name"), json_object_get(root, "settings"), item);
    json_array_foreach (json_object_get(root, "refused"), i, item)
        add_example(file, text_of(item, "name"), json_object_get(root, "settings"), item);
    return root;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

int main(void)
{
    json_t *roots = json_array();
    char exe[PATH_MAX] = {0};
    DIR *d = opendir(fixtures);
    int failed;

    if (!d || readlink("/proc/self/exe", exe, sizeof(exe) - 1) < 0) {
        perror(fixtures);
        return 1;
    }
    snprintf(provider_dir, sizeof(provider_dir), "%.*s/../providers", PATH_MAX - 32, dirname(exe));
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".json"))
            json_array_append_new(roots, add_file(e->d_name));
    closedir(d);
    add_test("bytes", "that are no text", bytes_that_are_no_text, NULL);
    qsort(tests, tests_count, sizeof(*tests), by_name);
    failed = _cmocka_run_group_tests("http plugin", tests, tests_count, NULL, NULL);
    for (size_t i = 0; i < tests_count; i++) {
        free((char *)tests[i].name);
        free(tests[i].initial_state);
    }
    free(tests);
    json_decref(roots);
    return failed;
}
