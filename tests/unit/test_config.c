/* The configuration: what is refused and in which words (J9, J76, D2, R4), what is read, secrets,
 * warnings, reload. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/provider.h"
#include "worker/core/err.h"
#include "worker/engine/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAIN(rest)                                                                                 \
    "{\n \"providers\": {\n  \"main\": {\n   \"plugin\": \"http\"" rest "\n  }\n }\n}\n"
#define TOP(rest) "{\n" rest ",\n \"providers\": {\"main\": {\"plugin\": \"http\"}}\n}\n"

static struct config *parse(const char *text)
{
    struct err err = ERR_INIT;
    struct config *c = NULL;

    if (config_parse(text, strlen(text), "conf", &c, &err) < 0)
        fail_msg("%s", err_text(&err));
    err_done(&err);
    return c;
}

/* ---- refusals ------------------------------------------------------------------------------- */

static const struct {
    const char *name, *text, *message, *hint;
} refusals[] = {
    {"near match at top", TOP("\n\n \"in_fligth\": 5"),
     "conf: line 4: unknown key \"in_fligth\", did you mean \"in_flight\"?", NULL},
    {"near match in a provider", MAIN(",\n   \"timeout_m\": 5"),
     "conf: line 5: providers.main: unknown key \"timeout_m\", did you mean \"timeout_ms\"?", NULL},
    {"nothing near", TOP(" \"colour\": 5"), "conf: line 2: unknown key \"colour\"", NULL},
    {"a key written with escapes", TOP(" \"\\u0063olour\": 5"),
     "conf: line 2: unknown key \"colour\"", NULL},
    {"a value that looks like the key", TOP(" \"database\": \"in_flight\",\n \"in_flight\": 0"),
     "conf: line 3: in_flight: is 0, must be a whole number from 1 to 10000", NULL},
    {"braces in strings", TOP(" \"database\": \"}{][\\\"\",\n \"lease_s\": 4"),
     "conf: line 3: lease_s: is 4, must be a whole number from 5 to 3600", NULL},
    {"duplicate key", TOP(" \"drain_s\": 1,\n \"drain_s\": 2"), "conf: line 3: duplicate", NULL},
    {"not JSON", "{\n \"database\": \n}", "conf: line 3: ", NULL},
    {"not an object", "[]", "conf: must be a JSON object", NULL},
    {"empty", "", "conf: line 1: ", NULL},
    {"text after the end", "{}\nx", "conf: line 2: ", NULL},
    {"number as text", TOP(" \"in_flight\": \"5\""),
     "conf: line 2: in_flight: is \"5\", must be a whole number from 1 to 10000", NULL},
    {"fraction", TOP(" \"poll_ms\": 250.5"), "poll_ms: is 250.5, must be a whole number", NULL},
    {"past the range", TOP(" \"in_flight\": 10001"), "is 10001, must be", NULL},
    {"int64 overflow", TOP(" \"in_flight\": 9223372036854775808"), "line 2: too big integer", NULL},
    {"text as number", TOP(" \"public_url\": 7"), "public_url: is 7, must be a string", NULL},
    {"empty text", TOP(" \"public_url\": \"\""), "public_url: is \"\", must be a string", NULL},
    {"a URL with a query", TOP(" \"public_url\": \"https://x/?a\""), "without ? and #", NULL},
    {"not a URL", TOP(" \"public_url\": \"ftp://x\""), "must be an http:// or https://", NULL},
    {"choice", TOP(" \"log_level\": \"loud\""),
     "log_level: is \"loud\", must be one of error|warn|info|debug", NULL},
    {"choice is whole", TOP(" \"log_level\": \"error|warn\""), "must be one of", NULL},
    {"port missing", TOP(" \"listen\": \"127.0.0.1\""),
     "conf: line 2: listen: is \"127.0.0.1\", must be HOST:PORT", NULL},
    {"port too big", TOP(" \"listen\": \"127.0.0.1:65536\""), "must be HOST:PORT", NULL},
    {"port not digits", TOP(" \"listen\": \"127.0.0.1:+80\""), "must be HOST:PORT", NULL},
    {"host missing", TOP(" \"listen\": \":80\""), "must be HOST:PORT", NULL},
    {"bare IPv6", TOP(" \"listen\": \"::1:80\""), "must be HOST:PORT", NULL},
    {"unix socket", TOP(" \"listen\": \"unix:/run/x\""), "not supported yet", NULL},
    {"no providers", "{}", "conf: \"providers\" is missing", NULL},
    {"providers empty", "{\"providers\": {}}", "must name at least one provider", NULL},
    {"providers a list", "{\"providers\": []}", "providers: must be an object", NULL},
    {"provider a text", "{\"providers\": {\"main\": \"http\"}}",
     "providers.main: must be an object", NULL},
    {"provider's name", "{\"providers\": {\"a b\": {\"plugin\": \"http\"}}}", "a provider's name",
     NULL},
    {"no plugin", "{\"providers\": {\"main\": {}}}", "providers.main: \"plugin\" is missing", NULL},
    {"settings a text", MAIN(",\n   \"settings\": \"x\""),
     "conf: line 5: providers.main.settings: must be an object", NULL},
    {"rate_unit", MAIN(",\n   \"rate_unit\": \"part\""), "must be one of message|segment", NULL},
    {"connect longer than call", MAIN(",\n   \"timeout_ms\": 900"),
     "providers.main.connect_timeout_ms: is 1000, must not exceed timeout_ms, 900", NULL},
    /* 60000 + 3000 + 1000 = 64000 against 60 s * 990 = 59400; 65 s * 990 = 64350 > 64000. */
    {"R4 lease too short", MAIN(",\n   \"timeout_ms\": 60000"),
     "conf: line 5: providers.main.timeout_ms: timeout_ms 60000 + settle_allowance_ms 3000 + "
     "margin 1000 make 64000 ms, must be less than 99 % of lease_s 60, 59400 ms",
     "raise lease_s to 65"},
    /* 2000 + 3000 + 3 * 10000 = 35000 against 30 s * 990 = 29700. */
    {"J9 slow beat", TOP(" \"poll_ms\": 10000, \"lease_s\": 30"),
     "margin 30000 make 35000 ms, must be less than 99 % of lease_s 30, 29700 ms",
     "raise lease_s to 36"},
    {"env not set",
     MAIN(",\n   \"settings\": {\n    \"a\": [1, {\"env\": \"POSTRIDER_TEST_NONE\"}]}"),
     "conf: line 6: providers.main.settings.a[1]: environment variable POSTRIDER_TEST_NONE is not "
     "set",
     "set POSTRIDER_TEST_NONE"},
    {"env empty", TOP(" \"admin_token\": {\"env\": \"POSTRIDER_TEST_EMPTY\"}"),
     "admin_token: environment variable POSTRIDER_TEST_EMPTY is empty", NULL},
    {"file missing", TOP(" \"database\": {\"file\": \"/nonexistent/x\"}"),
     "database: secret file \"/nonexistent/x\": No such file", NULL},
    {"secret with another key", TOP(" \"admin_token\": {\"env\": \"HOME\", \"x\": 1}"),
     "admin_token: must be a string, {\"env\": \"NAME\"} or {\"file\": \"PATH\"}", NULL},
    {"a number is no secret", TOP(" \"in_flight\": {\"env\": \"POSTRIDER_TEST_SECRET\"}"),
     "in_flight: is {\"env\":\"POSTRIDER_TEST_SECRET\"}, must be", NULL},
    {"secret with a placeholder",
     MAIN(",\n   \"settings\": {\"a\": {\"env\": \"POSTRIDER_TEST_BRACE\"}}"),
     "providers.main.settings.a: the secret contains \"{{\"", NULL},
};

