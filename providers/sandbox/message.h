/* message.h - a vendor request's body, read.
 *
 * JSON {"to","text","key","lane","t"} or the same fields form-encoded; `key`, `lane` and `t`
 * may lack, other fields are ignored. Pure but for libraries. */
#ifndef POSTRIDER_SANDBOX_MESSAGE_H
#define POSTRIDER_SANDBOX_MESSAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct sb_message {
    const char *to, *text, *key, *lane; /* NULL where the body lacks them */
    double t_ms;                        /* producer's time, epoch ms; 0 = not given */
    json_t *root;                       /* owns the strings above */
};

/* 0 or -EINVAL (unreadable body; *ret_message is then empty but may still be passed to done).
 * Strings live until sb_message_done. */
int sb_message_parse(const char *body, size_t len, const char *content_type,
                     struct sb_message *ret_message);
void sb_message_done(struct sb_message *m);

#endif
