/* The loader and the guard against plugins that break the rules (tests/unit/badplugins), D18, D14,
 * S3, C10. The plugins are real shared objects beside the test program. */
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

/* "badplugins" beside this program, wherever it was built. */
static const char *bad_dir(void)
{
    static char dir[PATH_MAX];
    char exe[PATH_MAX] = {0};

    assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
    assert_true(snprintf(dir, sizeof(dir), "%s/badplugins", dirname(exe)) < (int)sizeof(dir));
    return dir;
}

static const struct {
    const char *name;
    int code;
    const char *message, *hint;
} refusals[] = {
    {"wrong_major", -ENOEXEC, "plugin \"wrong_major\": wants ABI 2.1, this postrider has 1.1",
     "upgrade postrider"},
    {"older_major", -ENOEXEC, "wants ABI 0.1, this postrider has 1.1", "rebuild the plugin"},
    {"newer_minor", -ENOEXEC, "wants ABI 1.2, this postrider has 1.1", "upgrade postrider"},
    {"short_size", -ENOEXEC, "its table has", "sizeof(struct provider)"},
    {"no_judge", -ENOEXEC, "member \"judge\" is missing", "rebuild"},
    {"no_entry", -ENOEXEC, "not a postrider plugin (no symbol provider_entry)", "export"},
    {"null_entry", -ENOEXEC, "provider_entry() gives nothing", NULL},
    {"other_name", -ENOEXEC, "the file holds plugin \"somebody_else\"", NULL},
    {"bad_window", -ENOEXEC, "de-duplication without a window", NULL},
    {"bad_dedup", -ENOEXEC, "dedup is out of range", NULL},
    {"bad_ask", -ENOEXEC, "it claims a look-up and has no function for it", NULL},
    {"half_ask", -ENOEXEC, "member \"ask_judge\" is missing", "rebuild"},
    {"half_login", -ENOEXEC, "member \"login\" is missing", "rebuild"},
    {"mute_open", -EINVAL, "does not say why", NULL},
    {"picky_open", -EINVAL, "plugin \"picky_open\": settings.body.to: is too short", "write more"},
    {"goood", -ENOENT, "plugin \"goood\": not found in ", "did you mean \"good\"?"},
    {"nothing_like_it", -ENOENT, "not found in ", "POSTRIDER_PROVIDER_DIR"},
    {"../good", -ENOENT, "cannot load", NULL},
    {"good.so", -EINVAL, "letters, digits", NULL},
    {"", -EINVAL, "letters, digits", NULL},
};

static void refused_with_cure(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct err err = ERR_INIT;
        struct plugin *p = NULL;
        int r = plugin_open(bad_dir(), refusals[i].name, "{}", &p, &err);

        if (r != refusals[i].code || !err.message || !strstr(err.message, refusals[i].message))
            fail_msg("%s: %d, %s", refusals[i].name, r, err_text(&err));
        if (refusals[i].hint && (!err.hint || !strstr(err.hint, refusals[i].hint)))
            fail_msg("%s: hint %s", refusals[i].name, err.hint ? err.hint : "none");
        assert_null(p);
        err_done(&err);
    }
}

static const struct {
    const char *claims, *why;
} claims[] = {
    {" ask=4", "ask is out of range"},
    {" ask=3", "it claims a look-up and has no function for it"},
    {" absence_proves=1", "says how a look-up behaves and claims none"},
    {" ask_delay_ms=30000", "says how a look-up behaves and claims none"},
    {" asks_per_minute=6", "says how a look-up behaves and claims none"},
    {" ask_delay_ms=-1", "ask_delay_ms is negative"},
    {" ask_window_ms=-1", "ask_window_ms is negative"},
    {" ask_delay_ms=30000 ask_window_ms=30000", "over before"},
    {" receipts=3", "receipts is out of range"},
    {" receipts=2", "it claims receipts and has no function for them"},
    {" receipts_by_id=1", "receipts by id without receipts"},
    {" number=2", "number is out of range"},
    {" validity=5", "validity is out of range"},
    {" limit=2", "limit is out of range"},
    {" worst_answer_ms=-1", "worst_answer_ms is negative"},
    {" number=1 validity=4 limit=1", NULL},
};

static void capabilities_fit_each_other(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        struct err err = ERR_INIT;
        struct plugin *p = NULL;
        int r = plugin_open(bad_dir(), "claims", claims[i].claims, &p, &err);

        if (r != (claims[i].why ? -ENOEXEC : 0) ||
            (claims[i].why && !strstr(err_text(&err), claims[i].why)))
            fail_msg("%s: %d, %s", claims[i].claims, r, err_text(&err));
        plugin_close(p);
        err_done(&err);
    }
}

