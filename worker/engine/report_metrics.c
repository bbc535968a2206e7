/* Prometheus text format 0.0.4:
 * https://prometheus.io/docs/instrumenting/exposition_formats/ . Base units: seconds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/engine/report.h"

static void family(FILE *f, const char *name, const char *type, const char *help)
{
    fprintf(f, "# HELP postrider_%s %s\n# TYPE postrider_%s %s\n", name, help, name, type);
}

/* Label values: backslash, quote and line feed are escaped, nothing else. */
static void label(FILE *f, const char *before, const char *name, const char *value)
{
    fprintf(f, "%s%s=\"", before, name);
    for (; *value; value++) {
        if (*value == '\n')
            fputs("\\n", f);
        else if (*value == '\\' || *value == '"')
            fprintf(f, "\\%c", *value);
        else
            fputc(*value, f);
    }
    fputc('"', f);
}

static void gauge(FILE *f, const char *name, const char *help, double value)
{
    family(f, name, "gauge", help);
    fprintf(f, "postrider_%s %.17g\n", name, value);
}

static void counter(FILE *f, const char *name, const char *help, uint64_t value)
{
    family(f, name, "counter", help);
    fprintf(f, "postrider_%s %" PRIu64 "\n", name, value);
}

static double seconds(int64_t ms)
{
    return (double)ms / 1000;
}

/* What never happened is as old as the worker: an alert on the age fires then too. */
static double age(const struct report *r, int64_t ms)
{
    return seconds(ms == AGE_NONE ? r->up_ms : ms);
}

static void histogram(FILE *f, const char *name, const char *label_name, const char *label_value,
                      const struct histogram *h)
{
    uint64_t sum = 0;

    for (size_t i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        sum += h->bucket[i];
        fprintf(f, "postrider_%s_bucket", name);
        label(f, "{", label_name, label_value);
        if (i < HISTOGRAM_BOUNDS)
            fprintf(f, ",le=\"%g\"} %" PRIu64 "\n", seconds(histogram_bounds_ms[i]), sum);
        else
            fprintf(f, ",le=\"+Inf\"} %" PRIu64 "\n", sum);
    }
    fprintf(f, "postrider_%s_sum", name);
    label(f, "{", label_name, label_value);
    fprintf(f, "} %.6f\npostrider_%s_count", (double)h->sum_us / 1e6, name);
    label(f, "{", label_name, label_value);
    fprintf(f, "} %" PRIu64 "\n", h->count);
}

static void messages(FILE *f, const struct report *r)
{
    family(f, "messages", "gauge", "Messages by kind and state.");
    for (size_t i = 0; i < r->n_counts; i++) {
        label(f, "postrider_messages{", "kind", r->counts[i].kind);
        label(f, ",", "state", r->counts[i].state);
        fprintf(f, "} %" PRId64 "\n", r->counts[i].count);
    }
    family(f, "oldest_due_seconds", "gauge",
           "Age of the oldest message that is due and not begun; 0 when none waits.");
    for (size_t i = 0; i < r->n_lanes; i++) {
        int64_t ms = r->lanes[i].oldest_due_ms;

        label(f, "postrider_oldest_due_seconds{", "lane", r->lanes[i].name);
        fprintf(f, "} %.17g\n", seconds(ms == AGE_NONE ? 0 : ms));
    }
    family(f, "otp_seconds", "histogram",
           "From the producer's commit to the first request, by lane.");
    histogram(f, "otp_seconds", "lane", "otp", &r->otp);
}

static void outcome(FILE *f, const struct report_provider *p, const char *name, uint64_t n)
{
    label(f, "postrider_attempts_total{", "provider", p->name);
    label(f, ",", "outcome", name);
    fprintf(f, "} %" PRIu64 "\n", n);
}

static void attempts(FILE *f, const struct report *r)
{
    family(f, "attempts_total", "counter", "Attempts by what they proved.");
    for (size_t i = 0; i < r->n_providers; i++) {
        const struct report_provider *p = &r->providers[i];

        outcome(f, p, "accepted", p->outcomes.accepted);
        outcome(f, p, "rejected", p->outcomes.rejected);
        outcome(f, p, "throttled", p->outcomes.throttled);
        outcome(f, p, "held", p->outcomes.held);
        outcome(f, p, "unreached", p->outcomes.unreached);
        outcome(f, p, "refused", p->outcomes.refused);
        outcome(f, p, "unknown", p->outcomes.unknown);
    }
}

static void provider_value(FILE *f, const char *name, const struct report_provider *p, int64_t n)
{
    fprintf(f, "postrider_%s", name);
    label(f, "{", "provider", p->name);
    fprintf(f, "} %" PRId64 "\n", n);
}

