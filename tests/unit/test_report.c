/* The report's forms: what an operator, a scraper and a prober read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "worker/engine/report.h"

#define has(text, part)     assert_non_null(strstr(text, part))
#define has_not(text, part) assert_null(strstr(text, part))

/* ---- histogram ---- */

static void durations_fall_into_their_bucket(void **state)
{
    struct histogram h = {0};

    (void)state;
    histogram_add_us(&h, -5);        /* a clock that stepped back counts as 0 */
    histogram_add_us(&h, 1000);      /* le 1 ms, the bound itself */
    histogram_add_us(&h, 1001);      /* le 2 ms */
    histogram_add_us(&h, 60000000);  /* the last bound */
    histogram_add_us(&h, 600000000); /* beyond */
    assert_int_equal(h.bucket[0], 2);
    assert_int_equal(h.bucket[1], 1);
    assert_int_equal(h.bucket[HISTOGRAM_BOUNDS - 1], 1);
    assert_int_equal(h.bucket[HISTOGRAM_BOUNDS], 1);
    assert_int_equal(h.count, 5);
    assert_int_equal(h.sum_us, 1000 + 1001 + 60000000 + 600000000);
}

static void bounds_rise_from_1_ms_to_60_s(void **state)
{
    (void)state;
    assert_int_equal(histogram_bounds_ms[0], 1);
    assert_int_equal(histogram_bounds_ms[HISTOGRAM_BOUNDS - 1], 60000);
    for (size_t i = 1; i < HISTOGRAM_BOUNDS; i++)
        assert_true(histogram_bounds_ms[i] > histogram_bounds_ms[i - 1]);
}

static void quantiles(void **state)
{
    struct histogram h = {0};

    (void)state;
    assert_true(histogram_quantile_ms(&h, 0.5) == -1);
    for (int i = 0; i < 98; i++)
        histogram_add_us(&h, 150 * 1000); /* in (100, 150] */
    histogram_add_us(&h, 800 * 1000);     /* in (700, 1000] */
    histogram_add_us(&h, 800 * 1000);
    /* rank 50 of 98 inside 100..150; rank 99 is the first of two inside 700..1000 */
    assert_float_equal(histogram_quantile_ms(&h, 0.5), 100 + 50 * 50.0 / 98, 1e-9);
    assert_float_equal(histogram_quantile_ms(&h, 0.99), 850, 1e-9);
    histogram_add_us(&h, 900 * 1000000LL);
    assert_float_equal(histogram_quantile_ms(&h, 1), 60000, 1e-9);
}

/* ---- metrics ---- */

static void fill(struct report *r)
{
    struct report_provider *p;

    report_init(r);
    r->up_ms = 90500;
    r->db_up = true;
    r->schema_version = r->schema_wanted = 7;
    r->last_claim_ago_ms = 120;
    r->receipt_contradictions = 24;
    assert_int_equal(report_set(&r->version, "0.1.0"), 0);
    assert_int_equal(report_add_count(r, "otp", "sent", 3), 0);
    assert_int_equal(report_add_count(r, "otp", "unknown", 8), 0);
    assert_int_equal(report_add_count(r, "otp", "failed", 0), 0);
    assert_int_equal(report_add_count(r, "otp", "sent", 4), 0);
    assert_int_equal(report_add_lane(r, "otp", 2500), 0);
    assert_int_equal(report_add_lane(r, "campaign", AGE_NONE), 0);
    p = report_add_provider(r, "ma\"in\\", "http");
    assert_non_null(p);
    p->door = REPORT_PAUSED;
    p->until_ms = 9000;
    assert_int_equal(report_set(&p->reason, "throttled: number +998901234567 too often"), 0);
    p->in_air = 12;
    p->limit = 800;
    p->outcomes.accepted = 5000000000u; /* beyond 32 bits */
    p->receipts.delivered = 21;
    p->receipts.refused = 22;
    p->receipts.unmatched = 23;
    p->outcomes.unknown = 2;
    histogram_add_us(&p->call, 150 * 1000);
    histogram_add_us(&p->call, 70 * 1000 * 1000);
}

