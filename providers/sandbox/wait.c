#include "providers/sandbox/wait.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/api.h"

#define TIMEOUT_DEFAULT_MS 10000u
#define TIMEOUT_MAX_MS     600000u

enum wait_for { WAIT_TO, WAIT_KEY, WAIT_COUNT, WAIT_REQUESTS };

struct sb_wait { /* one long poll, in the list sandbox.waits */
    struct sb_wait *next, **link;
    struct sb_req *req;
    enum wait_for what;
    uint64_t number; /* of WAIT_COUNT, WAIT_REQUESTS */
    char *text;      /* of WAIT_TO, WAIT_KEY; owned */
};

static void wait_free(struct sb_wait *w)
{
    if (!w)
        return;
    if (w->link)
        *w->link = w->next;
    if (w->link && w->next)
        w->next->link = w->link;
    free(w->text);
    free(w);
}

/* Entries are given once a key is known; only deliveries count. */
static bool is_it(const struct sb_wait *w, const struct sb_entry *e)
{
    char text[SB_KEY_MAX + 1]; /* the larger of both kinds */

    if (e->deliveries == 0)
        return false;
    if (w->what == WAIT_KEY) {
        sb_entry_key(e, text);
        return strcmp(text, w->text) == 0;
    }
    sb_entry_to(e, text);
    return sb_same_number(text, w->text);
}

/* Searches everything: for the first look and the answer, not for each request. */
static const struct sb_entry *search(const struct sb_wait *w, const struct sb_ledger *l)
{
    if (w->what == WAIT_KEY) {
        const struct sb_entry *e = sb_ledger_find(l, w->text, strlen(w->text));
        return e && is_it(w, e) ? e : NULL;
    }
    for (size_t i = sb_ledger_count(l); i-- > 0;)
        if (is_it(w, sb_ledger_at(l, i)))
            return sb_ledger_at(l, i);
    return NULL;
}

static bool reached(const struct sb_wait *w, const struct sandbox *sb)
{
    return w->what == WAIT_COUNT ? sb_ledger_totals(sb->ledger)->keys >= w->number
                                 : sb->stats.requests >= w->number;
}

static bool counts(const struct sb_wait *w)
{
    return w->what == WAIT_COUNT || w->what == WAIT_REQUESTS;
}

void sb_wait_check(struct sandbox *sb, const struct sb_entry *e)
{
    bool woke = false;

    for (struct sb_wait *w = sb->waits; w; w = w->next) {
        if (!w->req->asleep || !(counts(w) ? reached(w, sb) : e && is_it(w, e)))
            continue;
        sb_req_wake(w->req);
        woke = true;
    }
    if (woke)
        sb_server_poke(sb);
}

/* Reads what is waited for. NULL when it is not exactly one thing, or out of memory. */
static struct sb_wait *wait_from_query(struct sb_req *r)
{
    static const struct {
        const char *name;
        enum wait_for what;
    } kinds[] = {
        {"to", WAIT_TO}, {"key", WAIT_KEY}, {"count", WAIT_COUNT}, {"requests", WAIT_REQUESTS}};
    struct sb_wait *w = NULL;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const char *s = sb_query(r, kinds[i].name);
        if (!s)
            continue;
        if (w) {
            wait_free(w);
            return NULL;
        }
        w = calloc(1, sizeof(*w));
        if (!w)
            return NULL;
        w->what = kinds[i].what;
        w->req = r;
        w->text = strdup(s);
        if (!w->text || (counts(w) && !sb_parse_u64(s, &w->number))) {
            wait_free(w);
            return NULL;
        }
    }
    return w;
}

static enum MHD_Result report(struct sb_req *r, const struct sb_wait *w)
{
    struct sandbox *sb = r->sb;
    const struct sb_entry *e = counts(w) ? NULL : search(w, sb->ledger);

    if (e)
        return sb_answer_json(r, 200, sb_entry_json(sb, e));
    if (counts(w) && reached(w, sb))
        return sb_answer_json(r, 200,
                              json_pack("{s:I, s:I}", "keys",
                                        (json_int_t)sb_ledger_totals(sb->ledger)->keys, "requests",
                                        (json_int_t)sb->stats.requests));
    if (r->woken)
        return sb_answer_json(r, 408, json_pack("{s:s}", "error", "not within the time"));
    return MHD_NO;
}

enum MHD_Result sb_wait_serve(struct sb_req *r)
{
    struct sandbox *sb = r->sb;
    struct sb_wait *w = r->data;
    uint64_t timeout_ms = TIMEOUT_DEFAULT_MS;
    const char *s = sb_query(r, "timeout_ms");

    if (r->woken)
        return report(r, w);
    if (s && (!sb_parse_u64(s, &timeout_ms) || timeout_ms > TIMEOUT_MAX_MS))
        return sb_answer_error(r, 400, "timeout_ms must be 0 to 600000");
    w = wait_from_query(r);
    if (!w)
        return sb_answer_error(r, 400, "give one of to, key, count or requests");
    r->data = w;
    if (counts(w) ? reached(w, sb) : search(w, sb->ledger) != NULL)
        return report(r, w);
    w->next = sb->waits;
    w->link = &sb->waits;
    if (w->next)
        w->next->link = &w->next;
    sb->waits = w;
    return sb_req_sleep(r, sb_mono_ms() + (int64_t)timeout_ms, true);
}

void sb_wait_done(struct sb_req *r)
{
    wait_free(r->data);
    r->data = NULL;
}
