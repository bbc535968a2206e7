#include "providers/sandbox/ledger.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/mix.h"

#define CHUNK 16384u /* entries: 1 MiB */

enum {
    FLAG_KEY_STRING = 1, /* key.string is set, not key.uuid */
    FLAG_TO_STRING = 2,  /* `to` is the address of a string */
    FLAG_ONCE = 4,       /* sb_ledger_once was asked */
};

/* `to` as digits: the number itself below this bit, its digits' count above, '+' on top. */
#define TO_DIGITS_SHIFT 56
#define TO_PLUS         (UINT64_C(1) << 63)

struct sb_ledger {
    size_t max_keys, count;
    struct sb_entry **chunks; /* max_keys / CHUNK pointers, NULL until used */
    uint32_t *index;          /* entry number + 1; 0 = free; linear probing */
    size_t mask;
    struct sb_totals totals;
    uint16_t round;
    unsigned lanes;
    char lane[SB_LANES][SB_LANE_MAX + 1];
};

_Static_assert(sizeof(struct sb_entry) == 64, "an entry fills one cache line");

struct key { /* a key made ready for comparing */
    const char *text;
    size_t len;
    uint64_t hash;
    bool is_uuid;
    uint8_t uuid[16];
};

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Lower case and hyphens only: what is read must print as the same bytes again. */
static bool parse_uuid(const char *s, size_t len, uint8_t out[16])
{
    size_t n = 0;

    if (len != 36)
        return false;
    for (size_t i = 0; i < 36; i += 2) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (s[i] != '-')
                return false;
            i++;
        }
        int high = hex_value(s[i]);
        int low = hex_value(s[i + 1]);
        if (high < 0 || low < 0)
            return false;
        out[n++] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static void prepare_key(struct key *k, const char *text, size_t len)
{
    k->text = text;
    k->len = len;
    k->is_uuid = parse_uuid(text, len, k->uuid);
    k->hash = k->is_uuid ? sb_hash(k->uuid, sizeof(k->uuid)) : sb_hash(text, len);
}

static bool entry_has_key(const struct sb_entry *e, const struct key *k)
{
    if (k->is_uuid)
        return !(e->flags & FLAG_KEY_STRING) && memcmp(e->key.uuid, k->uuid, 16) == 0;
    return (e->flags & FLAG_KEY_STRING) && e->key.string.hash == k->hash &&
           strncmp(e->key.string.text, k->text, k->len) == 0 && e->key.string.text[k->len] == '\0';
}

int sb_ledger_new(size_t max_keys, struct sb_ledger **ret_ledger)
{
    size_t slots = 1024;

    if (max_keys == 0 || max_keys > UINT32_MAX / 4)
        return -EINVAL;
    while (slots * 3 / 4 < max_keys)
        slots *= 2;
    struct sb_ledger *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->max_keys = max_keys;
    l->mask = slots - 1;
    l->index = calloc(slots, sizeof(*l->index));
    l->chunks = calloc(max_keys / CHUNK + 1, sizeof(*l->chunks));
    if (!l->index || !l->chunks) {
        sb_ledger_free(l);
        return -ENOMEM;
    }
    *ret_ledger = l;
    return 0;
}

static char *to_string(const struct sb_entry *e)
{
    return (char *)(uintptr_t)e->to;
}

static void free_entries(struct sb_ledger *l)
{
    for (size_t i = 0; i < l->count; i++) {
        struct sb_entry *e = sb_ledger_at(l, i);
        if (e->flags & FLAG_KEY_STRING)
            free(e->key.string.text);
        if (e->flags & FLAG_TO_STRING)
            free(to_string(e));
    }
    for (size_t i = 0; l->chunks && i <= l->max_keys / CHUNK; i++) {
        free(l->chunks[i]);
        l->chunks[i] = NULL;
    }
    l->count = 0;
}

struct sb_ledger *sb_ledger_free(struct sb_ledger *l)
{
    if (!l)
        return NULL;
    free_entries(l);
    free(l->chunks);
    free(l->index);
    free(l);
    return NULL;
}

