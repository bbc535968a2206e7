#include "worker/core/lease.h"

#include "worker/core/sat.h"

int64_t lease_end(int64_t t0_boot_ms, int64_t lease_ms)
{
    return sat_add(t0_boot_ms, lease_ms / 100 * 99 + lease_ms % 100 * 99 / 100);
}

bool lease_allows(int64_t boot_ms, int64_t call_ms, int64_t settle_ms, int64_t end_boot_ms)
{
    if (call_ms < 0 || settle_ms < 0 || boot_ms > end_boot_ms)
        return false;
    return sat_add(call_ms, settle_ms) <= sat_sub(end_boot_ms, boot_ms);
}

void sweep_guard_reset(struct sweep_guard *g)
{
    g->looked = false;
}

static enum sweep_verdict hold_off(struct sweep_guard *g, const struct sweep_look *look,
                                   enum sweep_verdict why)
{
    g->wait_until_ms = sat_add(look->boot_ms, look->lease_ms);
    return why;
}

static bool drifted(const struct sweep_guard *g, const struct sweep_look *look)
{
    int64_t apart = sat_sub(sat_sub(look->db_ms, g->db_ms), sat_sub(look->boot_ms, g->boot_ms));

    return apart > SWEEP_DRIFT_MS || apart < -SWEEP_DRIFT_MS;
}

static bool too_many(const struct sweep_look *look)
{
    return look->over_workers > 1 && look->over >= SWEEP_MANY_FLOOR &&
           (double)look->over > SWEEP_MANY_SHARE * (double)look->leases;
}

enum sweep_verdict sweep_guard_look(struct sweep_guard *g, const struct sweep_look *look)
{
    enum sweep_verdict verdict = SWEEP_GO;

    if (!g->looked)
        verdict = hold_off(g, look, SWEEP_WAIT_FRESH);
    else if (drifted(g, look))
        verdict = hold_off(g, look, SWEEP_WAIT_DRIFT);
    else if (look->boot_ms < g->wait_until_ms)
        verdict = SWEEP_WAIT;
    else if (too_many(look) && sat_add(g->wait_until_ms, look->lease_ms) < look->boot_ms)
        verdict = hold_off(g, look, SWEEP_WAIT_MANY); /* once: after the wait they are dead */
    g->looked = true;
    g->db_ms = look->db_ms;
    g->boot_ms = look->boot_ms;
    return verdict;
}
