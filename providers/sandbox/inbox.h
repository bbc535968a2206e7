/* inbox.h - the latest texts as the phones show them.
 *
 * Pure: a ring of the last `keep` deliveries, so memory is bounded whatever is sent. */
#ifndef POSTRIDER_SANDBOX_INBOX_H
#define POSTRIDER_SANDBOX_INBOX_H

#include <stddef.h>
#include <stdint.h>

struct sb_text {
    int64_t at_ms;      /* epoch */
    uint64_t vendor_no; /* of the delivery */
    const char *to, *key, *lane, *text;
};

struct sb_inbox;

/* 0, -ENOMEM. `keep` 0 keeps nothing. */
int sb_inbox_new(size_t keep, struct sb_inbox **ret_inbox);
struct sb_inbox *sb_inbox_free(struct sb_inbox *b);
void sb_inbox_clear(struct sb_inbox *b);

/* Copies a delivery in; the oldest leaves when full. Out of memory keeps nothing of it. */
void sb_inbox_add(struct sb_inbox *b, const struct sb_text *t);

/* The i-th newest (0 = latest), or NULL. Borrowed until the next add or clear. */
const struct sb_text *sb_inbox_at(const struct sb_inbox *b, size_t i);

#endif
