/* messagebird.h - two vendors behind one name: MessageBird's REST API of old ("rest") and Bird's
 * platform API of 2026 ("bird"). They share settings and the border; requests, codes and
 * signatures have nothing in common. Internal to this folder. */
#ifndef POSTRIDER_MESSAGEBIRD_H
#define POSTRIDER_MESSAGEBIRD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "providers/provider.h"

enum mb_api { MB_REST, MB_BIRD };

struct mb_self {
    const struct provider_host *host;
    enum mb_api api;
    char *url;
    char *authorization; /* the whole header */
    char *from;
    char **secrets; /* signing keys, or webhook secrets with their prefix; NULL: unsigned */
    /* rest */
    size_t datacoding;
    int64_t ask_delay_ms;
    bool absence_proves; /* "not in the list" is believed */
    /* bird */
    size_t category; /* 0: by kind */
    bool hold_country;
    json_t *events; /* event type -> word of a status; NULL: ours only */
};

/* Posts JSON to url + path, with the key as Idempotency-Key when not NULL. `take` as in
 * request_post_json. */
int mb_post_json(const struct mb_self *self, struct provider_req *req, const char *path,
                 const char *key, json_t *take);

/* rest.c */
int mb_rest_build(const struct mb_self *self, const struct provider_msg *msg,
                  struct provider_req *req);
int mb_rest_judge(const struct mb_self *self, const struct provider_reply *reply,
                  struct provider_verdict *v);
int mb_rest_ask(const struct mb_self *self, const struct provider_question *q,
                struct provider_req *req);
int mb_rest_ask_judge(const struct mb_self *self, const struct provider_question *q,
                      const struct provider_reply *reply, struct provider_answer *a);
int mb_rest_receipt(const struct mb_self *self, const struct provider_callback *cb,
                    struct provider_events *out);

/* bird.c */
int mb_bird_build(const struct mb_self *self, const struct provider_msg *msg,
                  struct provider_req *req);
int mb_bird_judge(const struct mb_self *self, const struct provider_reply *reply,
                  struct provider_verdict *v);
int mb_bird_receipt(const struct mb_self *self, const struct provider_callback *cb,
                    struct provider_events *out);
/* Whether "whsec_..." holds base64; whether a word names a status ("delivered"). */
bool mb_bird_secret_ok(const char *secret);
bool mb_status_word(const char *word, uint32_t *ret_status);

#endif