static void refused_with_line_and_cure(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct err err = ERR_INIT;
        struct config *c = NULL;
        int r = config_parse(refusals[i].text, strlen(refusals[i].text), "conf", &c, &err);

        if (r != -EINVAL || !err.message || !strstr(err.message, refusals[i].message))
            fail_msg("%s: %d, %s", refusals[i].name, r, err_text(&err));
        if (refusals[i].hint && (!err.hint || !strstr(err.hint, refusals[i].hint)))
            fail_msg("%s: hint %s", refusals[i].name, err.hint ? err.hint : "none");
        if (strstr(err_text(&err), "hunter2") || (err.hint && strstr(err.hint, "hunter2")))
            fail_msg("%s: prints the secret", refusals[i].name);
        assert_null(c);
        err_done(&err);
    }
}

/* A wrong value where secrets live is not printed either. */
static void a_secret_of_the_wrong_type_is_not_shown(void **state)
{
    const char *text = TOP(" \"admin_token\": [\"hunter2\"]");
    struct err err = ERR_INIT;
    struct config *c = NULL;

    (void)state;
    assert_int_equal(config_parse(text, strlen(text), "conf", &c, &err), -EINVAL);
    assert_non_null(strstr(err.message, "line 2: admin_token"));
    assert_null(strstr(err.message, "hunter2"));
    err_done(&err);
}

