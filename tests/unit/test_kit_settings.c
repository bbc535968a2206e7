/* Strict settings: each mistake is refused with its name and, where there is one, a cure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/kit/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct provider_report {
    int times;
    char setting[64], why[128], cure[128];
};

static void note(char *to, size_t size, const char *text)
{
    size_t n = text ? strnlen(text, size - 1) : 0;

    memcpy(to, text ? text : "", n);
    to[n] = '\0';
}

static void refuse(struct provider_report *r, const char *setting, const char *why,
                   const char *cure)
{
    r->times++;
    note(r->setting, sizeof(r->setting), setting);
    note(r->why, sizeof(r->why), why);
    note(r->cure, sizeof(r->cure), cure);
}

static const struct provider_host host = {.size = sizeof(host), .refuse = refuse};

struct read { /* one of everything */
    char *account, *from, *url, *pem;
    char **secrets;
    int64_t wait;
    bool on;
    size_t mode;
};

static int read_all(const char *json, struct provider_report *report, struct read *ret)
{
    static const char *const modes[] = {"none", "declared", "both", NULL};
    struct settings s;

    *report = (struct provider_report){0};
    (void)settings_begin(&s, &host, json, report);
    *ret = (struct read){
        .account = settings_text(&s, "account_sid", NULL),
        .from = settings_text(&s, "from", ""),
        .url = settings_url(&s, "url", "https://api.vendor.example"),
        .pem = settings_lines(&s, "private_key", ""),
        .secrets = settings_list(&s, "secrets"),
        .wait = settings_int(&s, "timeout_s", 30, 1, 600),
        .on = settings_bool(&s, "on", true),
        .mode = settings_word(&s, "mode", modes, 1),
    };
    return settings_end(&s);
}

static void forget(struct read *r)
{
    free(r->account);
    free(r->from);
    free(r->url);
    free(r->pem);
    settings_list_free(r->secrets);
}

static void defaults(void **state)
{
    struct provider_report report;
    struct read r;

    (void)state;
    assert_int_equal(read_all("{\"account_sid\":\"AC1\"}", &report, &r), 0);
    assert_int_equal(report.times, 0);
    assert_string_equal(r.account, "AC1");
    assert_null(r.from);
    assert_string_equal(r.url, "https://api.vendor.example");
    assert_null(r.secrets);
    assert_int_equal(r.wait, 30);
    assert_true(r.on);
    assert_int_equal(r.mode, 1);
    forget(&r);
}

static void values(void **state)
{
    struct provider_report report;
    struct read r;

    (void)state;
    assert_int_equal(read_all("{\"account_sid\":\"AC1\",\"from\":\"Şirkət\","
                              "\"url\":\"http://127.0.0.1:8080/x/\",\"private_key\":\"-\\nA\\n\","
                              "\"secrets\":[\"a\",\"b\"],\"timeout_s\":600,\"on\":false,"
                              "\"mode\":\"both\"}",
                              &report, &r),
                     0);
    assert_string_equal(r.from, "Şirkət");
    assert_string_equal(r.url, "http://127.0.0.1:8080/x");
    assert_string_equal(r.pem, "-\nA\n");
    assert_string_equal(r.secrets[0], "a");
    assert_string_equal(r.secrets[1], "b");
    assert_null(r.secrets[2]);
    assert_int_equal(r.wait, 600);
    assert_false(r.on);
    assert_int_equal(r.mode, 2);
    forget(&r);

    assert_int_equal(read_all("{\"account_sid\":\"AC1\",\"secrets\":\"one\"}", &report, &r), 0);
    assert_string_equal(r.secrets[0], "one");
    assert_null(r.secrets[1]);
    forget(&r);
}

#define A "\"account_sid\":\"AC1\","

