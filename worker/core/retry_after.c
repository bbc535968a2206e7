#include "worker/core/retry_after.h"

#include <errno.h>
#include <string.h>

struct date {
    unsigned int year, month, day, hour, minute, second; /* month and day from 1 */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads exactly n digits. */
static bool read_number(const char *s, size_t n, unsigned int *ret)
{
    unsigned int value = 0;

    for (size_t i = 0; i < n; i++) {
        if (!is_digit(s[i]))
            return false;
        value = value * 10 + (unsigned int)(s[i] - '0');
    }
    *ret = value;
    return true;
}

/* Finds the three letters at s in `names`; returns their place from 1, or 0. */
static unsigned int name_index(const char *names, const char *s)
{
    for (unsigned int i = 0; names[(size_t)i * 3] != '\0'; i++) {
        if (memcmp(names + (size_t)i * 3, s, 3) == 0)
            return i + 1;
    }
    return 0;
}

static bool is_leap(unsigned int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static unsigned int days_in_month(unsigned int year, unsigned int month)
{
    static const unsigned char days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return days[month - 1] + (month == 2 && is_leap(year) ? 1u : 0u);
}

/* Proleptic Gregorian, without leap seconds, as POSIX counts. */
static int64_t epoch_of(const struct date *d)
{
    const int64_t days_to_1970 = 719162; /* from 1 January of year 1 */
    int64_t before = (int64_t)d->year - 1;
    /* year 0 has before = -1; its leap day must count and C division cuts towards 0 */
    int64_t leaps = before < 0 ? -1 : before / 4 - before / 100 + before / 400;
    int64_t days = before * 365 + leaps - days_to_1970 + (int64_t)d->day - 1;

    for (unsigned int m = 1; m < d->month; m++)
        days += days_in_month(d->year, m);
    return ((days * 24 + d->hour) * 60 + d->minute) * 60 + d->second;
}

/* A leap second (60) is legal in the grammar. */
static bool in_range(const struct date *d)
{
    return d->month >= 1 && d->day >= 1 && d->day <= days_in_month(d->year, d->month) &&
           d->hour <= 23 && d->minute <= 59 && d->second <= 60;
}

int http_date_parse(const char *value, size_t len, int64_t *ret_epoch_s)
{
    static const char form[] = "www, dd mmm yyyy HH:MM:SS GMT";
    struct date d = {0};

    if (len != sizeof(form) - 1)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        if (strchr(", :GT", form[i]) && value[i] != form[i])
            return -EINVAL;
    }
    if (value[27] != 'M' || !name_index("MonTueWedThuFriSatSun", value) ||
        !read_number(value + 5, 2, &d.day) || !read_number(value + 12, 4, &d.year) ||
        !read_number(value + 17, 2, &d.hour) || !read_number(value + 20, 2, &d.minute) ||
        !read_number(value + 23, 2, &d.second))
        return -EINVAL;
    d.month = name_index("JanFebMarAprMayJunJulAugSepOctNovDec", value + 8);
    if (!in_range(&d))
        return -EINVAL;
    *ret_epoch_s = epoch_of(&d);
    return 0;
}

/* Digits with an optional minus; false when it is anything else or too big. */
static bool read_seconds(const char *s, size_t len, int64_t *ret)
{
    bool negative = len > 0 && s[0] == '-';
    int64_t value = 0;

    if (len == (negative ? 1u : 0u))
        return false;
    for (size_t i = negative ? 1 : 0; i < len; i++) {
        if (!is_digit(s[i]) || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, s[i] - '0', &value))
            return false;
    }
    *ret = negative ? 0 : value;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

bool retry_after_parse(const char *value, size_t len, int64_t now_s, int64_t cap_ms,
                       int64_t *ret_ms)
{
    int64_t cap = cap_ms < 0 ? 0 : cap_ms;
    int64_t seconds, then, ms;

    while (len > 0 && is_blank(value[0])) {
        value++;
        len--;
    }
    while (len > 0 && is_blank(value[len - 1]))
        len--;
    if (!read_seconds(value, len, &seconds)) {
        if (http_date_parse(value, len, &then) < 0)
            return false;
        if (__builtin_sub_overflow(then, now_s, &seconds))
            seconds = now_s < 0 ? INT64_MAX : 0;
    }
    if (seconds < 0)
        seconds = 0;
    if (__builtin_mul_overflow(seconds, 1000, &ms) || ms > cap)
        ms = cap;
    *ret_ms = ms;
    return true;
}