/* ---- reading -------------------------------------------------------------------------------- */

static void defaults_are_the_documented_ones(void **state)
{
    struct config *c = parse(TOP(" \"listen\": null"));
    const struct config_provider *p = &c->providers[0];

    (void)state;
    assert_null(c->database);
    assert_null(c->listen);
    assert_null(c->admin_token);
    assert_null(c->public_url);
    assert_int_equal(c->in_flight, 1500);
    assert_int_equal(c->lease_s, 60);
    assert_int_equal(c->poll_ms, 250);
    assert_int_equal(c->settle_ms, 10);
    assert_int_equal(c->settle_allowance_ms, 3000);
    assert_int_equal(c->drain_s, 30);
    assert_string_equal(c->log_level, "info");
    assert_int_equal(p->in_flight, 1500);
    assert_int_equal(p->rate_per_s, 0);
    assert_string_equal(p->rate_unit, "message");
    assert_int_equal(p->connect_timeout_ms, 1000);
    assert_int_equal(p->timeout_ms, 2000);
    assert_int_equal(p->idle_ms, 50000);
    assert_null(p->receipt_token);
    assert_null(p->ca_file);
    assert_string_equal(p->settings_json, "{}");
    config_free(c);
}

static void every_value_arrives(void **state)
{
    struct config *c =
        parse("{\"database\": \"postgresql://u:p@h/d\", \"listen\": \"[::1]:0\", \"in_flight\": 7,"
              "\"lease_s\": 61, \"poll_ms\": 21, \"settle_ms\": 11, \"settle_allowance_ms\": 3001,"
              "\"drain_s\": 31, \"admin_token\": \"t\", \"public_url\": \"https://x\","
              "\"log_level\": \"debug\", \"providers\": {"
              "\"z\": {\"plugin\": \"./a.so\", \"in_flight\": 3, \"rate_per_s\": 4,"
              "\"rate_unit\": \"segment\", \"connect_timeout_ms\": 500, \"timeout_ms\": 600,"
              "\"idle_ms\": 7000, \"receipt_token\": \"0123456789_aZ-xy\", \"ca_file\": \"/ca\", "
              "\"settings\": {\"b\": 1, \"a\": [true]}},"
              "\"a\": {\"plugin\": \"http\"}}}");
    const struct config_provider *z = config_provider_find(c, "z");

    (void)state;
    assert_string_equal(c->database, "postgresql://u:p@h/d");
    assert_string_equal(c->listen_host, "::1");
    assert_int_equal(c->listen_port, 0);
    assert_int_equal(c->in_flight, 7);
    assert_int_equal(c->lease_s, 61);
    assert_int_equal(c->poll_ms, 21);
    assert_int_equal(c->settle_ms, 11);
    assert_int_equal(c->settle_allowance_ms, 3001);
    assert_int_equal(c->drain_s, 31);
    assert_string_equal(c->admin_token, "t");
    assert_string_equal(c->public_url, "https://x");
    assert_string_equal(c->log_level, "debug");
    assert_ptr_equal(z, &c->providers[0]); /* the order of the file */
    assert_string_equal(z->plugin, "./a.so");
    assert_int_equal(z->in_flight, 3);
    assert_int_equal(z->rate_per_s, 4);
    assert_string_equal(z->rate_unit, "segment");
    assert_int_equal(z->connect_timeout_ms, 500);
    assert_int_equal(z->timeout_ms, 600);
    assert_int_equal(z->idle_ms, 7000);
    assert_string_equal(z->receipt_token, "0123456789_aZ-xy");
    assert_string_equal(z->ca_file, "/ca");
    assert_string_equal(z->settings_json, "{\"b\":1,\"a\":[true]}");
    assert_null(config_provider_find(c, "b"));
    config_free(c);
}