static const struct {
    const char *json, *setting, *why, *cure; /* why and cure: parts of them */
} refused[] = {
    {"[]", "", "must be a JSON object", ""},
    {"{", "", "must be a JSON object", ""},
    {"{\"a\":1,\"a\":2}", "", "duplicate", ""},
    {"{}", "account_sid", "is required", ""},
    {"{\"account_sid\":null}", "account_sid", "must be a string", ""},
    {"{\"account_sid\":\"\"}", "account_sid", "must not be empty", ""},
    {"{\"acount_sid\":\"AC1\"}", "", "unknown key \"acount_sid\"", "\"account_sid\""},
    {"{" A "\"form\":\"x\"}", "", "unknown key \"form\"", "\"from\""},
    {"{" A "\"elephant\":\"x\"}", "", "unknown key \"elephant\"", ""},
    {"{" A "\"from\":7}", "from", "must be a string", ""},
    {"{" A "\"from\":\"\"}", "from", "must not be empty", "leave it out"},
    {"{" A "\"from\":\"a\\nb\"}", "from", "control character", ""},
    {"{" A "\"private_key\":\"a\\tb\"}", "private_key", "control character", ""},
    {"{" A "\"url\":\"ftp://x\"}", "url", "must begin with https://", "root of the API"},
    {"{" A "\"url\":\"https:///x\"}", "url", "has no host", ""},
    {"{" A "\"url\":\"https://u:p@x\"}", "url", "user name", ""},
    {"{" A "\"url\":\"https://x?a=b\"}", "url", "no query", ""},
    {"{" A "\"url\":\"https://x#a\"}", "url", "no fragment", ""},
    {"{" A "\"url\":\"https://x y\"}", "url", "not allowed in a URL", ""},
    {"{" A "\"url\":\"https://é.example\"}", "url", "not allowed in a URL", ""},
    {"{" A "\"secrets\":[]}", "secrets", "must not be empty", ""},
    {"{" A "\"secrets\":[\"a\",7]}", "secrets", "must be a string", ""},
    {"{" A "\"secrets\":[\"a\",\"\"]}", "secrets", "must not be empty", ""},
    {"{" A "\"timeout_s\":0}", "timeout_s", "from 1 to 600", ""},
    {"{" A "\"timeout_s\":601}", "timeout_s", "from 1 to 600", ""},
    {"{" A "\"timeout_s\":\"30\"}", "timeout_s", "from 1 to 600", ""},
    {"{" A "\"on\":1}", "on", "must be true or false", ""},
    {"{" A "\"mode\":\"all\"}", "mode", "must be none, declared or both", ""},
    {"{" A "\"from\":7,\"on\":1,\"x\":2}", "from", "must be a string", ""}, /* the first wins */
};

static void refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct provider_report report;
        struct read r;

        if (read_all(refused[i].json, &report, &r) != -EINVAL || report.times != 1 ||
            strcmp(report.setting, refused[i].setting) != 0 ||
            !strstr(report.why, refused[i].why) || !strstr(report.cure, refused[i].cure))
            fail_msg("%s: %d times, \"%s\": \"%s\" (\"%s\")", refused[i].json, report.times,
                     report.setting, report.why, report.cure);
        forget(&r);
    }
}

static void the_plugin_may_refuse(void **state)
{
    struct provider_report report = {0};
    struct settings s;

    (void)state;
    assert_int_equal(settings_begin(&s, &host, "{\"a\":{\"b\":1}}", &report), 0);
    assert_true(settings_has(&s, "a"));
    assert_true(json_is_object(settings_json(&s, "a")));
    assert_int_equal(settings_refuse(&s, "a", "do", "no %d", 7), -EINVAL);
    assert_int_equal(settings_end(&s), -EINVAL);
    assert_int_equal(report.times, 1);
    assert_string_equal(report.why, "no 7");
    assert_string_equal(report.cure, "do");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(values),
        cmocka_unit_test(refusals),
        cmocka_unit_test(the_plugin_may_refuse),
    };

    return cmocka_run_group_tests_name("kit_settings", tests, NULL, NULL);
}
