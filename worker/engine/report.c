#include "worker/engine/report.h"

#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/clean.h"

enum { TEXT_BYTES = 512 }; /* a longer text is cut, with an ellipsis */

/* ---- histogram ---- */

const int64_t histogram_bounds_ms[HISTOGRAM_BOUNDS] = {
    1,   2,   3,   5,    7,    10,   15,   20,   30,   50,    70,    100,   150,  200,
    300, 500, 700, 1000, 1500, 2000, 3000, 5000, 7000, 10000, 20000, 30000, 60000};

void histogram_add_us(struct histogram *h, int64_t us)
{
    size_t i = 0;

    if (us < 0)
        us = 0;
    while (i < HISTOGRAM_BOUNDS && us > histogram_bounds_ms[i] * 1000)
        i++;
    h->bucket[i]++;
    h->count++;
    h->sum_us += (uint64_t)us;
}

double histogram_quantile_ms(const struct histogram *h, double q)
{
    double rank = q * (double)h->count, below = 0;
    int64_t low = 0;

    if (h->count == 0)
        return -1;
    for (size_t i = 0; i < HISTOGRAM_BOUNDS; i++) {
        double in = (double)h->bucket[i];

        if (in > 0 && below + in >= rank)
            return (double)low + (double)(histogram_bounds_ms[i] - low) * (rank - below) / in;
        below += in;
        low = histogram_bounds_ms[i];
    }
    return (double)low;
}

/* ---- the snapshot ---- */

void report_init(struct report *r)
{
    *r = (struct report){
        .oldest_unsettled_ms = AGE_NONE,
        .last_claim_ago_ms = AGE_NONE,
        .last_settle_ago_ms = AGE_NONE,
        .last_sweep_ago_ms = AGE_NONE,
        .counts_ago_ms = AGE_NONE,
        .live_tuples = -1,
        .dead_tuples = -1,
        .oldest_snapshot_ms = AGE_NONE,
    };
}

static void counts_clear(struct report *r)
{
    for (size_t i = 0; i < r->n_counts; i++) {
        free(r->counts[i].kind);
        free(r->counts[i].state);
    }
    free(r->counts);
    r->counts = NULL;
    r->n_counts = 0;
}

static void lanes_clear(struct report *r)
{
    for (size_t i = 0; i < r->n_lanes; i++)
        free(r->lanes[i].name);
    free(r->lanes);
    r->lanes = NULL;
    r->n_lanes = 0;
}

static void providers_clear(struct report *r)
{
    for (size_t i = 0; i < r->n_providers; i++) {
        free(r->providers[i].name);
        free(r->providers[i].plugin);
        free(r->providers[i].reason);
    }
    free(r->providers);
    r->providers = NULL;
    r->n_providers = 0;
}

static void workers_clear(struct report *r)
{
    for (size_t i = 0; i < r->n_workers; i++) {
        free(r->workers[i].name);
        free(r->workers[i].host);
        free(r->workers[i].version);
    }
    free(r->workers);
    r->workers = NULL;
    r->n_workers = 0;
}

void report_clear(struct report *r, unsigned lists)
{
    if (lists & REPORT_COUNTS)
        counts_clear(r);
    if (lists & REPORT_LANES)
        lanes_clear(r);
    if (lists & REPORT_PROVIDERS)
        providers_clear(r);
    if (lists & REPORT_WORKERS)
        workers_clear(r);
}

void report_done(struct report *r)
{
    report_clear(r, REPORT_COUNTS | REPORT_LANES | REPORT_PROVIDERS | REPORT_WORKERS);
    free(r->name);
    free(r->host);
    free(r->version);
    free(r->db_error);
    report_init(r);
}

/* Texts are cleaned on the way in, so that every form of the report may trust them: UTF-8, one
 * line, bounded. */
static char *text_copy(const char *text)
{
    char clean[TEXT_BYTES];

    if (!text)
        text = "";
    clean_text(clean, sizeof(clean), text, strlen(text), 0);
    return strdup(clean);
}

int report_set(char **field, const char *text)
{
    char *copy = text_copy(text);

    if (!copy)
        return -ENOMEM;
    free(*field);
    *field = copy;
    return 0;
}

/* Room for one more element, zeroed and not yet counted. Lists are a few dozen long. */
static void *list_more(void *io_list, size_t n, size_t size)
{
    void **list = io_list;
    void *grown = reallocarray(*list, n + 1, size);

    if (!grown)
        return NULL;
    *list = grown;
    return memset((char *)grown + n * size, 0, size);
}

