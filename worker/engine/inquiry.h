/* inquiry.h - one message asked about, between ask.c, which fetches and stores many, and inquiry.c,
 * which sees one through. Private to the engine.
 *
 * An inquiry is on the engine's list from inquiry_new until inquiry_forget. Once `decided` it waits
 * for ask.c to store `decision`; what is late news has already gone its way. */
#ifndef POSTRIDER_ENGINE_INQUIRY_H
#define POSTRIDER_ENGINE_INQUIRY_H

#include "worker/engine/internal.h"

enum inquiry_step { INQUIRY_CALLING = 0, INQUIRY_MATCHING, INQUIRY_STORING };

struct inquiry { /* one message asked about */
    struct inquiry *next;
    struct engine *engine;
    struct vendor *vendor;
    enum inquiry_step step;
    char id[UUID_LEN + 1], key[UUID_LEN + 1];
    char *kind, *recipient, *body, *sender, *meta, *vendor_id, *cursor;
    int64_t token, attempt; /* of the row as read; of the attempt in doubt */
    int doubts;
    unsigned pages;
    uint64_t token_generation;
    struct provider_msg msg;
    struct provider_question question;
    struct policy policy;
    struct ask_view view;
    struct ask_decision decision;
    bool decided;
    struct plugin_answer answer;
};

/* From a row of ask_take. NULL: the provider is gone, or out of memory; the row comes up again. */
struct inquiry *inquiry_new(struct engine *e, const struct pg_result *r, size_t row);
void inquiry_begin(struct inquiry *q); /* may forget it at once: then the row comes up again */
void inquiry_forget(struct inquiry *q);

/* ask.c: the last answer of a round stores its results and begins the next. */
void ask_go_on(struct engine *e);

#endif