/* The limits of each range are inside, one more is not. */
static void ranges_end_where_the_table_says(void **state)
{
    (void)state;
    for (const struct config_setting *s = config_settings; s->name; s++) {
        const int64_t tries[] = {s->min - 1, s->min, s->max, s->max + 1};

        for (int i = 0; s->type == CONFIG_INT && i < 4; i++) {
            struct err err = ERR_INIT;
            struct config *c = NULL;
            char *text = NULL;
            int n = asprintf(&text, TOP(" \"%s\": %lld"), s->name, (long long)tries[i]);
            int r = config_parse(text, (size_t)n, "conf", &c, &err);
            bool ranged = r < 0 && strstr(err_text(&err), "must be a whole number");

            if (ranged != (i == 0 || i == 3))
                fail_msg("%s = %lld: %s", s->name, (long long)tries[i], r < 0 ? err.message : "ok");
            config_free(c);
            err_done(&err);
            free(text);
        }
    }
}

/* ---- secrets -------------------------------------------------------------------------------- */

static void collect(void *arg, const char *text)
{
    char **all = arg, *joined = NULL;

    assert_true(asprintf(&joined, "%s%s\n", *all ? *all : "", text) > 0);
    free(*all);
    *all = joined;
}

static char *secret_file(const char *content, size_t len, mode_t mode)
{
    char *path = strdup("/tmp/postrider-test-secret-XXXXXX");
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, len), len);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    return path;
}

static void secrets_become_strings(void **state)
{
    char *path = secret_file("hunter2 \r\n", 10, 0600), *text = NULL, *warnings = NULL;
    struct config *c;

    (void)state;
    assert_true(
        asprintf(&text,
                 "{\"database\": {\"file\": \"%s\"}, \"admin_token\": {\"env\": "
                 "\"POSTRIDER_TEST_SECRET\"}, \"providers\": {\"m\": {\"plugin\": \"http\","
                 "\"settings\": {\"h\": {\"A\": {\"env\": \"POSTRIDER_TEST_SECRET\"}}, \"l\": "
                 "[{\"file\": \"%s\"}, {\"env\": 5}, {\"env\": \"HOME\", \"b\": 1}]}}}}",
                 path, path) > 0);
    c = parse(text);
    assert_string_equal(c->database, "hunter2 "); /* one line end goes, blanks stay */
    assert_string_equal(c->admin_token, "hunter2");
    assert_string_equal(c->providers[0].settings_json,
                        "{\"h\":{\"A\":\"hunter2\"},\"l\":[\"hunter2 \",{\"env\":5},"
                        "{\"env\":\"HOME\",\"b\":1}]}");
    config_warnings(c, collect, &warnings);
    assert_null(warnings);
    config_free(c);
    unlink(path);
    free(path);
    free(text);
}

