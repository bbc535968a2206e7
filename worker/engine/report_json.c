/* The report as JSON, for the page and for `status --json`. Ages that are AGE_NONE are null. The
 * state names are the stored ones; `label` is the word for people (B4). */
#include <jansson.h>
#include <string.h>

#include "worker/core/clean.h"
#include "worker/engine/report.h"

static json_t *age(int64_t ms)
{
    return ms == AGE_NONE ? json_null() : json_integer(ms);
}

static const char *text(const char *s)
{
    return s ? s : "";
}

static json_int_t number(uint64_t n)
{
    return (json_int_t)n;
}

/* "sent" alone would be read as "arrived" (B4). */
static const char *state_label(const char *state)
{
    return strcmp(state, "sent") == 0 ? "handed to vendor" : state;
}

static json_t *summary(const struct histogram *h)
{
    json_t *buckets = json_array();

    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++)
        json_array_append_new(buckets, json_integer(number(h->bucket[i])));
    return json_pack("{s:I, s:o, s:o, s:o}", "count", number(h->count), "p50_ms",
                     h->count ? json_real(histogram_quantile_ms(h, 0.5)) : json_null(), "p99_ms",
                     h->count ? json_real(histogram_quantile_ms(h, 0.99)) : json_null(), "buckets",
                     buckets);
}

static json_t *bounds(void)
{
    json_t *list = json_array();

    for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++)
        json_array_append_new(list, json_integer(histogram_bounds_ms[i]));
    return list;
}

static json_t *counts(const struct report *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < r->n_counts; i++) {
        const struct report_count *c = &r->counts[i];

        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I}", "kind", c->kind, "state",
                                              c->state, "label", state_label(c->state), "count",
                                              (json_int_t)c->count));
    }
    return list;
}

static json_t *lanes(const struct report *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < r->n_lanes; i++)
        json_array_append_new(list, json_pack("{s:s, s:o}", "name", r->lanes[i].name,
                                              "oldest_due_ms", age(r->lanes[i].oldest_due_ms)));
    return list;
}

static json_t *outcomes(const struct report_outcomes *o)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "accepted", number(o->accepted),
                     "rejected", number(o->rejected), "throttled", number(o->throttled), "held",
                     number(o->held), "unreached", number(o->unreached), "refused",
                     number(o->refused), "unknown", number(o->unknown));
}

/* A vendor's words may quote the number we asked about (Q10). */
static json_t *reason(const char *words)
{
    char masked[512];

    clean_text(masked, sizeof(masked), text(words), strlen(text(words)), CLEAN_MASK_DIGITS);
    return masked[0] ? json_string(masked) : json_null();
}

static json_t *providers(const struct report *r)
{
    static const char *const doors[] = {"open", "paused", "held"};
    json_t *list = json_array();

    for (size_t i = 0; i < r->n_providers; i++) {
        const struct report_provider *p = &r->providers[i];

        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:I, s:o, s:I, s:o}", "name", p->name,
                            "plugin", p->plugin, "state", doors[p->door], "reason",
                            reason(p->reason), "until_ms", age(p->until_ms), "in_air",
                            (json_int_t)p->in_air, "limit", (json_int_t)p->limit, "outcomes",
                            outcomes(&p->outcomes), "possible_duplicates",
                            (json_int_t)p->possible_duplicates, "call", summary(&p->call)));
    }
    return list;
}

static json_t *workers(const struct report *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < r->n_workers; i++) {
        const struct report_worker *w = &r->workers[i];

        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:I, s:o, s:I, s:b, s:b}", "name",
                                              w->name, "host", w->host, "version", w->version,
                                              "pid", (json_int_t)w->pid, "seen_ago_ms",
                                              age(w->seen_ago_ms), "in_air", (json_int_t)w->in_air,
                                              "self", w->self, "draining", w->draining));
    }
    return list;
}

static json_t *self(const struct report *r)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:o}", "name", text(r->name),
                     "host", text(r->host), "version", text(r->version), "pid", (json_int_t)r->pid,
                     "up_ms", (json_int_t)r->up_ms, "draining", r->draining, "in_air",
                     (json_int_t)r->in_air, "in_air_limit", (json_int_t)r->in_air_limit,
                     "unsettled", (json_int_t)r->unsettled, "oldest_unsettled_ms",
                     age(r->oldest_unsettled_ms));
}

static json_t *work(const struct report *r)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "claimed",
                     number(r->claimed), "claims", number(r->claims), "settled", number(r->settled),
                     "settles", number(r->settles), "given_back", number(r->given_back),
                     "settled_stale", number(r->settled_stale), "late_news", number(r->late_news),
                     "swept_unknown", number(r->swept_unknown), "swept_back", number(r->swept_back),
                     "duplicate_suspects", number(r->duplicate_suspects), "lease_refused",
                     number(r->lease_refused), "reuse_refused", number(r->reuse_refused));
}

static json_t *ages(const struct report *r)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:b}", "last_claim_ms", age(r->last_claim_ago_ms),
                     "last_settle_ms", age(r->last_settle_ago_ms), "last_sweep_ms",
                     age(r->last_sweep_ago_ms), "counts_ms", age(r->counts_ago_ms), "claim_wanted",
                     !r->claim_not_wanted);
}

static json_t *database(const struct report *r)
{
    return json_pack(
        "{s:b, s:I, s:o, s:I, s:I, s:i, s:i, s:o, s:o, s:o, s:I}", "up", r->db_up, "since_ms",
        (json_int_t)r->db_since_ms, "error",
        r->db_up || !r->db_error ? json_null() : json_string(r->db_error), "reconnects",
        number(r->db_reconnects), "clock_skew_ms", (json_int_t)r->clock_skew_ms, "schema_version",
        r->schema_version, "schema_wanted", r->schema_wanted, "live_tuples", age(r->live_tuples),
        "dead_tuples", age(r->dead_tuples), "oldest_snapshot_ms", age(r->oldest_snapshot_ms),
        "oldest_snapshot_pid", (json_int_t)r->oldest_snapshot_pid);
}

char *report_json(const struct report *r)
{
    json_auto_t *all =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "worker", self(r), "counts",
                  counts(r), "lanes", lanes(r), "providers", providers(r), "otp", summary(&r->otp),
                  "workers", workers(r), "database", database(r), "ages", ages(r), "work", work(r),
                  "bounds_ms", bounds());

    return all ? json_dumps(all, JSON_COMPACT) : NULL;
}
