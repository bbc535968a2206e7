/* eskiz.h - Eskiz.uz, Uzbekistan. Internal to this folder; see README.md.
 *
 * A message goes out as a batch of one: only the batch call carries an id of ours (user_sms_id),
 * which the vendor's message list and its receipts show again. */
#ifndef POSTRIDER_ESKIZ_H
#define POSTRIDER_ESKIZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/kit/form.h"
#include "providers/provider.h"

enum { EZ_UTC_OFFSET_MIN = 300 }; /* the vendor writes Tashkent time */

struct ez_self {
    const struct provider_host *host;
    char *url, *email, *password, *from;
    bool by_dispatch;    /* look up by dispatch_id instead of by time */
    bool absence_proves; /* "not in the list" is believed */
    bool reject_text;    /* a text without an approved template fails the message, not the queue */
    int64_t ask_delay_ms;
    int64_t page_size; /* rows of the list in one answer */
};

/* A number of ours for one message, from its id: positive, 31 bits. Two messages may share one:
 * the list is filtered by user_sms_id all the same. */
int64_t ez_dispatch_id(const char *message_id);

int ez_judge(const void *self, const struct provider_reply *reply, struct provider_verdict *v);
int ez_ask(const void *self, const struct provider_question *q, struct provider_req *req);
int ez_ask_judge(const void *self, const struct provider_question *q,
                 const struct provider_reply *reply, struct provider_answer *answer);
int ez_receipt(const void *self, const struct provider_callback *cb, struct provider_events *out);

/* What an error's words are about. */
enum ez_topic { EZ_TOPIC_OTHER = 0, EZ_TOPIC_SETUP, EZ_TOPIC_TEXT, EZ_TOPIC_NUMBER };

/* The vendor has words, not codes, in Russian, Uzbek or English. -ENOMEM or an enum ez_topic. */
int ez_topic(const char *words);

#define EZ_FORM "application/x-www-form-urlencoded"

/* A POST; `path` begins with a slash, `token` may be NULL. */
int ez_post(const struct ez_self *self, struct provider_req *req, const char *path,
            const char *token, const char *type, const struct form *body);

#endif
