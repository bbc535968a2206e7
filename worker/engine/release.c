/* release.c - claims whose COMMIT answer was lost (R11): given back by token, unsent. */
#include <stdlib.h>

#include "worker/engine/internal.h"
#include "worker/engine/queries.h"
#include "worker/io/failpoint.h"
#include "worker/io/log.h"

struct releasing {
    struct engine *e;
    int64_t token;
};

void claim_lost(struct engine *e, int64_t token)
{
    if (list_push(&e->lost_tokens, &e->lost_n, &e->lost_cap, token) < 0)
        log_event(LOG_LEVEL_ERROR, "release_forgotten", "token=%lld why=memory",
                  (long long)token); /* its lease ends by itself */
}

static void on_released(void *arg, enum pg_end end, const struct pg_result *r)
{
    struct releasing *rel = arg;

    if (end == PG_COMMITTED) {
        rel->e->report.given_back += (uint64_t)pg_i64(r, 0, 0);
        log_event(LOG_LEVEL_INFO, "claim_released", "token=%lld n=%lld", (long long)rel->token,
                  (long long)pg_i64(r, 0, 0));
    } else {
        claim_lost(rel->e, rel->token);
    }
    free(rel);
}

void claim_release_lost(struct engine *e)
{
    struct pg *pg = e->doors[DOOR_HOUSE].pg;

    while (e->lost_n > 0 && e->doors[DOOR_HOUSE].checked && pg_pending(pg) < 8) {
        struct releasing *rel = calloc(1, sizeof(*rel));
        struct pg_params *p = pg_params_new();

        if (!rel) {
            pg_params_free(p);
            return;
        }
        *rel = (struct releasing){e, e->lost_tokens[--e->lost_n]};
        pg_add_i64(p, rel->token);
        pg_add_i64(p, engine_lease_ms(e));
        if (pg_exec(pg, QUERY_RELEASE, p, on_released, rel) < 0) {
            claim_lost(e, rel->token);
            free(rel);
            return;
        }
        failpoint("release_sent");
    }
}