static void metrics_say_what_is(void **state)
{
    struct report r;
    char *text;

    (void)state;
    fill(&r);
    text = report_metrics(&r);
    assert_non_null(text);
    has(text, "\npostrider_messages{kind=\"otp\",state=\"sent\"} 7\n");
    has(text, "\npostrider_messages{kind=\"otp\",state=\"unknown\"} 8\n");
    has(text, "\npostrider_messages{kind=\"otp\",state=\"failed\"} 0\n");
    has(text, "\npostrider_oldest_due_seconds{lane=\"otp\"} 2.5\n");
    has(text, "\npostrider_oldest_due_seconds{lane=\"campaign\"} 0\n");
    has(text, "\npostrider_in_air{provider=\"ma\\\"in\\\\\"} 12\n");
    has(text, "{provider=\"ma\\\"in\\\\\",outcome=\"accepted\"} 5000000000\n");
    has(text, "{provider=\"ma\\\"in\\\\\",state=\"paused\"} 1\n");
    has(text, "{provider=\"ma\\\"in\\\\\",state=\"open\"} 0\n");
    has(text, "\npostrider_receipts_total{provider=\"ma\\\"in\\\\\",status=\"delivered\"} 21\n");
    has(text, "\npostrider_receipts_total{provider=\"ma\\\"in\\\\\",status=\"expired\"} 0\n");
    has(text, "\npostrider_callbacks_total{provider=\"ma\\\"in\\\\\",result=\"refused\"} 22\n");
    has(text, "\npostrider_receipts_open_total{provider=\"ma\\\"in\\\\\",as=\"unmatched\"} 23\n");
    has(text, "\npostrider_receipt_contradictions_total 24\n");
    has(text, "\npostrider_last_claim_age_seconds 0.12");
    has(text, "\npostrider_last_sweep_age_seconds 90.5\n"); /* never: as old as the worker */
    has(text, "\npostrider_build_info{version=\"0.1.0\"} 1\n");
    free(text);
    report_done(&r);
}

/* Buckets are cumulative and end in +Inf = count. */
static void metrics_histogram_is_cumulative(void **state)
{
    struct report r;
    char *text;

    (void)state;
    fill(&r);
    text = report_metrics(&r);
    assert_non_null(text);
    has(text, "\npostrider_call_seconds_bucket{provider=\"ma\\\"in\\\\\",le=\"0.1\"} 0\n");
    has(text, "\npostrider_call_seconds_bucket{provider=\"ma\\\"in\\\\\",le=\"0.15\"} 1\n");
    has(text, "\npostrider_call_seconds_bucket{provider=\"ma\\\"in\\\\\",le=\"60\"} 1\n");
    has(text, "\npostrider_call_seconds_bucket{provider=\"ma\\\"in\\\\\",le=\"+Inf\"} 2\n");
    has(text, "\npostrider_call_seconds_sum{provider=\"ma\\\"in\\\\\"} 70.150000\n");
    has(text, "\npostrider_call_seconds_count{provider=\"ma\\\"in\\\\\"} 2\n");
    free(text);
    report_done(&r);
}

/* Every sample's family has HELP and TYPE before it, once, and every name is ours. */
static void metrics_are_well_formed(void **state)
{
    char seen[100][64], family[64];
    size_t n_seen = 0;
    struct report r;
    char *text, *line, *rest;

    (void)state;
    fill(&r);
    report_add_worker(&r, "w1", "host", "0.1.0")->seen_ago_ms = 10;
    text = report_metrics(&r);
    assert_non_null(text);
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (rest = text; (line = strsep(&rest, "\n")) && *line;) {
        if (sscanf(line, "# TYPE %63s", family) == 1) {
            for (size_t i = 0; i < n_seen; i++)
                assert_string_not_equal(seen[i], family);
            assert_true(n_seen < 100);
            memcpy(seen[n_seen++], family, sizeof(family));
        } else if (line[0] != '#') {
            assert_true(n_seen > 0);
            assert_memory_equal(line, seen[n_seen - 1], strlen(seen[n_seen - 1]));
            assert_memory_equal(line, "postrider_", 10);
        }
    }
    assert_true(n_seen > 30);
    free(text);
    report_done(&r);
}