static struct plugin *open_bad(const char *name);

/* What an older plugin does not have is not there, whatever its memory holds. */
static void a_plugin_of_abi_1_0_still_loads(void **state)
{
    static const char *const names[] = {"minor_zero", "minor_zero_wide"};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct plugin *p = open_bad(names[i]);
        struct plugin_request request = {0};
        struct plugin_grant grant = {0};
        struct plugin_events events = {0};
        struct provider_msg msg = {.key = "k", .recipient = "+1", .body = "", .kind = "k"};
        struct provider_question question = {.msg = &msg};
        struct provider_callback callback = {.method = "GET", .url = "http://h/", .body = ""};
        struct err err = ERR_INIT;

        assert_false(plugin_asks(p));
        assert_false(plugin_logs_in(p));
        assert_false(plugin_takes_receipts(p));
        assert_int_equal(plugin_build(p, &msg, &request, &err), 0);
        assert_int_equal(plugin_ask(p, &question, &request, &err), -ENODATA);
        assert_null(request.method);
        assert_int_equal(plugin_login(p, 0, &request, &grant, &err), -EINVAL);
        assert_int_equal(plugin_read(p, &callback, &events, &err), -EBADMSG);
        plugin_close(p);
        err_done(&err);
    }
}

static struct plugin *open_bad(const char *name)
{
    struct err err = ERR_INIT;
    struct plugin *p = NULL;

    if (plugin_open(bad_dir(), name, "{}", &p, &err) < 0)
        fail_msg("%s", err_text(&err));
    err_done(&err);
    return p;
}

static void directory_from_environment_and_path(void **state)
{
    struct err err = ERR_INIT;
    struct plugin *p = NULL;
    char *path = NULL, *dir;

    (void)state;
    assert_int_equal(setenv("POSTRIDER_PROVIDER_DIR", bad_dir(), 1), 0);
    dir = plugin_dir();
    assert_string_equal(dir, bad_dir());
    free(dir);
    assert_int_equal(plugin_open(NULL, "good", "{}", &p, &err), 0);
    assert_string_equal(plugin_name(p), "good");
    assert_int_equal(plugin_caps(p)->dedup, PROVIDER_DEDUP_NONE);
    p = plugin_close(p);
    assert_null(p);
    unsetenv("POSTRIDER_PROVIDER_DIR");

    /* A path is taken as it is; another name inside is then no mistake. */
    assert_true(asprintf(&path, "%s/other_name.so", bad_dir()) > 0);
    assert_int_equal(plugin_open("/nowhere", path, "{}", &p, &err), 0);
    assert_string_equal(plugin_name(p), "somebody_else");
    plugin_close(p);
    free(path);
    err_done(&err);
}

/* ---- build ---------------------------------------------------------------------------------- */

static const struct {
    const char *name, *kind, *header, *value;
    int code;
    const char *why;
} builds[] = {
    {"S3 error", "error", "", "", -EBADMSG, "cannot build a request"},
    {"positive", "positive", "", "", -EINVAL, "build answered 7"},
    {"our own trouble keeps its code", "no memory", "", "", -ENOMEM, NULL},
    {"no method", "no method", "", "", -EINVAL, "no method"},
    {"bad method", "bad method", "", "", -EINVAL, "method is not one"},
    {"no url", "no url", "", "", -EINVAL, "no URL"},
    {"C10 file url", "bad url", "", "", -EINVAL, "not http or https"},
    {"url twice", "url twice", "", "", -EINVAL, "set twice"},
    {"body twice", "body twice", "", "", -EINVAL, "set twice"},
    {"many headers", "many headers", "", "", -E2BIG, "more than 64"},
    {"D14 CRLF in value", "header", "X-Ref", "a\r\nEvil: 1", -EINVAL, "\"X-Ref\""},
    {"D14 LF in value", "header", "X-Ref", "a\nb", -EINVAL, "line end"},
    {"D14 DEL in value", "header", "X-Ref", "a\x7f", -EINVAL, "control"},
    {"D14 CRLF in name", "header", "X\r\nEvil", "a", -EINVAL, "name"},
    {"D14 colon in name", "header", "X:Evil", "a", -EINVAL, "name"},
    {"D14 blank name", "header", "", "a", -EINVAL, "name"},
    {"framing is the worker's", "header", "content-LENGTH", "0", -EINVAL, "worker's"},
    {"transfer-encoding too", "header", "Transfer-Encoding", "chunked", -EINVAL, "worker's"},
};

