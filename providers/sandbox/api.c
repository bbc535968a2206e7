#include "providers/sandbox/api.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/vendor.h"
#include "providers/sandbox/wait.h"
#include "providers/sandbox/world.h"

/* --- helpers ---------------------------------------------------------------------------- */

const char *sb_query(const struct sb_req *r, const char *name)
{
    return MHD_lookup_connection_value(r->conn, MHD_GET_ARGUMENT_KIND, name);
}

bool sb_parse_u64(const char *s, uint64_t *ret)
{
    char *end = NULL;

    if (*s < '0' || *s > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(s, &end, 10);
    if (errno != 0 || *end != '\0' || value > INT64_MAX)
        return false;
    *ret = value;
    return true;
}

static const char *without_plus(const char *s)
{
    return *s == '+' || *s == ' ' ? s + 1 : s;
}

bool sb_same_number(const char *a, const char *b)
{
    return strcmp(without_plus(a), without_plus(b)) == 0;
}

enum MHD_Result sb_answer_json(struct sb_req *r, int status, json_t *take_json)
{
    char *text = take_json ? json_dumps(take_json, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    enum MHD_Result rc;

    json_decref(take_json);
    if (text)
        rc = sb_req_answer(r, status, text, strlen(text), NULL);
    else
        rc = sb_req_answer(r, 500, "{\"error\":\"out of memory\"}", 25, NULL);
    free(text);
    return rc;
}

enum MHD_Result sb_answer_error(struct sb_req *r, int status, const char *text)
{
    return sb_answer_json(r, status, json_pack("{s:s}", "error", text));
}

/* --- stats ------------------------------------------------------------------------------ */

static void put(json_t *o, const char *name, uint64_t value)
{
    json_object_set_new(o, name, json_integer((json_int_t)value));
}

static json_t *by_status(const struct sb_stats *s)
{
    json_t *o = json_object();
    char name[8];

    for (unsigned i = 0; i < SB_STATUS_MAX; i++) {
        if (s->answered[i] == 0)
            continue;
        snprintf(name, sizeof(name), "%u", i);
        put(o, name, s->answered[i]);
    }
    return o;
}

static json_t *by_reason(const struct sb_stats *s)
{
    json_t *o = json_object();

    for (int i = 0; i < SB_REASONS_; i++)
        put(o, sb_reason_name((enum sb_reason)i), s->by_reason[i]);
    return o;
}

static void put_totals(json_t *o, const struct sb_totals *t)
{
    put(o, "taken", t->taken);
    put(o, "keys", t->keys);
    put(o, "duplicates", t->duplicates);
    put(o, "dup_keys", t->dup_keys);
    put(o, "replays", t->replays);
    put(o, "body_mismatch", t->body_mismatch);
    put(o, "to_mismatch", t->to_mismatch);
}

json_t *sb_stats_json(struct sandbox *sb)
{
    const struct sb_stats *s = &sb->stats;
    json_t *o = json_object();

    if (!o)
        return NULL;
    put(o, "requests", s->requests);
    put(o, "connections", sb->connections);
    put(o, "connections_total", sb->connections_total);
    put_totals(o, sb_ledger_totals(sb->ledger));
    put(o, "keys_seen", sb_ledger_count(sb->ledger));
    json_object_set_new(o, "answered", by_status(s));
    json_object_set_new(o, "decided", by_reason(s));
    put(o, "dropped_before", s->by_reason[SB_DROP_BEFORE]);
    put(o, "dropped_answer", s->by_reason[SB_DROP_ANSWER]);
    put(o, "throttled", s->by_reason[SB_THROTTLED]);
    put(o, "outage", s->by_reason[SB_OUTAGE]);
    put(o, "rejected", s->by_reason[SB_REJECTED]);
    put(o, "invalid", s->by_reason[SB_INVALID]);
    put(o, "full", s->by_reason[SB_FULL]);
    put(o, "reset", s->reset);
    put(o, "closed", s->closed);
    put(o, "hung", s->hung);
    put(o, "incomplete", s->incomplete);
    put(o, "rate_1s", sb_meter_rate(&sb->arrivals, sb_mono_ms()));
    put(o, "peak_1s", sb->arrivals.peak);
    put(o, "in_air", s->in_air);
    put(o, "max_in_air", s->max_in_air);
    put(o, "bytes", s->bytes);
    json_object_set_new(o, "elapsed_s", json_real(sb_elapsed_s(sb)));
    if (sb->world)
        json_object_set_new(o, "dialect", sb_world_stats(sb->world));
    return o;
}

static enum MHD_Result stats_serve(struct sb_req *r)
{
    return sb_answer_json(r, 200, sb_stats_json(r->sb));
}

static enum MHD_Result health_serve(struct sb_req *r)
{
    return sb_answer_json(r, 200, json_pack("{s:s}", "status", "ok"));
}

/* --- latency by lane -------------------------------------------------------------------- */

static json_t *quantiles(const struct sb_hist *h)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f}", "count", (json_int_t)h->count, "p50",
                     (double)sb_hist_quantile(h, 0.50) / 1000.0, "p95",
                     (double)sb_hist_quantile(h, 0.95) / 1000.0, "p99",
                     (double)sb_hist_quantile(h, 0.99) / 1000.0, "max", (double)h->max_us / 1000.0);
}

