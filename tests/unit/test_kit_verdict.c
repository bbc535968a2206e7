/* Judging by table, what HTTP itself says, and looking into replies and callbacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "providers/kit/callback.h"
#include "providers/kit/verdict.h"

#include <errno.h>
#include <string.h>

struct provider_verdict {
    int outcomes, opt_outs, duplicates, logins;
    enum provider_outcome outcome;
    const char *code, *detail;
    int fails; /* what the host answers to texts */
};

static void say_outcome(struct provider_verdict *v, enum provider_outcome outcome)
{
    v->outcomes++;
    v->outcome = outcome;
}

static int say_code(struct provider_verdict *v, const char *text, size_t len)
{
    assert_int_equal(strlen(text), len);
    v->code = text;
    return v->fails;
}

static int say_detail(struct provider_verdict *v, const char *text, size_t len)
{
    assert_int_equal(strlen(text), len);
    v->detail = text;
    return v->fails;
}

static void say_opt_out(struct provider_verdict *v)
{
    v->opt_outs++;
}

static void say_duplicate(struct provider_verdict *v)
{
    v->duplicates++;
}

static void say_login(struct provider_verdict *v)
{
    v->logins++;
}

static const struct provider_host host = {
    .size = sizeof(host),
    .verdict = say_outcome,
    .verdict_code = say_code,
    .verdict_detail = say_detail,
    .verdict_opt_out = say_opt_out,
    .verdict_duplicate = say_duplicate,
    .verdict_login = say_login,
};

static const struct verdict_row rows[] = {
    {"21610", 400, PROVIDER_REJECTED, VERDICT_OPT_OUT},
    {"21211", 0, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"dup", 4, PROVIDER_ACCEPTED, VERDICT_DUPLICATE},
    {NULL, 401, PROVIDER_HELD, VERDICT_LOGIN},
    {NULL, 5, PROVIDER_UNKNOWN, VERDICT_PLAIN},
};

static const struct verdict_row *find(int status, const char *code)
{
    return verdict_find(rows, sizeof(rows) / sizeof(rows[0]), status, code);
}

static void the_first_row_that_fits(void **state)
{
    (void)state;
    assert_ptr_equal(find(400, "21610"), &rows[0]);
    assert_null(find(404, "21610"));
    assert_ptr_equal(find(201, "21211"), &rows[1]);
    assert_ptr_equal(find(409, "dup"), &rows[2]);
    assert_ptr_equal(find(503, "dup"), &rows[4]);
    assert_ptr_equal(find(401, NULL), &rows[3]);
    assert_ptr_equal(find(401, "21211"), &rows[1]);
    assert_ptr_equal(find(599, NULL), &rows[4]);
    assert_null(find(200, NULL));
    assert_null(find(400, "2161"));
}

static void saying_it(void **state)
{
    struct provider_verdict v = {0};

    (void)state;
    assert_int_equal(verdict_say(&host, &v, &rows[0], "21610", "said STOP"), 0);
    assert_int_equal(v.outcomes, 1);
    assert_int_equal(v.outcome, PROVIDER_REJECTED);
    assert_int_equal(v.opt_outs, 1);
    assert_string_equal(v.code, "21610");
    assert_string_equal(v.detail, "said STOP");

    v = (struct provider_verdict){0};
    assert_int_equal(verdict_say(&host, &v, &rows[2], NULL, NULL), 0);
    assert_int_equal(v.outcome, PROVIDER_ACCEPTED);
    assert_int_equal(v.duplicates, 1);
    assert_null(v.code);

    v = (struct provider_verdict){0};
    assert_int_equal(verdict_say(&host, &v, &rows[3], NULL, NULL), 0);
    assert_int_equal(v.outcomes, 0);
    assert_int_equal(v.logins, 1);

    v = (struct provider_verdict){.fails = -ENOMEM};
    assert_int_equal(verdict_say(&host, &v, NULL, "x", "y"), -ENOMEM);
    assert_int_equal(v.outcomes, 1);
    assert_int_equal(v.outcome, PROVIDER_UNKNOWN);
}

static void what_http_says(void **state)
{
    static const struct {
        int status;
        enum provider_outcome outcome;
    } all[] = {
        {200, PROVIDER_UNKNOWN},  {202, PROVIDER_UNKNOWN},   {302, PROVIDER_UNKNOWN},
        {400, PROVIDER_REJECTED}, {401, PROVIDER_HELD},      {402, PROVIDER_HELD},
        {403, PROVIDER_HELD},     {404, PROVIDER_HELD},      {405, PROVIDER_HELD},
        {408, PROVIDER_UNKNOWN},  {409, PROVIDER_UNKNOWN},   {410, PROVIDER_HELD},
        {413, PROVIDER_REJECTED}, {415, PROVIDER_REJECTED},  {422, PROVIDER_REJECTED},
        {418, PROVIDER_REJECTED}, {429, PROVIDER_THROTTLED}, {500, PROVIDER_UNKNOWN},
        {502, PROVIDER_UNKNOWN},  {503, PROVIDER_UNKNOWN},   {504, PROVIDER_UNKNOWN},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (verdict_of_status(all[i].status) != all[i].outcome)
            fail_msg("%d", all[i].status);
}

static void looking_into_callbacks(void **state)
{
    static const struct provider_header headers[] = {{"x-sign", "one"}, {"x-sign", "two"}};
    static const struct provider_param query[] = {{"k", "q"}, {"only", "query"}, {"k", "r"}};
    static const struct provider_param form[] = {{"k", "f"}};
    const struct provider_callback cb = {.query = query,
                                         .query_count = 3,
                                         .form = form,
                                         .form_count = 1,
                                         .headers = headers,
                                         .headers_count = 2};
    const struct provider_reply reply = {.headers = headers, .headers_count = 2};

    (void)state;
    assert_string_equal(reply_header(&reply, "x-sign"), "one");
    assert_null(reply_header(&reply, "x-none"));
    assert_string_equal(callback_header(&cb, "x-sign"), "one");
    assert_string_equal(callback_query(&cb, "k"), "q");
    assert_string_equal(callback_form(&cb, "k"), "f");
    assert_string_equal(callback_param(&cb, "k"), "f");
    assert_string_equal(callback_param(&cb, "only"), "query");
    assert_null(callback_form(&cb, "only"));
    assert_null(callback_param(&cb, "none"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_row_that_fits),
        cmocka_unit_test(saying_it),
        cmocka_unit_test(what_http_says),
        cmocka_unit_test(looking_into_callbacks),
    };

    return cmocka_run_group_tests_name("kit_verdict", tests, NULL, NULL);
}
