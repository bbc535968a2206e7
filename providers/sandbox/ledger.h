/* ledger.h - what reached the phones, by key.
 *
 * Pure: no clock, no I/O. One entry of 64 bytes a key, kept in order of first sight in chunks
 * that never move, found through an index made once for `max_keys`: no rehash ever stalls
 * the vendor, and untouched pages cost nothing. A key that is a lower-case UUID is kept as
 * its 16 bytes; any other as a string of its own. Single-threaded. */
#ifndef POSTRIDER_SANDBOX_LEDGER_H
#define POSTRIDER_SANDBOX_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SB_KEY_MAX  128 /* bytes of a key, without the NUL */
#define SB_TO_MAX   64  /* bytes of a recipient, without the NUL */
#define SB_LANES    32  /* lanes told apart; further ones are counted under the last */
#define SB_LANE_MAX 64  /* bytes of a lane's name that are kept */

struct sb_entry { /* one key; read freely, change through sb_ledger_take */
    union {
        uint8_t uuid[16];
        struct {
            char *text;
            uint64_t hash;
        } string;
    } key;
    uint64_t to;        /* packed digits, or a string's address: sb_entry_to */
    uint64_t body_hash; /* of the first request */
    uint64_t vendor_no; /* of the latest delivery; 0 = none yet */
    int64_t first_ms;   /* first delivery, epoch ms; 0 = none yet */
    uint32_t last_d_ms; /* latest delivery, ms after the first (49 days at most) */
    uint32_t deliveries;
    uint32_t requests;
    uint8_t flags;
    uint8_t lane;
    uint16_t asked; /* the round of sb_ledger_ask that named it */
};

struct sb_totals {
    uint64_t taken;         /* deliveries, first ones and others */
    uint64_t keys;          /* keys delivered at least once */
    uint64_t duplicates;    /* deliveries beyond the first of their key */
    uint64_t dup_keys;      /* keys delivered more than once */
    uint64_t replays;       /* repeats answered from memory: not delivered */
    uint64_t body_mismatch; /* requests whose bytes differ from the key's first request */
    uint64_t to_mismatch;   /* of those: another recipient */
};

struct sb_ledger;

/* Makes an empty ledger for at most `max_keys`. 0, -ENOMEM or -EINVAL. */
int sb_ledger_new(size_t max_keys, struct sb_ledger **ret_ledger);
struct sb_ledger *sb_ledger_free(struct sb_ledger *l);

/* Forgets everything; entries handed out before are gone. */
void sb_ledger_clear(struct sb_ledger *l);

const struct sb_totals *sb_ledger_totals(const struct sb_ledger *l);

/* The entry of a key, or NULL. Borrowed until clear or free. */
struct sb_entry *sb_ledger_find(const struct sb_ledger *l, const char *key, size_t len);

struct sb_request {              /* one request as the ledger sees it; all borrowed */
    const char *key, *to, *lane; /* lane may be NULL */
    size_t key_len;
    uint64_t body_hash;
};

/* Notes a request, taken or not, making the entry when the key is new. 0, -ENOSPC when
 * max_keys are known, -ENOMEM. */
int sb_ledger_note(struct sb_ledger *l, const struct sb_request *r, struct sb_entry **ret_entry);

enum sb_taken { SB_TAKEN_FIRST, SB_TAKEN_AGAIN, SB_TAKEN_REPLAY };

/* Takes a message at `now_ms`. With de-duplication (window_ms > 0) a key delivered less than
 * window_ms ago is a replay: not delivered, its vendor_no stands. Otherwise it is delivered
 * under `vendor_no`, for the first time or again. */
enum sb_taken sb_ledger_take(struct sb_ledger *l, struct sb_entry *e, int64_t now_ms,
                             int64_t window_ms, uint64_t vendor_no);

/* True the first time it is asked about this entry: for fates that befall a message once. */
bool sb_ledger_once(struct sb_entry *e);

/* Entries in order of first sight: 0 <= i < count, delivered or not. */
size_t sb_ledger_count(const struct sb_ledger *l);
struct sb_entry *sb_ledger_at(const struct sb_ledger *l, size_t i);

/* Text of an entry's key and recipient into `buf`; return the length. */
size_t sb_entry_key(const struct sb_entry *e, char buf[SB_KEY_MAX + 1]);
size_t sb_entry_to(const struct sb_entry *e, char buf[SB_TO_MAX + 1]);
int64_t sb_entry_last_ms(const struct sb_entry *e); /* 0 = never delivered */

/* The name of a lane by index, or NULL where no lane has that index yet. Static until clear. */
const char *sb_ledger_lane(const struct sb_ledger *l, unsigned lane);

/* A question "were these keys delivered?": begin a round, then name keys one by one.
 * sb_ledger_ask returns the key's deliveries and, in *ret_again, whether this round named
 * it before. */
void sb_ledger_ask_begin(struct sb_ledger *l);
uint32_t sb_ledger_ask(struct sb_ledger *l, const char *key, size_t len, bool *ret_again);

#endif
