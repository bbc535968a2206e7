#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/mix.h"
#include "providers/sandbox/world.h"
#include "worker/core/text.h"

#define PARTS_MAX 255u

/* Messages that share a number, key or reference are chained, newest first: look-ups by these must
 * not walk through everything. */
enum chain { CHAIN_ALL = 0, CHAIN_TO, CHAIN_KEY, CHAIN_REF, CHAINS_ };

struct kept {
    struct sb_msg pub; /* first: a sb_msg is a kept */
    uint64_t body_hash;
    bool answered;
    json_t *extra;
    char **ids;
    struct kept *older[CHAINS_];
};

struct sb_store {
    size_t max, count, cap;
    uint64_t first_no; /* of list[0]; numbers go on after a clear */
    struct kept **list;
    json_t *latest[CHAINS_]; /* text → number of the latest; CHAIN_ALL unused */
    json_t *ids;             /* id → number * (PARTS_MAX + 1) + part */
};

static struct kept *kept_free(struct kept *k)
{
    if (!k)
        return NULL;
    free((char *)(uintptr_t)k->pub.to);
    free((char *)(uintptr_t)k->pub.text);
    free((char *)(uintptr_t)k->pub.from);
    free((char *)(uintptr_t)k->pub.key);
    free((char *)(uintptr_t)k->pub.ref);
    free((char *)(uintptr_t)k->pub.callback);
    for (size_t i = 0; i < k->pub.ids_n; i++)
        free(k->ids[i]);
    free(k->ids);
    json_decref(k->extra);
    free(k);
    return NULL;
}

static int make_maps(struct sb_store *s)
{
    s->ids = json_object();
    for (int i = CHAIN_TO; i < CHAINS_; i++)
        if (!(s->latest[i] = json_object()))
            return -ENOMEM;
    return s->ids ? 0 : -ENOMEM;
}

static void drop_maps(struct sb_store *s)
{
    json_decref(s->ids);
    s->ids = NULL;
    for (int i = CHAIN_TO; i < CHAINS_; i++) {
        json_decref(s->latest[i]);
        s->latest[i] = NULL;
    }
}

int sb_store_new(size_t max, struct sb_store **ret_store)
{
    struct sb_store *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    s->max = max;
    s->first_no = 1;
    if (make_maps(s) < 0) {
        sb_store_free(s);
        return -ENOMEM;
    }
    *ret_store = s;
    return 0;
}

void sb_store_clear(struct sb_store *s)
{
    for (size_t i = 0; i < s->count; i++)
        kept_free(s->list[i]);
    s->first_no += s->count;
    s->count = 0;
    json_object_clear(s->ids);
    for (int i = CHAIN_TO; i < CHAINS_; i++)
        json_object_clear(s->latest[i]);
}

struct sb_store *sb_store_free(struct sb_store *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->count; i++)
        kept_free(s->list[i]);
    free(s->list);
    drop_maps(s);
    free(s);
    return NULL;
}

size_t sb_store_count(const struct sb_store *s)
{
    return s->count;
}

bool sb_store_full(const struct sb_store *s)
{
    return s->count >= s->max;
}

/* --- adding ----------------------------------------------------------------------------- */

static const char *digits_of(const char *number)
{
    return *number == '+' ? number + 1 : number;
}

static const char *chain_text(const struct sb_msg *m, enum chain chain)
{
    switch (chain) {
    case CHAIN_TO:
        return digits_of(m->to);
    case CHAIN_KEY:
        return m->key;
    case CHAIN_REF:
        return m->ref;
    default:
        return NULL;
    }
}

static struct kept *latest(const struct sb_store *s, enum chain chain, const char *text)
{
    const json_t *no = text ? json_object_get(s->latest[chain], text) : NULL;

    return no ? (struct kept *)(void *)sb_store_at(s, (uint64_t)json_integer_value(no)) : NULL;
}

