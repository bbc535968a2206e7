/* token.c - claim tokens, taken from their sequence ahead of need (R3): a worker must know its
 * token even when the claim's answer is lost (R11). Used in the order they were drawn. */
#include <string.h>

#include "worker/engine/internal.h"
#include "worker/engine/queries.h"

enum { TOKENS_STOCK = 100, TOKENS_LOW = 40 };

static void on_tokens(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct engine *e = arg;

    e->tokens_asked = false;
    if (end != PG_COMMITTED)
        return;
    for (size_t i = 0; i < pg_rows(r); i++) {
        if (list_push(&e->tokens, &e->tokens_n, &e->tokens_cap, pg_i64(r, i, 0)) < 0)
            break;
    }
    engine_wake(e);
}

void claim_tokens(struct engine *e)
{
    struct pg_params *p;

    if (e->tokens_asked || e->tokens_n > TOKENS_LOW || !e->doors[DOOR_HOUSE].checked)
        return;
    p = pg_params_new();
    pg_add_i64(p, TOKENS_STOCK);
    e->tokens_asked = pg_exec(e->doors[DOOR_HOUSE].pg, QUERY_TOKENS, p, on_tokens, e) == 0;
}

void token_used(struct engine *e)
{
    e->tokens_n--;
    memmove(e->tokens, e->tokens + 1, e->tokens_n * sizeof(*e->tokens));
}

void token_back(struct engine *e, int64_t token)
{
    if (list_push(&e->tokens, &e->tokens_n, &e->tokens_cap, token) == 0) {
        memmove(e->tokens + 1, e->tokens, (e->tokens_n - 1) * sizeof(*e->tokens));
        e->tokens[0] = token;
    }
}