static void clear_delays(struct sandbox *sb)
{
    for (unsigned i = 0; i < SB_LANES; i++) {
        free(sb->delay[i]);
        sb->delay[i] = NULL;
    }
}

static enum MHD_Result latency_serve(struct sb_req *r)
{
    struct sandbox *sb = r->sb;
    const char *reset = sb_query(r, "reset");
    json_t *o = json_object();

    for (unsigned i = 0; i < SB_LANES; i++) {
        const char *lane = sb_ledger_lane(sb->ledger, i);
        if (lane && sb->delay[i])
            json_object_set_new(o, lane, quantiles(sb->delay[i]));
    }
    if (reset && strcmp(reset, "1") == 0)
        clear_delays(sb);
    return sb_answer_json(r, 200, o);
}

/* --- reset ------------------------------------------------------------------------------ */

/* As if just started, but for the knobs, the requests that are in the air, and vendor ids,
 * which never come twice. */
static enum MHD_Result reset_serve(struct sb_req *r)
{
    struct sandbox *sb = r->sb;
    uint64_t in_air = sb->stats.in_air;

    sb_ledger_clear(sb->ledger);
    sb_inbox_clear(sb->inbox);
    clear_delays(sb);
    if (sb->world)
        sb_world_reset(sb->world);
    memset(&sb->stats, 0, sizeof(sb->stats));
    memset(&sb->arrivals, 0, sizeof(sb->arrivals));
    memset(&sb->admitted, 0, sizeof(sb->admitted));
    sb->stats.in_air = sb->stats.max_in_air = in_air;
    sb->start_ms = sb_mono_ms();
    return sb_answer_json(r, 200, json_pack("{s:s}", "status", "ok"));
}

/* --- routes ----------------------------------------------------------------------------- */

static enum MHD_Result not_found_serve(struct sb_req *r)
{
    return sb_answer_error(r, 404, "no such path");
}

static enum MHD_Result bad_method_serve(struct sb_req *r)
{
    return sb_answer_error(r, 405, "not with this method");
}

static const struct sb_route routes[] = {
    {"POST", "/messages", false, 0, sb_vendor_serve, NULL, sb_vendor_done},
    {"GET", "/api/health", false, 0, health_serve, NULL, NULL},
    {"GET", "/api/stats", false, 0, stats_serve, NULL, NULL},
    {"GET", "/api/ledger", false, 0, sb_ledger_list_serve, NULL, NULL},
    {"GET", "/api/ledger.csv", false, 0, sb_ledger_csv_serve, NULL, NULL},
    {"GET", "/api/ledger/", true, 0, sb_ledger_one_serve, NULL, NULL},
    {"POST", "/api/missing", false, 0, sb_missing_serve, sb_missing_feed, sb_missing_done},
    {"GET", "/api/wait", false, 0, sb_wait_serve, NULL, sb_wait_done},
    {"GET", "/api/phone/", true, 0, sb_phone_serve, NULL, NULL},
    {"GET", "/api/latency", false, 0, latency_serve, NULL, NULL},
    {"GET", "/api/knobs", false, 0, sb_knobs_get_serve, NULL, NULL},
    {"PUT", "/api/knobs", false, 0, sb_knobs_put_serve, NULL, NULL},
    {"POST", "/api/reset", false, 0, reset_serve, NULL, NULL},
};

/* Only under a dialect. */
static const struct sb_route dialect_routes[] = {
    {"GET", "/api/messages", false, 0, sb_messages_serve, NULL, NULL},
    {"POST", "/api/receipt", false, 0, sb_receipt_serve, NULL, sb_shot_done},
    {"POST", "/api/inbound", false, 0, sb_inbound_serve, NULL, sb_shot_done},
};
/* Whatever the dialect itself serves. */
static const struct sb_route dialect_route = {
    "", "", true, 0, sb_dialect_serve, NULL, sb_dialect_done};

static const struct sb_route not_found = {"", "", false, 0, not_found_serve, NULL, NULL};
static const struct sb_route bad_method = {"", "", false, 0, bad_method_serve, NULL, NULL};

static const struct sb_route *find_in(const struct sb_route *table, size_t n, const char *method,
                                      const char *url, const char **ret_tail, bool *io_other)
{
    for (size_t i = 0; i < n; i++) {
        const struct sb_route *route = &table[i];
        size_t len = strlen(route->path);
        if (route->prefix ? strncmp(url, route->path, len) != 0 : strcmp(url, route->path) != 0)
            continue;
        *io_other = true;
        if (strcmp(method, route->method) != 0)
            continue;
        *ret_tail = url + len;
        return route;
    }
    return NULL;
}

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

const struct sb_route *sb_route_find(const struct sandbox *sb, const char *method, const char *url,
                                     const char **ret_tail)
{
    const struct sb_route *found = NULL;
    bool other = false; /* the path is known, with another method */
    size_t own = sb->world ? 1 : 0;

    *ret_tail = "";
    if (sb->world && sb_dialect_route_find(sb->world, method, url, &other)) {
        *ret_tail = url;
        return &dialect_route;
    }
    /* the first is the vendor's own, where there is no dialect */
    found = find_in(routes + own, COUNT(routes) - own, method, url, ret_tail, &other);
    if (!found && sb->world)
        found = find_in(dialect_routes, COUNT(dialect_routes), method, url, ret_tail, &other);
    if (!found)
        found = other ? &bad_method : &not_found;
    return found;
}
