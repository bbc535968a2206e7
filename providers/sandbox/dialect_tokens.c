#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/sign.h"
#include "providers/sandbox/mix.h"
#include "providers/sandbox/world.h"

#define TOKEN_DEFAULT_S 3600
#define TOKENS_MAX      1024u /* the oldest goes when another is asked for */

struct token {
    char *text;
    int64_t until_ms;
};

struct sb_tokens {
    struct token v[TOKENS_MAX];
    uint64_t issued;
    int64_t expired_ms; /* when all were expired last; 0: never */
};

int sb_tokens_new(struct sb_tokens **ret_tokens)
{
    *ret_tokens = calloc(1, sizeof(struct sb_tokens));
    return *ret_tokens ? 0 : -ENOMEM;
}

struct sb_tokens *sb_tokens_free(struct sb_tokens *t)
{
    for (size_t i = 0; t && i < TOKENS_MAX; i++)
        free(t->v[i].text);
    free(t);
    return NULL;
}

void sb_tokens_expire(struct sb_tokens *t, int64_t now_ms)
{
    t->expired_ms = now_ms;
    for (size_t i = 0; i < TOKENS_MAX; i++)
        t->v[i].until_ms = 0;
}

static char *make_jwt(const struct sb_world *w, const json_t *claims, int64_t life_s, uint64_t no)
{
    json_t *all = json_copy((json_t *)(uintptr_t)claims);
    int64_t now_s = sb_now_ms(w) / 1000;
    char *text = NULL;

    if (all && json_object_set_new(all, "iat", json_integer(now_s)) == 0 &&
        json_object_set_new(all, "exp", json_integer(now_s + life_s)) == 0 &&
        json_object_set_new(all, "jti", json_sprintf("%llu", (unsigned long long)no)) == 0)
        text = sign_jwt_hs256(all, &w->sb->instance, sizeof(w->sb->instance));
    json_decref(all);
    return text;
}

static char *make_opaque(const struct sb_world *w, uint64_t no)
{
    struct sb_msg like = {.no = sb_mix(w->sb->instance ^ no)};
    char buf[SB_ID_SIZE];

    sb_id_hex(w, &like, 0, "", 32, buf);
    return strdup(buf);
}

const char *sb_token_issue(struct sb_call *c, const json_t *claims, int64_t *ret_lifetime_s)
{
    const struct sb_world *w = c->world;
    struct sb_tokens *t = w->tokens;
    int64_t life_s = (int64_t)w->sb->knobs.token_s;
    uint64_t no = t->issued;
    struct token *slot = &t->v[no % TOKENS_MAX];

    if (life_s == 0)
        life_s = w->d->token_s ? w->d->token_s : TOKEN_DEFAULT_S;
    char *text = claims ? make_jwt(w, claims, life_s, no) : make_opaque(w, no);
    if (!text)
        return NULL;
    t->issued++;
    free(slot->text);
    slot->text = text;
    slot->until_ms = sb_now_ms(w) + life_s * 1000;
    if (ret_lifetime_s)
        *ret_lifetime_s = life_s;
    return text;
}

bool sb_token_ok(const struct sb_world *w, const char *token)
{
    const struct sb_tokens *t = w->tokens;

    for (size_t i = 0; token && i < TOKENS_MAX && i < t->issued; i++)
        if (sign_equal_text(t->v[i].text, token))
            return sb_now_ms(w) < t->v[i].until_ms;
    return false;
}

bool sb_token_age_ok(const struct sb_world *w, int64_t iat_s)
{
    return iat_s >= w->tokens->expired_ms / 1000;
}