static void odd_secret_files_are_told(void **state)
{
    static const struct {
        const char *content;
        size_t len;
        mode_t mode;
        const char *message, *warning;
    } rows[] = {
        {"hunter2", 7, 0644, NULL, "can be read by everyone"},
        {"\n", 1, 0600, "it is empty", NULL},
        {"", 0, 0600, "it is empty", NULL},
        {"hun\0ter2", 8, 0600, "NUL", NULL},
        {"hunter2\xff", 8, 0600, "not UTF-8", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *path = secret_file(rows[i].content, rows[i].len, rows[i].mode);
        char *text = NULL, *warnings = NULL;
        struct err err = ERR_INIT;
        struct config *c = NULL;
        int n = asprintf(&text, MAIN(",\n   \"settings\": {\"a\": {\"file\": \"%s\"}}"), path);
        int r = config_parse(text, (size_t)n, "conf", &c, &err);

        assert_int_equal(r, rows[i].message ? -EINVAL : 0);
        if (rows[i].message && !strstr(err_text(&err), rows[i].message))
            fail_msg("row %zu: %s", i, err_text(&err));
        if (c)
            config_warnings(c, collect, &warnings);
        if (rows[i].warning)
            assert_non_null(warnings && strstr(warnings, rows[i].warning) ? warnings : NULL);
        assert_null(strstr(warnings ? warnings : err_text(&err), "hunter2"));
        config_free(c);
        unlink(path);
        free(warnings);
        free(path);
        free(text);
        err_done(&err);
    }
}

/* ---- checks with a plugin, warnings, reload ------------------------------------------------- */

static void plugin_checks_name_both_numbers(void **state)
{
    struct config *c = parse(MAIN(",\n   \"timeout_ms\": 10000"));
    struct provider_caps caps = {.worst_answer_ms = 26000};
    struct err err = ERR_INIT;

    (void)state;
    /* D2: the vendor may take 26 s, we would give up after 10. */
    assert_int_equal(config_check_plugin(c, &c->providers[0], &caps, &err), -EINVAL);
    assert_non_null(strstr(err.message, "provider \"main\""));
    assert_non_null(strstr(err.message, "10000"));
    assert_non_null(strstr(err.message, "26000"));
    assert_non_null(strstr(err.hint, "at least 26000"));
    caps.worst_answer_ms = 10000;
    assert_int_equal(config_check_plugin(c, &c->providers[0], &caps, &err), 0);

    caps.dedup = PROVIDER_DEDUP_REPLAY; /* R2: a key must outlive the lease */
    caps.dedup_window_ms = 60000;
    assert_int_equal(config_check_plugin(c, &c->providers[0], &caps, &err), -EINVAL);
    assert_non_null(strstr(err.message, "lease_s is 60 (60000 ms)"));
    assert_non_null(strstr(err.message, "for 60000 ms only"));
    caps.dedup_window_ms = 60001;
    assert_int_equal(config_check_plugin(c, &c->providers[0], &caps, &err), 0);
    config_free(c);
    err_done(&err);
}

static void warnings_name_the_numbers(void **state)
{
    struct config *c = parse(TOP(" \"drain_s\": 5"));
    char *warnings = NULL;

    (void)state;
    config_warnings(c, collect, &warnings);
    assert_null(warnings); /* J76: 5000 is just enough for 2000 + 3000 */
    config_free(c);

    c = parse(
        "{\"drain_s\": 4, \"providers\": {\"m\": {\"plugin\": \"http\", \"rate_per_s\": 9}}}");
    config_warnings(c, collect, &warnings);
    assert_non_null(strstr(warnings, "drain_s is 4 (4000 ms), shorter than timeout_ms 2000 + "
                                     "settle_allowance_ms 3000"));
    assert_non_null(strstr(warnings, "rate_per_s is 9, but is not enforced yet"));
    config_free(c);
    free(warnings);
}

static void reload_refuses_what_needs_a_restart(void **state)
{
    static const char old[] = "{\"database\": \"a\", \"listen\": \"h:1\", \"providers\": {"
                              "\"m\": {\"plugin\": \"http\"}, \"n\": {\"plugin\": \"http\"}}}";
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"{\"database\": \"a\", \"listen\": \"h:1\", \"lease_s\": 90, \"admin_token\": \"x\","
         "\"providers\": {\"n\": {\"plugin\": \"http\", \"timeout_ms\": 3000, \"settings\": "
         "{\"a\": 1}}, \"m\": {\"plugin\": \"http\"}}}",
         NULL},
        {"{\"database\": \"hunter2\", \"listen\": \"h:1\", \"providers\": {\"m\": {\"plugin\": "
         "\"http\"}, \"n\": {\"plugin\": \"http\"}}}",
         "database cannot change while the worker runs"},
        {"{\"database\": \"a\", \"providers\": {\"m\": {\"plugin\": \"http\"}, \"n\": "
         "{\"plugin\": \"http\"}}}",
         "listen cannot change"},
        {"{\"database\": \"a\", \"listen\": \"h:1\", \"providers\": {\"m\": {\"plugin\": "
         "\"other\"}, \"n\": {\"plugin\": \"http\"}}}",
         "provider \"m\": plugin cannot change"},
        {"{\"database\": \"a\", \"listen\": \"h:1\", \"providers\": {\"m\": {\"plugin\": "
         "\"http\"}}}",
         "provider \"n\" cannot be removed"},
        {"{\"database\": \"a\", \"listen\": \"h:1\", \"providers\": {\"m\": {\"plugin\": "
         "\"http\"}, \"n\": {\"plugin\": \"http\"}, \"o\": {\"plugin\": \"http\"}}}",
         "provider \"o\" cannot be added"},
    };
    struct config *now = parse(old);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct config *next = parse(rows[i].text);
        struct err err = ERR_INIT;
        int r = config_reload_check(now, next, &err);

        assert_int_equal(r, rows[i].message ? -EINVAL : 0);
        if (rows[i].message && !strstr(err_text(&err), rows[i].message))
            fail_msg("row %zu: %s", i, err_text(&err));
        assert_null(strstr(err_text(&err), "hunter2"));
        config_free(next);
        err_done(&err);
    }
    config_free(now);
}

