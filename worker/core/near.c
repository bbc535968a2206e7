#include "worker/core/near.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

enum { WORD_MAX = 64 };

static unsigned min2(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Three rows suffice: a swap looks two rows back. */
static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    unsigned rows[3][WORD_MAX];
    unsigned *before = rows[0], *last = rows[1], *now = rows[2];

    for (size_t j = 0; j <= b_len; j++)
        last[j] = (unsigned)j;
    for (size_t i = 1; i <= a_len; i++) {
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned d = last[j - 1] + (a[i - 1] != b[j - 1]);

            d = min2(d, min2(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = min2(d, before[j - 2] + 1);
            now[j] = d;
        }
        unsigned *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[b_len];
}

void near_init(struct near *near, const char *word)
{
    near->word = word;
    near->best = NULL;
    near->distance = UINT_MAX;
}

void near_try(struct near *near, const char *known)
{
    size_t word_len = strlen(near->word), known_len = strlen(known);

    if (word_len >= WORD_MAX || known_len >= WORD_MAX)
        return;
    unsigned d = distance(near->word, word_len, known, known_len);
    if (d < near->distance) {
        near->distance = d;
        near->best = known;
    }
}

const char *near_best(const struct near *near)
{
    return near->best && near->distance <= 3 && near->distance * 3 <= strlen(near->word) + 1
               ? near->best
               : NULL;
}