/* Q10: no number in metrics or status, whatever a vendor answers. */
static void no_phone_number_leaves(void **state)
{
    struct report r;
    char *metrics, *json;

    (void)state;
    fill(&r);
    metrics = report_metrics(&r);
    json = report_json(&r);
    assert_non_null(metrics);
    assert_non_null(json);
    has_not(metrics, "90123");
    has_not(json, "90123");
    has(json, "throttled: number +************ too often");
    free(metrics);
    free(json);
    report_done(&r);
}

/* ---- JSON ---- */

static json_t *load(char *text_take)
{
    json_t *j = json_loads(text_take, 0, NULL);

    free(text_take);
    assert_non_null(j);
    return j;
}

/* B4: "sent" is a stored name; for people it is "handed to vendor". */
static void json_has_the_words_for_people(void **state)
{
    struct report r;
    json_t *j, *c;

    (void)state;
    fill(&r);
    j = load(report_json(&r));
    c = json_array_get(json_object_get(j, "counts"), 0);
    assert_string_equal(json_string_value(json_object_get(c, "state")), "sent");
    assert_string_equal(json_string_value(json_object_get(c, "label")), "handed to vendor");
    assert_int_equal(json_integer_value(json_object_get(c, "count")), 7);
    c = json_array_get(json_object_get(j, "counts"), 1);
    assert_string_equal(json_string_value(json_object_get(c, "label")), "unknown");
    json_decref(j);
    report_done(&r);
}

static void json_of_an_empty_report_is_whole(void **state)
{
    static const char *const parts[] = {"worker",  "counts",   "lanes", "providers", "otp",
                                        "workers", "database", "ages",  "work",      "bounds_ms"};
    struct report r;
    json_t *j;

    (void)state;
    report_init(&r);
    j = load(report_json(&r));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        assert_non_null(json_object_get(j, parts[i]));
    assert_true(json_is_null(json_object_get(json_object_get(j, "ages"), "last_claim_ms")));
    assert_true(json_is_null(json_object_get(json_object_get(j, "otp"), "p99_ms")));
    json_decref(j);
    report_done(&r);
}

static void outside_text_is_kept_valid(void **state)
{
    struct report r;
    json_t *j;

    (void)state;
    fill(&r);
    r.db_up = false;
    assert_int_equal(report_set(&r.db_error, "FATAL: \xff\xfe\n\"quoted\"</script>"), 0);
    j = load(report_json(&r));
    assert_string_equal(json_string_value(json_object_get(json_object_get(j, "database"), "error")),
                        "FATAL: \xef\xbf\xbd\xef\xbf\xbd\\n\"quoted\"</script>");
    json_decref(j);
    report_done(&r);
}

/* ---- health ---- */

static const struct report_limits limits = {.claim_age_ms = 2000, .unsettled_age_ms = 5000};

static void expect_health(const struct report *r, unsigned status, const char *reason)
{
    char *body = NULL;

    assert_int_equal(report_health(r, &limits, &body), status);
    assert_non_null(body);
    if (reason)
        has(body, reason);
    else
        has(body, "\"reasons\":[]");
    has(body, status == 200 ? "\"ok\":true" : "\"ok\":false");
    free(body);
}