static void files_are_read(void **state)
{
    static const char text[] = TOP(" \"drain_s\": 9");
    char *path = secret_file(text, strlen(text), 0600);
    struct err err = ERR_INIT;
    struct config *c = NULL;

    (void)state;
    assert_int_equal(config_load(path, &c, &err), 0);
    assert_int_equal(c->drain_s, 9);
    c = config_free(c);
    unlink(path);
    assert_int_equal(config_load(path, &c, &err), -ENOENT);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(config_load("/", &c, &err), -EISDIR);
    assert_null(c);
    free(path);
    err_done(&err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_with_line_and_cure),
        cmocka_unit_test(a_secret_of_the_wrong_type_is_not_shown),
        cmocka_unit_test(defaults_are_the_documented_ones),
        cmocka_unit_test(every_value_arrives),
        cmocka_unit_test(ranges_end_where_the_table_says),
        cmocka_unit_test(secrets_become_strings),
        cmocka_unit_test(odd_secret_files_are_told),
        cmocka_unit_test(plugin_checks_name_both_numbers),
        cmocka_unit_test(warnings_name_the_numbers),
        cmocka_unit_test(reload_refuses_what_needs_a_restart),
        cmocka_unit_test(files_are_read),
    };

    setenv("POSTRIDER_TEST_SECRET", "hunter2", 1);
    setenv("POSTRIDER_TEST_EMPTY", "", 1);
    setenv("POSTRIDER_TEST_BRACE", "hunter2{{x}}", 1);
    unsetenv("POSTRIDER_TEST_NONE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