int report_add_count(struct report *r, const char *kind, const char *state, int64_t count)
{
    struct report_count *c;

    for (size_t i = 0; i < r->n_counts; i++) {
        c = &r->counts[i];
        if (strcmp(c->kind, kind) == 0 && strcmp(c->state, state) == 0) {
            c->count += count;
            return 0;
        }
    }
    c = list_more(&r->counts, r->n_counts, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->kind = text_copy(kind);
    c->state = text_copy(state);
    c->count = count;
    if (!c->kind || !c->state) {
        free(c->kind);
        free(c->state);
        return -ENOMEM;
    }
    r->n_counts++;
    return 0;
}

int report_add_lane(struct report *r, const char *name, int64_t oldest_due_ms)
{
    struct report_lane *l = list_more(&r->lanes, r->n_lanes, sizeof(*l));

    if (!l)
        return -ENOMEM;
    l->name = text_copy(name);
    l->oldest_due_ms = oldest_due_ms;
    if (!l->name)
        return -ENOMEM;
    r->n_lanes++;
    return 0;
}

struct report_provider *report_add_provider(struct report *r, const char *name, const char *plugin)
{
    struct report_provider *p = list_more(&r->providers, r->n_providers, sizeof(*p));

    if (!p)
        return NULL;
    p->until_ms = AGE_NONE;
    p->name = text_copy(name);
    p->plugin = text_copy(plugin);
    if (!p->name || !p->plugin) {
        free(p->name);
        free(p->plugin);
        return NULL;
    }
    r->n_providers++;
    return p;
}

struct report_worker *report_add_worker(struct report *r, const char *name, const char *host,
                                        const char *version)
{
    struct report_worker *w = list_more(&r->workers, r->n_workers, sizeof(*w));

    if (!w)
        return NULL;
    w->seen_ago_ms = AGE_NONE;
    w->name = text_copy(name);
    w->host = text_copy(host);
    w->version = text_copy(version);
    if (!w->name || !w->host || !w->version) {
        free(w->name);
        free(w->host);
        free(w->version);
        return NULL;
    }
    r->n_workers++;
    return w;
}

/* ---- health ---- */

/* Appends one reason; a reason that does not fit into memory is left out, the status stands. */
static void reason_add(json_t *reasons, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void reason_add(json_t *reasons, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    json_array_append_new(reasons, json_vsprintf(fmt, args));
    va_end(args);
}

static unsigned health_answer(json_t *reasons_take, bool draining, char **ret_body)
{
    bool ok = json_array_size(reasons_take) == 0;
    json_t *body =
        json_pack("{s:b, s:b, s:o}", "ok", ok, "draining", draining, "reasons", reasons_take);

    *ret_body = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return ok ? 200 : 503;
}

/* Before the first claim the time since the start is judged. */
static void judge_claim(const struct report *r, int64_t limit_ms, json_t *reasons)
{
    bool never = r->last_claim_ago_ms == AGE_NONE;
    int64_t age = never ? r->up_ms : r->last_claim_ago_ms;

    if (r->draining || r->claim_not_wanted || age <= limit_ms)
        return;
    reason_add(reasons, "%s for %.1f s (limit %.1f s)",
               never ? "no claim has succeeded since the start," : "no claim has succeeded",
               (double)age / 1000, (double)limit_ms / 1000);
    if (!r->db_up)
        reason_add(reasons, "the database cannot be reached: %s", r->db_error ? r->db_error : "");
}

unsigned report_health(const struct report *r, const struct report_limits *limits, char **ret_body)
{
    json_t *reasons = json_array();

    judge_claim(r, limits->claim_age_ms, reasons);
    if (limits->unsettled_age_ms > 0 && r->oldest_unsettled_ms > limits->unsettled_age_ms)
        reason_add(reasons, "%lld answers wait to be stored, the oldest for %.1f s (limit %.1f s)",
                   (long long)r->unsettled, (double)r->oldest_unsettled_ms / 1000,
                   (double)limits->unsettled_age_ms / 1000);
    return health_answer(reasons, r->draining, ret_body);
}

unsigned report_ready(const struct report *r, char **ret_body)
{
    json_t *reasons = json_array();

    if (!r->db_up)
        reason_add(reasons, "the database cannot be reached: %s", r->db_error ? r->db_error : "");
    else if (r->schema_version != r->schema_wanted)
        reason_add(reasons, "the database has schema %d, this worker needs %d", r->schema_version,
                   r->schema_wanted);
    if (r->cautious)
        reason_add(reasons, "this is not the database that was adopted: nothing is sent until "
                            "somebody runs: postrider adopt");
    if (r->draining)
        reason_add(reasons, "the worker is draining");
    return health_answer(reasons, r->draining, ret_body);
}
