/* receive.h - what receive.c and receipt_apply.c share: callbacks of vendors. */
#ifndef POSTRIDER_ENGINE_RECEIVE_H
#define POSTRIDER_ENGINE_RECEIVE_H

#include "worker/engine/internal.h"

/* One call of a vendor, read, and waiting to be stored. Owned by the list it is on. */
struct callback {
    struct callback *next;
    struct serve_later *later; /* NULL: the connection is gone */
    char *provider;
    const char *method, *query; /* as they came; of the request, like the body */
    const void *body;
    size_t body_len;
    struct plugin_events events;
};

struct telling {     /* what would flood the log */
    int64_t told_ms; /* when it was logged last */
    uint64_t untold; /* how often since */
};

struct receipt_count {
    struct receipt_count *next;
    char *provider;
    struct report_receipts n;
    struct telling refused, unreadable;
};

struct receipts {
    struct engine *engine;
    struct callback *head, **tail; /* waiting */
    size_t waiting;
    struct callback *storing; /* one batch at a time */
    size_t alone;             /* so many are stored one by one, to find the one that is refused */
    struct receipt_count *counts;
    struct ev_timer gather; /* until this turn's calls are read */
    struct ev_timer look;   /* for receipts that are due */
    struct ev_timer soon;   /* for what was just stored: each look has its price, so they gather */
    bool applying, again;
};

/* receive_store.c */
void receive_push(struct receipts *rs, struct callback *cb);
void receive_flush(struct receipts *rs);
struct callback *callback_free(struct callback *cb);

/* receipt_apply.c */
void receipts_apply_soon(struct receipts *rs);

#endif