static void bad_requests_are_refused(void **state)
{
    struct plugin *p = open_bad("odd");
    struct plugin_request request = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(builds) / sizeof(builds[0]); i++) {
        struct provider_msg msg = {.key = "k",
                                   .recipient = "+1",
                                   .body = builds[i].value,
                                   .body_len = strlen(builds[i].value),
                                   .kind = builds[i].kind,
                                   .sender = builds[i].header};
        struct err err = ERR_INIT;
        int r = plugin_build(p, &msg, &request, &err);

        if (r != builds[i].code ||
            (builds[i].why && (!err.message || !strstr(err.message, builds[i].why))))
            fail_msg("%s: %d, %s", builds[i].name, r, err_text(&err));
        assert_null(request.method);
        assert_null(request.url);
        assert_null(request.body);
        assert_int_equal(request.headers_count, 0);
        err_done(&err);
    }
    plugin_close(p);
}

static void a_good_request_is_kept(void **state)
{
    struct plugin *p = open_bad("odd");
    struct plugin_request request = {0};
    struct provider_msg msg = {.key = "k",
                               .recipient = "+1",
                               .body = "a\0b\xc3\xb1",
                               .body_len = 5,
                               .kind = "header",
                               .sender = "X-Ref"};
    struct err err = ERR_INIT;

    (void)state;
    for (int i = 0; i < 2; i++) { /* again into the same struct */
        assert_int_equal(plugin_build(p, &msg, &request, &err), 0);
        assert_string_equal(request.method, "POST");
        assert_string_equal(request.url, "http://127.0.0.1/");
        assert_int_equal(request.headers_count, 1);
        assert_string_equal(request.headers[0].name, "X-Ref");
        assert_string_equal(request.headers[0].value, "a");
        assert_int_equal(request.body_len, 5);
        assert_memory_equal(request.body, "a\0b\xc3\xb1", 6);
    }
    plugin_request_clear(&request);
    plugin_close(p);
    err_done(&err);
}