void sb_ledger_clear(struct sb_ledger *l)
{
    free_entries(l);
    memset(l->index, 0, (l->mask + 1) * sizeof(*l->index));
    memset(&l->totals, 0, sizeof(l->totals));
    l->round = 0;
    l->lanes = 0;
}

const struct sb_totals *sb_ledger_totals(const struct sb_ledger *l)
{
    return &l->totals;
}

bool sb_ledger_once(struct sb_entry *e)
{
    bool first = !(e->flags & FLAG_ONCE);

    e->flags |= FLAG_ONCE;
    return first;
}

size_t sb_ledger_count(const struct sb_ledger *l)
{
    return l->count;
}

struct sb_entry *sb_ledger_at(const struct sb_ledger *l, size_t i)
{
    return &l->chunks[i / CHUNK][i % CHUNK];
}

/* The index slot that holds the key, or the free one where it belongs. */
static size_t slot_of(const struct sb_ledger *l, const struct key *k)
{
    size_t slot = k->hash & l->mask;

    while (l->index[slot] != 0 && !entry_has_key(sb_ledger_at(l, l->index[slot] - 1), k))
        slot = (slot + 1) & l->mask;
    return slot;
}

struct sb_entry *sb_ledger_find(const struct sb_ledger *l, const char *key, size_t len)
{
    struct key k;

    prepare_key(&k, key, len);
    uint32_t found = l->index[slot_of(l, &k)];
    return found ? sb_ledger_at(l, found - 1) : NULL;
}

/* Packs "+998901234567" or "998901234567"; false when it is no such number. */
static bool pack_to(const char *to, uint64_t *ret)
{
    uint64_t plus = *to == '+' ? TO_PLUS : 0;
    const char *digits = plus ? to + 1 : to;
    size_t len = strspn(digits, "0123456789");
    uint64_t value = 0;

    if (len == 0 || len > 16 || digits[len] != '\0')
        return false;
    for (size_t i = 0; i < len; i++)
        value = value * 10 + (uint64_t)(digits[i] - '0');
    *ret = plus | (uint64_t)len << TO_DIGITS_SHIFT | value;
    return true;
}

static int set_to(struct sb_entry *e, const char *to)
{
    if (pack_to(to, &e->to))
        return 0;
    char *copy = strndup(to, SB_TO_MAX);
    if (!copy)
        return -ENOMEM;
    e->to = (uint64_t)(uintptr_t)copy;
    e->flags |= FLAG_TO_STRING;
    return 0;
}

size_t sb_entry_to(const struct sb_entry *e, char buf[SB_TO_MAX + 1])
{
    int n;

    if (e->flags & FLAG_TO_STRING) {
        n = snprintf(buf, SB_TO_MAX + 1, "%s", to_string(e));
        return (size_t)n;
    }
    int digits = (int)(e->to >> TO_DIGITS_SHIFT & 0x7f);
    uint64_t value = e->to & ((UINT64_C(1) << TO_DIGITS_SHIFT) - 1);
    n = snprintf(buf, SB_TO_MAX + 1, "%s%0*llu", e->to & TO_PLUS ? "+" : "", digits,
                 (unsigned long long)value);
    return (size_t)n;
}

static uint8_t lane_index(struct sb_ledger *l, const char *lane)
{
    const char *name = lane ? lane : "";

    for (unsigned i = 0; i < l->lanes; i++)
        if (strncmp(l->lane[i], name, SB_LANE_MAX) == 0)
            return (uint8_t)i;
    if (l->lanes == SB_LANES)
        return SB_LANES - 1;
    snprintf(l->lane[l->lanes], sizeof(l->lane[0]), "%s", name);
    return (uint8_t)l->lanes++;
}

const char *sb_ledger_lane(const struct sb_ledger *l, unsigned lane)
{
    return lane < l->lanes ? l->lane[lane] : NULL;
}

static int set_key(struct sb_entry *e, const struct key *k)
{
    if (k->is_uuid) {
        memcpy(e->key.uuid, k->uuid, sizeof(k->uuid));
        return 0;
    }
    e->key.string.text = strndup(k->text, k->len);
    e->key.string.hash = k->hash;
    if (!e->key.string.text)
        return -ENOMEM;
    e->flags |= FLAG_KEY_STRING;
    return 0;
}

