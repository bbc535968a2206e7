/* Log lines as a reader sees them: through a pipe, whole. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/io/log.h"

static int64_t now;
static int pipe_fd[2];
static char got[65536];

static int64_t fake_now(void)
{
    return now;
}

/* 2026-11-30T12:00:00.123Z by `date -u -d @1796040000`. */
static int64_t fake_wall(void)
{
    return INT64_C(1796040000123);
}

static void sink(bool journal)
{
    struct log_sink s = {
        .fd = pipe_fd[1], .journal = journal, .now_ms = fake_now, .wall_ms = fake_wall};

    log_set_sink(&s);
}

static int set_up(void **state)
{
    (void)state;
    now = 1000;
    log_set_level(LOG_LEVEL_INFO);
    log_set_rate(20);
    if (pipe2(pipe_fd, O_NONBLOCK | O_CLOEXEC) != 0)
        return -1;
    sink(true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    return 0;
}

static const char *read_all(void)
{
    ssize_t n = read(pipe_fd[0], got, sizeof(got) - 1);

    got[n > 0 ? n : 0] = '\0';
    return got;
}

static void line_on_a_terminal_and_in_the_journal(void **state)
{
    (void)state;
    sink(false);
    log_event(LOG_LEVEL_INFO, "claimed", "kind=%s n=%d", "otp", 3);
    assert_string_equal(read_all(),
                        "ts=2026-11-30T12:00:00.123Z level=info event=claimed kind=otp n=3\n");
    sink(true);
    log_event(LOG_LEVEL_ERROR, "database_down", NULL);
    assert_string_equal(read_all(), "<3>level=error event=database_down\n");
}

static void every_conversion(void **state)
{
    const char *volatile nothing = NULL; /* volatile: the compiler would refuse a plain one */

    (void)state;
    log_event(LOG_LEVEL_INFO, "e", "a=%s b=%.*s c=%d d=%u e=%x f=%.1fms g=%ld h=%lld i=%zu j=%jd",
              "x", 3, "abcdef", -5, 4000000000u, 255u, 1.25, -7L, INT64_MIN + 0LL, (size_t)9,
              INTMAX_MAX);
    assert_string_equal(read_all(),
                        "<6>level=info event=e a=x b=abc c=-5 d=4000000000 e=ff f=1.2ms g=-7 "
                        "h=-9223372036854775808 i=9 j=9223372036854775807\n");
    log_event(LOG_LEVEL_INFO, "e", "addr=%s:%d full=100%% word=plain none=%s", "::1", 80, nothing);
    assert_string_equal(read_all(),
                        "<6>level=info event=e addr=::1:80 full=100% word=plain none=none\n");
}

/* Outside words can neither begin a line nor a pair nor speak to a terminal. */
static void no_value_forges_a_line(void **state)
{
    static const struct {
        const char *raw, *shown;
    } rows[] = {
        {"two words", "\"two words\""},
        {"", "\"\""},
        {"a=b", "\"a=b\""},
        {"say \"hi\"", "\"say \\\"hi\\\"\""},
        {"back\\slash", "\"back\\\\slash\""},
        {"x\nlevel=error event=forged", "\"x\\\\nlevel=error event=forged\""},
        {"bel\a esc\033[2J", "\"bel\\\\u{7} esc\\\\u{1b}[2J\""},
        {"c1 \xc2\x9b", "\"c1 \\\\u{9b}\""},
        {"bad \xff utf8", "\"bad \xef\xbf\xbd utf8\""},
        {"o\xca\xbbzbek", "\"o\xca\xbbzbek\""},
    };
    char want[256];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        log_event(LOG_LEVEL_INFO, "e", "v=%s n=1", rows[i].raw);
        snprintf(want, sizeof(want), "<6>level=info event=e v=%s n=1\n", rows[i].shown);
        assert_string_equal(read_all(), want);
    }
}

static void a_long_value_stays_one_bounded_line(void **state)
{
    static char big[20000];
    size_t len;

    (void)state;
    memset(big, '"', sizeof(big) - 1);
    log_event(LOG_LEVEL_INFO, "e", "a=%s b=%s c=%s n=%d", big, big, big, 5);
    len = strlen(read_all());
    assert_true(len <= 4096);
    assert_ptr_equal(strchr(got, '\n'), got + len - 1);
    assert_non_null(strstr(got, " cut=1\n"));
}

static void levels_filter(void **state)
{
    enum log_level l;

    (void)state;
    log_event(LOG_LEVEL_DEBUG, "quiet", NULL);
    assert_string_equal(read_all(), "");
    log_set_level(LOG_LEVEL_DEBUG);
    log_event(LOG_LEVEL_DEBUG, "loud", NULL);
    assert_string_equal(read_all(), "<7>level=debug event=loud\n");
    log_set_level(LOG_LEVEL_OFF);
    log_event(LOG_LEVEL_ERROR, "loud", NULL);
    assert_string_equal(read_all(), "");
    assert_int_equal(log_level_parse("warn", &l), 0);
    assert_int_equal(l, LOG_LEVEL_WARN);
    assert_int_equal(log_level_parse("WARNING", &l), -EINVAL);
}

