#include "worker/io/clock.h"

#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec t = {0, 0};

    clock_gettime(id, &t); /* fails for unknown clocks only */
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_boot_us(void)
{
    return read_us(CLOCK_BOOTTIME);
}

int64_t clock_boot_ms(void)
{
    return read_us(CLOCK_BOOTTIME) / 1000;
}

int64_t clock_real_ms(void)
{
    return read_us(CLOCK_REALTIME) / 1000;
}