static int index_message(struct sb_store *s, struct kept *k)
{
    for (enum chain c = CHAIN_TO; c < CHAINS_; c++) {
        const char *text = chain_text(&k->pub, c);
        if (!text)
            continue;
        k->older[c] = latest(s, c, text);
        if (json_object_set_new(s->latest[c], text, json_integer((json_int_t)k->pub.no)) < 0)
            return -ENOMEM;
    }
    for (size_t i = 0; i < k->pub.ids_n; i++) {
        uint64_t where = k->pub.no * (PARTS_MAX + 1) + i;
        if (json_object_set_new(s->ids, k->ids[i], json_integer((json_int_t)where)) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* False when out of memory. */
static bool copy(const char **field, const char *text)
{
    *field = text ? strdup(text) : NULL;
    return *field || !text;
}

static unsigned count_parts(const struct sb_send *send)
{
    struct text_measure m;
    size_t n = send->parts;

    if (n == 0 && text_measure(send->text, strlen(send->text), &m) == 0)
        n = m.segments;
    if (n == 0)
        n = 1;
    return n < PARTS_MAX ? (unsigned)n : PARTS_MAX;
}

static int make_ids(const struct sb_world *w, struct kept *k)
{
    size_t n = w->d->id_per_part ? k->pub.parts : 1;
    char buf[SB_ID_SIZE];

    k->ids = calloc(n, sizeof(*k->ids));
    if (!k->ids)
        return -ENOMEM;
    k->pub.ids = (const char *const *)k->ids;
    for (size_t i = 0; i < n; i++) {
        if (w->d->make_id)
            w->d->make_id(w, &k->pub, i, buf);
        else
            sb_id_uuid(w, &k->pub, i, buf);
        k->ids[i] = strdup(buf);
        if (!k->ids[i])
            return -ENOMEM;
        k->pub.ids_n++;
    }
    return 0;
}

static struct kept *make(struct sb_world *w, const struct sb_send *send, uint64_t body_hash)
{
    struct kept *k = calloc(1, sizeof(*k));

    if (!k)
        return NULL;
    k->pub.no = w->store->first_no + w->store->count;
    k->pub.taken_ms = k->pub.changed_ms = sb_now_ms(w);
    k->pub.validity_ms = send->validity_ms;
    k->pub.no_receipt = send->no_receipt;
    k->pub.parts = count_parts(send);
    k->pub.extra = k->extra = json_incref(send->extra);
    k->body_hash = body_hash;
    if (!copy(&k->pub.to, send->to) || !copy(&k->pub.text, send->text) ||
        !copy(&k->pub.from, send->from) || !copy(&k->pub.key, send->key) ||
        !copy(&k->pub.ref, send->ref) || !copy(&k->pub.callback, send->callback) ||
        make_ids(w, k) < 0)
        return kept_free(k);
    return k;
}

int sb_store_add(struct sb_world *w, const struct sb_send *send, uint64_t body_hash,
                 struct sb_msg **ret_msg)
{
    struct sb_store *s = w->store;

    if (s->count == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 256;
        struct kept **grown = realloc(s->list, cap * sizeof(struct kept *));
        if (!grown)
            return -ENOMEM;
        s->list = grown;
        s->cap = cap;
    }
    struct kept *k = make(w, send, body_hash);
    if (!k)
        return -ENOMEM;
    k->older[CHAIN_ALL] = s->count > 0 ? s->list[s->count - 1] : NULL;
    s->list[s->count++] = k; /* an index that lacks it is the worst that can follow */
    *ret_msg = &k->pub;
    return index_message(s, k);
}

/* --- finding ---------------------------------------------------------------------------- */

struct sb_msg *sb_store_at(const struct sb_store *s, uint64_t no)
{
    return no >= s->first_no && no - s->first_no < s->count ? &s->list[no - s->first_no]->pub
                                                            : NULL;
}

struct sb_msg *sb_store_latest(const struct sb_store *s)
{
    return s->count > 0 ? &s->list[s->count - 1]->pub : NULL;
}

struct sb_msg *sb_store_by_key(const struct sb_store *s, const char *key)
{
    struct kept *k = latest(s, CHAIN_KEY, key);

    return k ? &k->pub : NULL;
}

struct sb_msg *sb_store_by_id(const struct sb_store *s, const char *id, size_t *ret_part)
{
    const json_t *where = json_object_get(s->ids, id);
    uint64_t v = where ? (uint64_t)json_integer_value(where) : 0;

    if (!where)
        return NULL;
    if (ret_part)
        *ret_part = v % (PARTS_MAX + 1);
    return sb_store_at(s, v / (PARTS_MAX + 1));
}

uint64_t sb_msg_body_hash(const struct sb_msg *m)
{
    return ((const struct kept *)(const void *)m)->body_hash;
}

bool sb_msg_answered(const struct sb_msg *m)
{
    return ((const struct kept *)(const void *)m)->answered;
}

void sb_msg_set_answered(struct sb_msg *m)
{
    ((struct kept *)(void *)m)->answered = true;
}

/* --- what look-ups see ------------------------------------------------------------------ */

static bool shows(const struct sb_world *w, const struct sb_msg *m)
{
    return sb_now_ms(w) - m->taken_ms >= (int64_t)w->sb->knobs.lookup_delay_ms;
}

static bool is_text(const char *want, const char *have)
{
    return !want || (have && strcmp(digits_of(want), digits_of(have)) == 0);
}

static bool fits(const struct sb_filter *f, const struct sb_msg *m)
{
    return is_text(f->to, m->to) && is_text(f->from, m->from) && is_text(f->key, m->key) &&
           is_text(f->ref, m->ref) && (f->from_ms == 0 || m->taken_ms >= f->from_ms) &&
           (f->to_ms == 0 || m->taken_ms < f->to_ms);
}

const struct sb_msg *sb_msg_next(const struct sb_world *w, const struct sb_filter *f,
                                 const struct sb_msg *after)
{
    const struct sb_msg like = {.to = f->to ? f->to : "", .key = f->key, .ref = f->ref};
    enum chain c = f->ref ? CHAIN_REF : f->key ? CHAIN_KEY : f->to ? CHAIN_TO : CHAIN_ALL;
    const struct kept *k = NULL;

    if (after)
        k = ((const struct kept *)(const void *)after)->older[c];
    else if (c != CHAIN_ALL)
        k = latest(w->store, c, chain_text(&like, c));
    else
        k = (const struct kept *)(const void *)sb_store_latest(w->store);
    while (k && !(fits(f, &k->pub) && shows(w, &k->pub)))
        k = k->older[c];
    return k ? &k->pub : NULL;
}

const struct sb_msg *sb_msg_by_id(const struct sb_world *w, const char *id, size_t *ret_part)
{
    const struct sb_msg *m = sb_store_by_id(w->store, id, ret_part);

    return m && shows(w, m) ? m : NULL;
}

/* --- ids -------------------------------------------------------------------------------- */

static uint64_t ordinal(const struct sb_msg *m, size_t part)
{
    return m->no * (PARTS_MAX + 1) + part;
}

/* From 16 digits on the first 16 are a mixed counter (the mixing is one to one, so they never
 * repeat in a run); fewer are the counter itself behind a random start. */
void sb_id_hex(const struct sb_world *w, const struct sb_msg *m, size_t part, const char *prefix,
               unsigned n, char buf[SB_ID_SIZE])
{
    uint64_t counter = w->sb->instance + ordinal(m, part);
    uint64_t first = sb_mix(counter);
    char hex[33];

    if (n < 16)
        first = counter << (64 - 4 * n);
    snprintf(hex, sizeof(hex), "%016" PRIx64 "%016" PRIx64, first, sb_mix(first ^ counter));
    snprintf(buf, SB_ID_SIZE, "%.60s%.*s", prefix, (int)n, hex);
}

void sb_id_uuid(const struct sb_world *w, const struct sb_msg *m, size_t part, char buf[SB_ID_SIZE])
{
    char hex[SB_ID_SIZE];

    sb_id_hex(w, m, part, "", 32, hex);
    snprintf(buf, SB_ID_SIZE, "%.8s-%.4s-4%.3s-8%.3s-%.12s", hex, hex + 8, hex + 13, hex + 17,
             hex + 20);
}

void sb_id_digits(const struct sb_world *w, const struct sb_msg *m, size_t part, unsigned n,
                  char buf[SB_ID_SIZE])
{
    uint64_t base = 1;

    for (unsigned i = 1; i < n && i < 19; i++)
        base *= 10;
    uint64_t spread = base > 1 ? (sb_mix(w->sb->instance) + ordinal(m, part)) % base : 0;
    snprintf(buf, SB_ID_SIZE, "%" PRIu64, base + spread);
}