static size_t lines(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static void repeats_are_counted_not_written(void **state)
{
    (void)state;
    log_set_rate(3);
    for (int i = 0; i < 10; i++)
        log_event(LOG_LEVEL_WARN, "torn", "n=%d", i);
    log_event(LOG_LEVEL_INFO, "other", NULL);
    read_all();
    assert_int_equal(lines(got), 4);
    assert_non_null(strstr(got, "event=torn n=2\n"));
    assert_non_null(strstr(got, "event=other\n"));

    now += 999;
    log_event(LOG_LEVEL_WARN, "torn", "n=%d", 10);
    assert_string_equal(read_all(), "");
    now += 1;
    log_event(LOG_LEVEL_WARN, "torn", "n=%d", 11);
    assert_string_equal(read_all(), "<4>level=warn event=torn n=11 suppressed=8\n");
    log_event(LOG_LEVEL_WARN, "torn", "n=%d", 12);
    assert_string_equal(read_all(), "<4>level=warn event=torn n=12\n");
}

static void a_burst_then_silence_is_told_by_flush(void **state)
{
    (void)state;
    log_set_rate(1);
    for (int i = 0; i < 5; i++)
        log_event(LOG_LEVEL_WARN, "torn", NULL);
    read_all();
    log_flush();
    assert_string_equal(read_all(), "<4>level=warn event=suppressed of=torn suppressed=4\n");
    log_flush();
    assert_string_equal(read_all(), "");
}

/* More event names than are watched: the count of the one pushed out is still told. */
static void many_names_lose_no_count(void **state)
{
    char name[16];

    (void)state;
    log_set_rate(1);
    log_event(LOG_LEVEL_INFO, "first", NULL);
    log_event(LOG_LEVEL_INFO, "first", NULL);
    for (int i = 0; i < 100; i++) {
        now++;
        snprintf(name, sizeof(name), "e%d", i);
        log_event(LOG_LEVEL_INFO, name, NULL);
    }
    read_all();
    assert_int_equal(lines(got), 1 + 100 + 1);
    assert_non_null(strstr(got, "event=suppressed of=first suppressed=1\n"));
}

/* A pipe nobody reads: no waiting, and what was lost is said when it flows again. */
static void a_full_pipe_does_not_hold_the_loop(void **state)
{
    int flags = fcntl(pipe_fd[1], F_GETFL);
    unsigned sent = 0;

    (void)state;
    log_set_rate(0);
    assert_int_equal(fcntl(pipe_fd[1], F_SETFL, flags & ~O_NONBLOCK), 0); /* as a terminal's is */
    for (; sent < 100000; sent++)
        log_event(LOG_LEVEL_INFO, "e", "filler=%s", "0123456789012345678901234567890123456789");
    while (read(pipe_fd[0], got, sizeof(got)) > 0)
        ;
    log_event(LOG_LEVEL_INFO, "again", NULL);
    read_all();
    assert_non_null(strstr(got, "event=again lost="));
    log_event(LOG_LEVEL_INFO, "after", NULL);
    assert_string_equal(read_all(), "<6>level=info event=after\n");
}

static void a_closed_stderr_is_survived(void **state)
{
    struct log_sink closed = {.fd = 987, .now_ms = fake_now, .wall_ms = fake_wall};

    (void)state;
    log_set_sink(&closed);
    errno = 77;
    log_event(LOG_LEVEL_ERROR, "e", NULL);
    assert_int_equal(errno, 77);

    assert_int_equal(close(pipe_fd[0]), 0);
    sink(false);
    log_event(LOG_LEVEL_ERROR, "e", NULL); /* SIGPIPE is ignored by main, here and in the worker */
    pipe_fd[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void phones_are_masked(void **state)
{
    static const struct {
        const char *number, *shown;
    } rows[] = {
        {"+998901234567", "+99890*****67"},
        {"+99890123456", "+9989*****56"},
        {"+123456789", "+12*****89"},
        {"+12345678", "*********"}, /* too short to show any of it */
        {"7000", "****"},
        {"", ""},
        {NULL, ""},
        {"+99890\n1234567", "+99890******67"},
        {"+9989012345678901234567890123456", "+99890***************67"},
    };
    char out[LOG_PHONE_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(log_mask_phone(rows[i].number, out), rows[i].shown);
}

/* A value of a wrong form (we never write one) ends the line, and reads no argument wrongly. */
static void a_wrong_format_ends_the_line(void **state)
{
    const char *volatile wrong = "good=%d lonely bad=%d";

    (void)state;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    log_event(LOG_LEVEL_INFO, "e", wrong, 1, 2);
#pragma GCC diagnostic pop
    assert_string_equal(read_all(), "<6>level=info event=e good=1 bad_format=1\n");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(line_on_a_terminal_and_in_the_journal),
        T(every_conversion),
        T(no_value_forges_a_line),
        T(a_long_value_stays_one_bounded_line),
        T(levels_filter),
        T(repeats_are_counted_not_written),
        T(a_burst_then_silence_is_told_by_flush),
        T(many_names_lose_no_count),
        T(a_full_pipe_does_not_hold_the_loop),
        T(a_closed_stderr_is_survived),
        T(phones_are_masked),
        T(a_wrong_format_ends_the_line),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