static void provider_doors(FILE *f, const struct report *r)
{
    static const char *const names[] = {"open", "paused", "held"};

    family(f, "provider_state", "gauge", "1 for the state the provider is in.");
    for (size_t i = 0; i < r->n_providers; i++) {
        for (int d = REPORT_OPEN; d <= REPORT_HELD; d++) {
            label(f, "postrider_provider_state{", "provider", r->providers[i].name);
            label(f, ",", "state", names[d]);
            fprintf(f, "} %d\n", (int)r->providers[i].door == d);
        }
    }
}

static void labeled_value(FILE *f, const struct report_provider *p, const char *what,
                          const char *name, const char *value, uint64_t n)
{
    fprintf(f, "postrider_%s", what);
    label(f, "{", "provider", p->name);
    label(f, ",", name, value);
    fprintf(f, "} %" PRIu64 "\n", n);
}

static void lookups(FILE *f, const struct report *r)
{
    family(f, "lookups_total", "counter", "Doubts the vendor was asked about, by what it said.");
    for (size_t i = 0; i < r->n_providers; i++) {
        const struct report_provider *p = &r->providers[i];

        labeled_value(f, p, "lookups_total", "finding", "has_it", p->findings.has_it);
        labeled_value(f, p, "lookups_total", "finding", "refused_it", p->findings.refused_it);
        labeled_value(f, p, "lookups_total", "finding", "never_seen", p->findings.never_seen);
        labeled_value(f, p, "lookups_total", "finding", "cannot_say", p->findings.cannot_say);
    }
}

static void receipts(FILE *f, const struct report *r)
{
    family(f, "receipts_total", "counter", "Messages by what their receipt became.");
    for (size_t i = 0; i < r->n_providers; i++) {
        const struct report_provider *p = &r->providers[i];

        labeled_value(f, p, "receipts_total", "status", "in_transit", p->receipts.in_transit);
        labeled_value(f, p, "receipts_total", "status", "delivered", p->receipts.delivered);
        labeled_value(f, p, "receipts_total", "status", "undelivered", p->receipts.undelivered);
        labeled_value(f, p, "receipts_total", "status", "expired", p->receipts.expired);
    }
    family(f, "callbacks_total", "counter",
           "Calls of vendors: stored, refused (signature), unreadable, unstored (told to repeat).");
    for (size_t i = 0; i < r->n_providers; i++) {
        const struct report_provider *p = &r->providers[i];

        labeled_value(f, p, "callbacks_total", "result", "stored", p->receipts.stored);
        labeled_value(f, p, "callbacks_total", "result", "refused", p->receipts.refused);
        labeled_value(f, p, "callbacks_total", "result", "unreadable", p->receipts.unreadable);
        labeled_value(f, p, "callbacks_total", "result", "unstored", p->receipts.unstored);
    }
    family(
        f, "receipts_open_total", "counter",
        "Receipts that could not be applied at once: parked; after a day unmatched or given up.");
    for (size_t i = 0; i < r->n_providers; i++) {
        const struct report_provider *p = &r->providers[i];

        labeled_value(f, p, "receipts_open_total", "as", "parked", p->receipts.parked);
        labeled_value(f, p, "receipts_open_total", "as", "unmatched", p->receipts.unmatched);
        labeled_value(f, p, "receipts_open_total", "as", "given_up", p->receipts.given_up);
    }
}

static void providers(FILE *f, const struct report *r)
{
    const struct report_provider *p = r->providers;

    attempts(f, r);
    provider_doors(f, r);
    family(f, "in_air", "gauge", "Calls begun and not ended.");
    for (size_t i = 0; i < r->n_providers; i++)
        provider_value(f, "in_air", &p[i], p[i].in_air);
    family(f, "in_air_limit", "gauge", "Calls that may be in the air at once.");
    for (size_t i = 0; i < r->n_providers; i++)
        provider_value(f, "in_air_limit", &p[i], p[i].limit);
    lookups(f, r);
    receipts(f, r);
    family(f, "possible_duplicates_total", "counter",
           "Resends after a doubt at a vendor that does not de-duplicate.");
    for (size_t i = 0; i < r->n_providers; i++)
        provider_value(f, "possible_duplicates_total", &p[i], p[i].possible_duplicates);
    family(f, "call_seconds", "histogram", "Duration of calls to the vendor.");
    for (size_t i = 0; i < r->n_providers; i++)
        histogram(f, "call_seconds", "provider", p[i].name, &p[i].call);
}

