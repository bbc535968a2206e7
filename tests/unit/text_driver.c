/* Answers for other programs what the core thinks of a text: lines in, lines out.
 *
 *     t HEX   ->  ALPHABET UNITS SEGMENTS CULPRIT AT   (code point in hex, 0 = none)   | invalid
 *     p HEX   ->  E.164                                                               | -
 *
 * HEX is the text's bytes, so that line ends and broken UTF-8 pass through. */
#include "worker/core/phone.h"
#include "worker/core/text.h"

#include <stdio.h>
#include <stdlib.h>

static int nibble(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes in place; the bytes need half the room of their digits. Returns their number. */
static size_t unhex(char *s)
{
    size_t n = 0;

    while (nibble(s[2 * n]) >= 0 && nibble(s[2 * n + 1]) >= 0) {
        s[n] = (char)(nibble(s[2 * n]) << 4 | nibble(s[2 * n + 1]));
        n++;
    }
    return n;
}

static void answer(char kind, const char *text, size_t len)
{
    struct text_measure m;
    struct phone p;

    if (kind == 'p')
        (void)puts(phone_normalize(text, len, &p) == PHONE_OK ? p.e164 : "-");
    else if (text_measure(text, len, &m) < 0)
        (void)puts("invalid");
    else
        (void)printf("%s %zu %zu %x %zu\n", text_alphabet_name(m.alphabet), m.units, m.segments,
                     (unsigned int)m.culprit.code, m.culprit.at);
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t len;

    while ((len = getline(&line, &room, stdin)) >= 2)
        answer(line[0], line + 2, unhex(line + 2));
    free(line);
    return 0;
}
