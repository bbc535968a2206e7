/* Any bytes as Retry-After: the wait is within the cap, a function of its input, falls as time
 * goes by, and a date is what libc's calendar says it is. */
#include "worker/core/retry_after.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(truth) ((truth) ? (void)0 : abort())

static void check_date(const char *value, size_t len)
{
    int64_t epoch_s = 0;
    struct tm tm;

    if (http_date_parse(value, len, &epoch_s) < 0)
        return;
    time_t t = (time_t)epoch_s;

    MUST(len == 29 && gmtime_r(&t, &tm) != NULL);
    MUST(epoch_s >= -62167219200 && epoch_s <= 253402300800);
    if (memcmp(value + 23, "60", 2) == 0)
        return; /* a leap second reads as the next one */
    MUST(tm.tm_mday == (value[5] - '0') * 10 + value[6] - '0');
    MUST(tm.tm_hour == (value[17] - '0') * 10 + value[18] - '0');
    MUST(tm.tm_sec == (value[23] - '0') * 10 + value[24] - '0');
    MUST((tm.tm_year + 1900) % 100 == (value[14] - '0') * 10 + value[15] - '0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t now_s, cap_ms, wait = -1, again = -1, later = -1;

    if (size < sizeof(now_s) + sizeof(cap_ms))
        return 0;
    memcpy(&now_s, data, sizeof(now_s));
    memcpy(&cap_ms, data + sizeof(now_s), sizeof(cap_ms));
    const char *value = (const char *)data + sizeof(now_s) + sizeof(cap_ms);
    size_t len = size - sizeof(now_s) - sizeof(cap_ms);

    check_date(value, len);
    if (!retry_after_parse(value, len, now_s, cap_ms, &wait)) {
        MUST(wait == -1);
        return 0;
    }
    MUST(wait >= 0 && wait <= (cap_ms < 0 ? 0 : cap_ms));
    MUST(retry_after_parse(value, len, now_s, cap_ms, &again) && again == wait);
    if (now_s < INT64_MAX)
        MUST(retry_after_parse(value, len, now_s + 1, cap_ms, &later) && later <= wait);
    return 0;
}
