#include "providers/sandbox/meter.h"

#include <string.h>

uint64_t sb_meter_rate(struct sb_meter *m, int64_t now_ms)
{
    if (now_ms - m->now_ms >= SB_METER_MS) {
        memset(m->slot, 0, sizeof(m->slot));
        m->sum = 0;
        m->now_ms = now_ms;
    }
    while (m->now_ms < now_ms) {
        m->now_ms++;
        uint32_t *old = &m->slot[m->now_ms % SB_METER_MS];
        m->sum -= *old;
        *old = 0;
    }
    return m->sum;
}

void sb_meter_add(struct sb_meter *m, int64_t now_ms)
{
    sb_meter_rate(m, now_ms);
    m->slot[m->now_ms % SB_METER_MS]++;
    m->sum++;
    if (m->sum > m->peak)
        m->peak = m->sum;
}