static void work(FILE *f, const struct report *r)
{
    counter(f, "claimed_total", "Messages claimed.", r->claimed);
    counter(f, "claims_total", "Claim transactions.", r->claims);
    counter(f, "settled_total", "Outcomes stored.", r->settled);
    counter(f, "settles_total", "Settle transactions.", r->settles);
    counter(f, "given_back_total", "Messages claimed and given back unsent.", r->given_back);
    counter(f, "settled_stale_total", "Outcomes that came after the lease was another's.",
            r->settled_stale);
    counter(f, "late_news_total", "Outcomes that came after the sweeper had judged.", r->late_news);
    family(f, "swept_total", "counter", "Messages of dead claims, by where they went.");
    fprintf(f, "postrider_swept_total{to=\"unknown\"} %" PRIu64 "\n", r->swept_unknown);
    fprintf(f, "postrider_swept_total{to=\"pending\"} %" PRIu64 "\n", r->swept_back);
    counter(f, "duplicate_suspects_total", "Vendor ids that came for two messages.",
            r->duplicate_suspects);
    counter(f, "receipt_contradictions_total",
            "Messages proven not taken that a receipt says were taken.", r->receipt_contradictions);
    counter(f, "lease_refused_total", "Calls not begun since the lease would not outlast them.",
            r->lease_refused);
    counter(f, "reuse_refused_total", "Calls not begun on a connection that was not clean.",
            r->reuse_refused);
}

static void heart(FILE *f, const struct report *r)
{
    gauge(f, "uptime_seconds", "Since the worker started.", seconds(r->up_ms));
    gauge(f, "draining", "1 while the worker ends.", r->draining);
    gauge(f, "last_claim_age_seconds",
          "Since the last claim that succeeded, or since the start when none did.",
          age(r, r->last_claim_ago_ms));
    gauge(f, "claim_wanted", "0 while no slot is free or every provider is shut.",
          !r->claim_not_wanted);
    gauge(f, "last_settle_age_seconds", "Since the last outcome was stored, or since the start.",
          age(r, r->last_settle_ago_ms));
    gauge(f, "last_sweep_age_seconds", "Since the last sweep, or since the start.",
          age(r, r->last_sweep_ago_ms));
    gauge(f, "unsettled", "Answers known and not yet stored.", (double)r->unsettled);
    gauge(f, "oldest_unsettled_seconds", "Age of the oldest of them; 0 when there is none.",
          seconds(r->oldest_unsettled_ms == AGE_NONE ? 0 : r->oldest_unsettled_ms));
}

static void database(FILE *f, const struct report *r)
{
    gauge(f, "database_up", "1 while the database answers.", r->db_up);
    gauge(f, "database_state_seconds", "Since the database is up or down.",
          seconds(r->db_since_ms));
    counter(f, "database_reconnects_total", "Connections made anew.", r->db_reconnects);
    gauge(f, "clock_skew_seconds", "Database clock minus this host's.", seconds(r->clock_skew_ms));
    gauge(f, "schema_version", "Schema version of the database.", r->schema_version);
    gauge(f, "schema_wanted", "Schema version this worker needs.", r->schema_wanted);
    if (r->live_tuples >= 0)
        gauge(f, "live_tuples", "Live rows of the table that claims read.", (double)r->live_tuples);
    if (r->dead_tuples >= 0)
        gauge(f, "dead_tuples", "Dead rows of the table that claims read.", (double)r->dead_tuples);
    gauge(f, "oldest_snapshot_seconds", "Age of the longest held snapshot; it holds vacuum back.",
          seconds(r->oldest_snapshot_ms == AGE_NONE ? 0 : r->oldest_snapshot_ms));
    if (r->counts_ago_ms != AGE_NONE)
        gauge(f, "counts_age_seconds", "Age of the figures read from the database.",
              seconds(r->counts_ago_ms));
}

static void workers(FILE *f, const struct report *r)
{
    family(f, "worker_seen_seconds", "gauge", "Since a worker last told the database it lives.");
    for (size_t i = 0; i < r->n_workers; i++) {
        const struct report_worker *w = &r->workers[i];

        if (w->seen_ago_ms == AGE_NONE)
            continue;
        label(f, "postrider_worker_seen_seconds{", "worker", w->name);
        label(f, ",", "host", w->host);
        fprintf(f, "} %.17g\n", seconds(w->seen_ago_ms));
    }
}

char *report_metrics(const struct report *r)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    family(f, "build_info", "gauge", "Always 1; the version is in the label.");
    label(f, "postrider_build_info{", "version", r->version ? r->version : "");
    fputs("} 1\n", f);
    messages(f, r);
    providers(f, r);
    work(f, r);
    heart(f, r);
    database(f, r);
    workers(f, r);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}
