#include "providers/kit/when.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DAY_S = 86400 };

/* ---- calendar ------------------------------------------------------------------------------- */

struct civil {
    int64_t year;
    int month, day, hour, minute, second;
};

/* Days since 1970-01-01. Years are counted from March, so that a leap day ends one and the months
 * before it have lengths of 153 days in five (the Gregorian calendar; checked by the tests against
 * another implementation). */
static int64_t days_of(int64_t year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t of_era = y - era * 400;
    int64_t of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static void civil_date(int64_t days, struct civil *c)
{
    int64_t shifted = days + 719468;
    int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    int64_t of_era = shifted - era * 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * of_year + 2) / 153;

    c->day = (int)(of_year - (153 * month + 2) / 5 + 1);
    c->month = (int)(month < 10 ? month + 3 : month - 9);
    c->year = year + era * 400 + (c->month <= 2);
}

/* Kept within the years 1970 to 9999: what vendors write has four digits. */
static struct civil civil_of(int64_t unix_ms, int offset_min)
{
    const int64_t last = INT64_C(253402300799);
    int64_t s = (unix_ms > 0 ? unix_ms / 1000 : 0) + (int64_t)offset_min * 60;
    struct civil c;

    s = s < 0 ? 0 : s > last ? last : s;
    civil_date(s / DAY_S, &c);
    c.hour = (int)(s % DAY_S / 3600);
    c.minute = (int)(s % 3600 / 60);
    c.second = (int)(s % 60);
    return c;
}

/* The remainders only tell the compiler how wide each number can be. */
static const char *write_time(int64_t unix_ms, int offset_min, char separator, const char *end,
                              char buf[WHEN_SIZE])
{
    struct civil c = civil_of(unix_ms, offset_min);

    (void)snprintf(buf, WHEN_SIZE, "%04u-%02u-%02u%c%02u:%02u:%02u%s", (unsigned)c.year % 10000u,
                   (unsigned)c.month % 100u, (unsigned)c.day % 100u, separator,
                   (unsigned)c.hour % 100u, (unsigned)c.minute % 100u, (unsigned)c.second % 100u,
                   end);
    return buf;
}

const char *when_rfc3339(int64_t unix_ms, char buf[WHEN_SIZE])
{
    return write_time(unix_ms, 0, 'T', "Z", buf);
}

const char *when_local(int64_t unix_ms, int offset_min, char buf[WHEN_SIZE])
{
    return write_time(unix_ms, offset_min, ' ', "", buf);
}

const char *when_date(int64_t unix_ms, int offset_min, char buf[WHEN_SIZE])
{
    write_time(unix_ms, offset_min, ' ', "", buf);
    buf[10] = '\0';
    return buf;
}

/* ---- parsing: each step moves *p, or says no ------------------------------------------------ */

static bool eat(const char **p, char c)
{
    if (**p != c)
        return false;
    ++*p;
    return true;
}

static bool number(const char **p, int min_digits, int max_digits, int *ret)
{
    int n = 0, value = 0;

    for (; n < max_digits && **p >= '0' && **p <= '9'; n++, ++*p)
        value = value * 10 + (**p - '0');
    *ret = value;
    return n >= min_digits;
}

/* "HH:MM[:SS[.fraction]]" */
static bool clock_time(const char **p, struct civil *c, int *ret_ms)
{
    int scale = 100;

    *ret_ms = 0;
    c->second = 0;
    if (!number(p, 2, 2, &c->hour) || !eat(p, ':') || !number(p, 2, 2, &c->minute))
        return false;
    if (!eat(p, ':'))
        return true;
    if (!number(p, 2, 2, &c->second))
        return false;
    if (!eat(p, '.'))
        return true;
    if (**p < '0' || **p > '9')
        return false;
    for (; **p >= '0' && **p <= '9'; ++*p, scale /= 10)
        *ret_ms += (**p - '0') * scale;
    return true;
}

static bool zone_by_name(const char **p, int *offset_min)
{
    static const char *const names[] = {"GMT", "UTC", "UT", "Z"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t len = strlen(names[i]);

        if (strncasecmp(*p, names[i], len) == 0) {
            *p += len;
            *offset_min = 0;
            return true;
        }
    }
    return false;
}

/* Nothing (offset stays), a name, "+05:00", "+0500" or "+05". */
static bool zone(const char **p, int *offset_min)
{
    int hours = 0, minutes = 0, sign;

    (void)eat(p, ' ');
    if (!**p || zone_by_name(p, offset_min))
        return true;
    if (**p != '+' && **p != '-')
        return false;
    sign = *(*p)++ == '-' ? -1 : 1;
    if (!number(p, 2, 2, &hours))
        return false;
    if (**p && ((void)eat(p, ':'), !number(p, 2, 2, &minutes)))
        return false;
    *offset_min = sign * (hours * 60 + minutes);
    return hours < 24 && minutes < 60;
}

static bool month_name(const char **p, int *ret)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

    for (int m = 0; m < 12; m++)
        if (strncasecmp(*p, names + (ptrdiff_t)m * 3, 3) == 0) {
            *p += 3;
            *ret = m + 1;
            return true;
        }
    return false;
}

/* "2026-11-30T", or a blank for the T. */
static bool iso_date(const char **p, struct civil *c)
{
    int year = 0;

    if (!number(p, 4, 4, &year) || !eat(p, '-') || !number(p, 2, 2, &c->month) || !eat(p, '-') ||
        !number(p, 2, 2, &c->day))
        return false;
    c->year = year;
    return eat(p, 'T') || eat(p, 't') || eat(p, ' ');
}

/* "Mon, 30 Nov 2026 " */
static bool mail_date(const char **p, struct civil *c)
{
    const char *comma = strchr(*p, ',');
    int year = 0;

    if (comma && comma - *p == 3) {
        *p = comma + 1;
        (void)eat(p, ' ');
    }
    if (!number(p, 1, 2, &c->day) || !eat(p, ' ') || !month_name(p, &c->month) || !eat(p, ' ') ||
        !number(p, 4, 4, &year))
        return false;
    c->year = year;
    return eat(p, ' ');
}

static bool sound(const struct civil *c)
{
    int64_t next;

    if (c->year < 1970 || c->month < 1 || c->month > 12 || c->day < 1)
        return false;
    next = c->month == 12 ? days_of(c->year + 1, 1, 1) : days_of(c->year, c->month + 1, 1);
    return days_of(c->year, c->month, c->day) < next && c->hour < 24 && c->minute < 60 &&
           c->second <= 60; /* a leap second runs into the next minute */
}

bool when_parse(const char *text, int offset_min, int64_t *ret_unix_ms)
{
    const char *p = text;
    struct civil c = {0};
    int ms = 0;

    if (!text)
        return false;
    if (!iso_date(&p, &c)) {
        p = text;
        if (!mail_date(&p, &c))
            return false;
    }
    if (!clock_time(&p, &c, &ms) || !zone(&p, &offset_min) || *p || !sound(&c))
        return false;
    *ret_unix_ms = ((days_of(c.year, c.month, c.day) * DAY_S + c.hour * 3600 + c.minute * 60 +
                     c.second - (int64_t)offset_min * 60) *
                    1000) +
                   ms;
    return true;
}

int64_t when_validity(int64_t validity_ms, int64_t unit_ms, int64_t min, int64_t max)
{
    int64_t units = validity_ms / unit_ms;

    return units < min ? min : units > max ? max : units;
}