/* S6: green means that claims succeed, not that the process lives. */
static void health_asks_for_the_last_claim(void **state)
{
    struct report r;

    (void)state;
    fill(&r);
    r.last_claim_ago_ms = 2000;
    expect_health(&r, 200, NULL);
    r.last_claim_ago_ms = 2001;
    expect_health(&r, 503, "no claim has succeeded for 2.0 s (limit 2.0 s)");
    r.db_up = false;
    assert_int_equal(report_set(&r.db_error, "connection refused"), 0);
    expect_health(&r, 503, "the database cannot be reached: connection refused");
    r.claim_not_wanted = true; /* full: no claim is due */
    expect_health(&r, 200, NULL);
    r.claim_not_wanted = false;
    r.draining = true;
    expect_health(&r, 200, NULL);
    report_done(&r);
}

static void health_before_the_first_claim(void **state)
{
    struct report r;

    (void)state;
    fill(&r);
    r.last_claim_ago_ms = AGE_NONE;
    r.up_ms = 500;
    expect_health(&r, 200, NULL);
    r.up_ms = 12345;
    expect_health(&r, 503, "no claim has succeeded since the start, for 12.3 s");
    report_done(&r);
}

/* Full because nothing can be stored is not healthy, claims wanted or not. */
static void health_sees_answers_that_cannot_be_stored(void **state)
{
    struct report r;

    (void)state;
    fill(&r);
    r.claim_not_wanted = true;
    r.unsettled = 1500;
    r.oldest_unsettled_ms = 5000;
    expect_health(&r, 200, NULL);
    r.oldest_unsettled_ms = 61000;
    expect_health(&r, 503, "1500 answers wait to be stored, the oldest for 61.0 s");
    r.draining = true;
    expect_health(&r, 503, "\"draining\":true");
    report_done(&r);
}

static void expect_ready(const struct report *r, unsigned status, const char *reason)
{
    char *body = NULL;

    assert_int_equal(report_ready(r, &body), status);
    assert_non_null(body);
    has(body, reason);
    free(body);
}

static void ready_wants_database_schema_and_no_drain(void **state)
{
    struct report r;

    (void)state;
    fill(&r);
    expect_ready(&r, 200, "\"ok\":true");
    r.schema_version = 6;
    expect_ready(&r, 503, "the database has schema 6, this worker needs 7");
    r.schema_version = 7;
    r.draining = true;
    expect_ready(&r, 503, "draining");
    r.draining = false;
    r.db_up = false;
    expect_ready(&r, 503, "the database cannot be reached");
    report_done(&r);
}

/* Lists are emptied and filled again, as the engine does every second. */
static void lists_are_filled_anew(void **state)
{
    struct report r;

    (void)state;
    fill(&r);
    for (int i = 0; i < 3; i++) {
        report_clear(&r, REPORT_COUNTS | REPORT_PROVIDERS);
        assert_int_equal(r.n_counts, 0);
        assert_int_equal(r.n_providers, 0);
        assert_int_equal(r.n_lanes, 2);
        assert_int_equal(report_add_count(&r, "campaign", "pending", 5), 0);
        assert_non_null(report_add_provider(&r, "main", "http"));
        assert_int_equal(r.counts[0].count, 5);
    }
    report_done(&r);
    report_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_fall_into_their_bucket),
        cmocka_unit_test(bounds_rise_from_1_ms_to_60_s),
        cmocka_unit_test(quantiles),
        cmocka_unit_test(metrics_say_what_is),
        cmocka_unit_test(metrics_histogram_is_cumulative),
        cmocka_unit_test(metrics_are_well_formed),
        cmocka_unit_test(no_phone_number_leaves),
        cmocka_unit_test(json_has_the_words_for_people),
        cmocka_unit_test(json_of_an_empty_report_is_whole),
        cmocka_unit_test(outside_text_is_kept_valid),
        cmocka_unit_test(health_asks_for_the_last_claim),
        cmocka_unit_test(health_before_the_first_claim),
        cmocka_unit_test(health_sees_answers_that_cannot_be_stored),
        cmocka_unit_test(ready_wants_database_schema_and_no_drain),
        cmocka_unit_test(lists_are_filled_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
