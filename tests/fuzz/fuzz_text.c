/* Any bytes: the measure agrees with its parts, its culprits and PostgreSQL's idea of UTF-8; what
 * is cleaned is clean. */
#include "worker/core/clean.h"
#include "worker/core/text.h"
#include "worker/core/utf8.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MUST(truth) ((truth) ? (void)0 : abort())

static void check_parts(const char *text, size_t len, const struct text_measure *m)
{
    size_t room = m->alphabet == TEXT_GSM7 ? 153 : 67, single = m->alphabet == TEXT_GSM7 ? 160 : 70;
    struct text_part part = {0};
    size_t parts = 0, units = 0, end = 0, last = 0;

    while (text_part_next(text, len, m, &part)) {
        MUST(part.offset == end && part.bytes > 0);
        MUST(part.units <= (m->segments > 1 ? room : single));
        MUST(parts == 0 || last >= room - 1); /* only a pair may leave a unit unused */
        end = part.offset + part.bytes;
        last = part.units;
        units += part.units;
        parts++;
    }
    MUST(end == len && parts == m->segments && units == m->units);
}

static void check_culprits(const char *text, size_t len, const struct text_measure *m)
{
    struct text_culprits it = TEXT_CULPRITS_OF(text, len);
    struct text_culprit c = {0};
    size_t count = 0, before = 0;

    while (text_culprits_next(&it, &c)) {
        MUST(text_septets(c.code) == 0);
        MUST(count > 0 ? c.at > before : c.at == m->culprit.at && c.code == m->culprit.code);
        before = c.at;
        count++;
    }
    MUST((count > 0) == (m->alphabet == TEXT_UCS2));
    MUST(count <= m->characters && it.at == m->characters);
}

static void check_measure(const char *text, size_t len)
{
    struct text_measure m;

    if (text_measure(text, len, &m) < 0)
        return;
    MUST(memchr(text, '\0', len) == NULL);
    MUST((m.segments == 0) == (len == 0));
    MUST(m.characters <= len && m.units >= m.characters && m.units <= 2 * m.characters);
    /* the bounds sql/002_text.sql answers short texts by */
    MUST(len > 70 || m.segments <= 1);
    MUST(m.segments <= (len + 65) / 66);
    check_parts(text, len, &m);
    check_culprits(text, len, &m);
}

static void check_clean(const char *text, size_t len, size_t size, unsigned int flags)
{
    char *once = malloc(size), *twice = malloc(size);
    uint32_t code;

    MUST(once && twice);
    size_t n = clean_text(once, size, text, len, flags);

    MUST(n < size && once[n] == '\0');
    for (size_t at = 0; at < n;) {
        MUST(utf8_next(once, n, &at, &code) == 0);
        MUST(code >= 0x20 && !(code >= 0x7f && code < 0xa0));
    }
    MUST(clean_text(twice, size, once, n, flags) == n && memcmp(once, twice, n) == 0);
    free(once);
    free(twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;

    check_measure(text, size);
    if (size > 0)
        check_clean(text + 1, size - 1, (size_t)data[0] + 1, size % 2 ? CLEAN_MASK_DIGITS : 0);
    return 0;
}