static int add_entry(struct sb_ledger *l, const struct key *k, const struct sb_request *r,
                     struct sb_entry **ret)
{
    struct sb_entry **chunk = &l->chunks[l->count / CHUNK];

    if (l->count == l->max_keys)
        return -ENOSPC;
    if (!*chunk)
        *chunk = calloc(CHUNK, sizeof(struct sb_entry));
    if (!*chunk)
        return -ENOMEM;
    struct sb_entry *e = &(*chunk)[l->count % CHUNK];
    memset(e, 0, sizeof(*e));
    if (set_key(e, k) < 0)
        return -ENOMEM;
    if (set_to(e, r->to) < 0) {
        if (e->flags & FLAG_KEY_STRING)
            free(e->key.string.text);
        return -ENOMEM;
    }
    e->lane = lane_index(l, r->lane);
    e->body_hash = r->body_hash;
    l->count++;
    *ret = e;
    return 0;
}

static void compare(struct sb_ledger *l, const struct sb_entry *e, const struct sb_request *r)
{
    char first[SB_TO_MAX + 1];

    if (e->body_hash == r->body_hash)
        return;
    l->totals.body_mismatch++;
    sb_entry_to(e, first);
    if (strncmp(first, r->to, SB_TO_MAX) != 0)
        l->totals.to_mismatch++;
}

int sb_ledger_note(struct sb_ledger *l, const struct sb_request *r, struct sb_entry **ret_entry)
{
    struct sb_entry *e = NULL;
    struct key k;

    prepare_key(&k, r->key, r->key_len);
    size_t slot = slot_of(l, &k);
    if (l->index[slot] != 0) {
        e = sb_ledger_at(l, l->index[slot] - 1);
        compare(l, e, r);
    } else {
        int rc = add_entry(l, &k, r, &e);
        if (rc < 0)
            return rc;
        l->index[slot] = (uint32_t)l->count;
    }
    e->requests++;
    *ret_entry = e;
    return 0;
}

enum sb_taken sb_ledger_take(struct sb_ledger *l, struct sb_entry *e, int64_t now_ms,
                             int64_t window_ms, uint64_t vendor_no)
{
    bool again = e->deliveries > 0;

    if (again && now_ms - sb_entry_last_ms(e) < window_ms) {
        l->totals.replays++;
        return SB_TAKEN_REPLAY;
    }
    e->vendor_no = vendor_no;
    e->deliveries++;
    l->totals.taken++;
    if (!again) {
        e->first_ms = now_ms;
        l->totals.keys++;
        return SB_TAKEN_FIRST;
    }
    int64_t d = now_ms - e->first_ms;
    e->last_d_ms = d < 0 ? 0 : d > UINT32_MAX ? UINT32_MAX : (uint32_t)d;
    l->totals.duplicates++;
    l->totals.dup_keys += e->deliveries == 2;
    return SB_TAKEN_AGAIN;
}

int64_t sb_entry_last_ms(const struct sb_entry *e)
{
    return e->deliveries ? e->first_ms + e->last_d_ms : 0;
}

size_t sb_entry_key(const struct sb_entry *e, char buf[SB_KEY_MAX + 1])
{
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;

    if (e->flags & FLAG_KEY_STRING)
        return (size_t)snprintf(buf, SB_KEY_MAX + 1, "%s", e->key.string.text);
    for (size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            buf[n++] = '-';
        buf[n++] = hex[e->key.uuid[i] >> 4];
        buf[n++] = hex[e->key.uuid[i] & 15];
    }
    buf[n] = '\0';
    return n;
}

void sb_ledger_ask_begin(struct sb_ledger *l)
{
    if (++l->round != 0)
        return;
    for (size_t i = 0; i < l->count; i++)
        sb_ledger_at(l, i)->asked = 0;
    l->round = 1;
}

uint32_t sb_ledger_ask(struct sb_ledger *l, const char *key, size_t len, bool *ret_again)
{
    struct sb_entry *e = sb_ledger_find(l, key, len);

    *ret_again = e && e->asked == l->round;
    if (!e)
        return 0;
    e->asked = l->round;
    return e->deliveries;
}