/* ---- judge ---------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int status;
    bool complete;
    const char *body;
    enum provider_outcome outcome;
    const char *id, *fault, *detail;
} judgements[] = {
    {"no verdict", 210, true, "", PROVIDER_UNKNOWN, NULL, "it did not judge", NULL},
    {"two verdicts", 211, true, "", PROVIDER_UNKNOWN, NULL, "it judged twice", NULL},
    {"out of range", 212, true, "", PROVIDER_UNKNOWN, NULL, "its verdict is out of range", NULL},
    {"D18 accepted without id", 213, true, "", PROVIDER_UNKNOWN, NULL, NULL,
     "accepted without the vendor's id"},
    {"judge fails", 214, true, "", PROVIDER_UNKNOWN, NULL, "judging failed", NULL},
    {"positive answer", 220, true, "", PROVIDER_UNKNOWN, NULL, "judging failed", NULL},
    {"id with a line end", 215, true, "a\nb", PROVIDER_UNKNOWN, NULL, NULL, "accepted without"},
    {"id not UTF-8", 215, true, "a\xff", PROVIDER_UNKNOWN, NULL, NULL, "accepted without"},
    {"id empty", 215, true, "", PROVIDER_UNKNOWN, NULL, NULL, "accepted without"},
    {"id as it is", 215, true, "SM 12\xc3\xb1", PROVIDER_ACCEPTED, "SM 12\xc3\xb1", NULL, NULL},
    {"our own trouble is no fault", 216, true, "", PROVIDER_UNKNOWN, NULL, NULL, "memory"},
    {"cut acceptance", 200, false, "", PROVIDER_UNKNOWN, "id", NULL, "not complete"},
    {"cut refusal", 217, false, "x", PROVIDER_UNKNOWN, NULL, NULL, "x"},
    {"interim status", 103, true, "", PROVIDER_UNKNOWN, "id", NULL, "not complete"},
    {"whole acceptance", 200, true, "", PROVIDER_ACCEPTED, "id", NULL, NULL},
};

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static void verdicts_prove_no_more_than_they_may(void **state)
{
    struct plugin *p = open_bad("odd");
    struct plugin_verdict v = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(judgements) / sizeof(judgements[0]); i++) {
        struct provider_reply reply = {.status = judgements[i].status,
                                       .complete = judgements[i].complete,
                                       .body = judgements[i].body,
                                       .body_len = strlen(judgements[i].body)};

        plugin_judge(p, &reply, 0, &v);
        if (v.outcome != judgements[i].outcome || !same_text(v.id, judgements[i].id) ||
            !same_text(v.fault, judgements[i].fault))
            fail_msg("%s: outcome %d, id %s, fault %s", judgements[i].name, (int)v.outcome,
                     v.id ? v.id : "-", v.fault ? v.fault : "-");
        if (judgements[i].detail && (!v.detail || !strstr(v.detail, judgements[i].detail)))
            fail_msg("%s: detail %s", judgements[i].name, v.detail ? v.detail : "-");
    }
    plugin_verdict_clear(&v);
    plugin_close(p);
}

static void long_ids_are_refused_not_shortened(void **state)
{
    struct plugin *p = open_bad("odd");
    struct plugin_verdict v = {0};
    char id[514];
    struct provider_reply reply = {.status = 215, .complete = true, .body = id, .body_len = 513};

    (void)state;
    memset(id, 'x', sizeof(id));
    plugin_judge(p, &reply, 0, &v);
    assert_int_equal(v.outcome, PROVIDER_UNKNOWN);
    reply.body_len = 512;
    plugin_judge(p, &reply, 0, &v);
    assert_int_equal(v.outcome, PROVIDER_ACCEPTED);
    assert_int_equal(strlen(v.id), 512);
    plugin_verdict_clear(&v);
    plugin_close(p);
}

static void vendor_words_are_cleaned(void **state)
{
    struct plugin *p = open_bad("odd");
    struct plugin_verdict v = {0};
    char big[4096];
    struct provider_reply reply = {.status = 217, .complete = true};

    (void)state;
    reply.body = "no\x1b[31m\r\n+998901234567 482913";
    reply.body_len = strlen(reply.body);
    plugin_judge(p, &reply, 0, &v);
    assert_int_equal(v.outcome, PROVIDER_REJECTED);
    assert_true(v.opt_out);
    assert_null(strpbrk(v.detail, "\r\n\x1b"));
    assert_null(strstr(v.detail, "482913"));
    assert_null(strstr(v.detail, "998901234567"));
    assert_null(strpbrk(v.code, "\r\n\x1b"));
    memset(big, 'x', sizeof(big));
    reply.body = big;
    reply.body_len = sizeof(big);
    plugin_judge(p, &reply, 0, &v);
    assert_true(strlen(v.code) <= 64);
    assert_true(strlen(v.detail) <= 256);
    plugin_verdict_clear(&v);
    plugin_close(p);
}

static void host_reads_retry_after(void **state)
{
    struct plugin *p = open_bad("odd");
    struct plugin_verdict v = {0};
    const struct provider_header seconds[] = {{"retry-after", "7"}, {"retry-after", "9"}};
    const struct provider_header dated[] = {{"date", "Sun, 06 Nov 1994 08:49:37 GMT"},
                                            {"retry-after", "Sun, 06 Nov 1994 08:49:42 GMT"}};
    struct provider_reply reply = {
        .status = 218, .complete = true, .headers = seconds, .headers_count = 2, .body = ""};

    (void)state;
    plugin_judge(p, &reply, 0, &v);
    assert_int_equal(v.outcome, PROVIDER_THROTTLED);
    assert_int_equal(v.retry_after_ms, 9000); /* the longer of two */
    assert_false(v.opt_out);                  /* only a rejection opts out */

    reply.headers = dated; /* counted from the vendor's own clock, not ours */
    plugin_judge(p, &reply, 1, &v);
    assert_int_equal(v.retry_after_ms, 5000);

    reply.headers = seconds; /* the plugin's own word wins */
    reply.status = 219;
    plugin_judge(p, &reply, 0, &v);
    assert_int_equal(v.outcome, PROVIDER_HELD);
    assert_int_equal(v.retry_after_ms, 2500);

    reply.status = 200; /* nothing to wait for */
    plugin_judge(p, &reply, 0, &v);
    assert_int_equal(v.outcome, PROVIDER_ACCEPTED);
    assert_int_equal(v.retry_after_ms, -1);
    plugin_verdict_clear(&v);
    plugin_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_with_cure),
        cmocka_unit_test(capabilities_fit_each_other),
        cmocka_unit_test(a_plugin_of_abi_1_0_still_loads),
        cmocka_unit_test(directory_from_environment_and_path),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(a_good_request_is_kept),
        cmocka_unit_test(verdicts_prove_no_more_than_they_may),
        cmocka_unit_test(long_ids_are_refused_not_shortened),
        cmocka_unit_test(vendor_words_are_cleaned),
        cmocka_unit_test(host_reads_retry_after),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
