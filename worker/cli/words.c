#include "worker/cli/words.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/clean.h"

struct name {
    const char *stored, *shown;
};

static const struct name states[] = {
    {"pending", "waiting"},
    {"sending", "being handed over"},
    {"unknown", "outcome unknown (may have been sent)"},
    {"sent", "handed to vendor"},
    {"failed", "failed (no vendor took it)"},
    {"expired", "expired (no vendor took it in time)"},
    {"canceled", "canceled"},
    {"suppressed", "suppressed (the recipient opted out)"},
    {NULL, NULL},
};

static const struct name outcomes[] = {
    {"accepted", "the vendor took it"},
    {"rejected", "the vendor will never take it"},
    {"throttled", "the vendor asked to slow down; not taken"},
    {"held", "the vendor's account or set-up is unusable; not taken"},
    {"unreached", "the vendor was not reached; nothing left"},
    {"refused", "the vendor said try later; not taken"},
    {"unknown", "outcome unknown: it may have been taken"},
    {NULL, NULL},
};

static const struct name phases[] = {
    {"queue", "waited for a connection"},
    {"connect", "connecting"},
    {"tls", "TLS handshake"},
    {"gate", "connected, nothing left"},
    {"sent", "request left"},
    {"reply", "answer began"},
    {"complete", "answer complete"},
    {"lost", "its worker was lost"},
    {NULL, NULL},
};

static const char *find(const struct name *names, const char *stored)
{
    for (; names->stored; names++) {
        if (strcmp(names->stored, stored) == 0)
            return names->shown;
    }
    return stored;
}

const char *words_state(const char *state)
{
    return find(states, state);
}

const char *words_outcome(const char *outcome)
{
    return find(outcomes, outcome);
}

const char *words_phase(const char *phase)
{
    return find(phases, phase);
}

static struct words in_units(int64_t s)
{
    static const struct {
        int64_t seconds, part;
        const char *unit, *part_unit;
    } units[] = {{86400, 3600, "d", "h"}, {3600, 60, "h", "min"}, {60, 1, "min", "s"}};
    struct words w = {""};
    size_t i = 0;

    while (i < 2 && s < units[i].seconds)
        i++;
    int64_t whole = s / units[i].seconds, rest = s % units[i].seconds / units[i].part;

    if (rest == 0)
        snprintf(w.text, sizeof(w.text), "%" PRId64 " %s", whole, units[i].unit);
    else
        snprintf(w.text, sizeof(w.text), "%" PRId64 " %s %" PRId64 " %s", whole, units[i].unit,
                 rest, units[i].part_unit);
    return w;
}

struct words words_duration(int64_t ms)
{
    struct words w = {""};

    if (ms < 1000)
        snprintf(w.text, sizeof(w.text), "%" PRId64 " ms", ms);
    else if (ms >= 60000)
        return in_units(ms / 1000);
    else if (ms % 1000 < 100)
        snprintf(w.text, sizeof(w.text), "%" PRId64 " s", ms / 1000);
    else
        snprintf(w.text, sizeof(w.text), "%" PRId64 ".%" PRId64 " s", ms / 1000, ms % 1000 / 100);
    return w;
}

struct words words_number(int64_t value)
{
    struct words digits, w;
    int n = snprintf(digits.text, sizeof(digits.text), "%" PRId64, value);
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0 && digits.text[i - 1] != '-')
            w.text[at++] = ',';
        w.text[at++] = digits.text[i];
    }
    w.text[at] = '\0';
    return w;
}

char *words_clean(const char *text)
{
    size_t len = strlen(text);
    size_t size = len * 6 + 8; /* one control becomes six characters */
    char *out = malloc(size);

    if (out)
        clean_text(out, size, text, len, 0);
    return out;
}

bool words_is_uuid(const char *text)
{
    if (strlen(text) != 36)
        return false;
    for (int i = 0; i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;

        if (dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
            return false;
    }
    return true;
}
