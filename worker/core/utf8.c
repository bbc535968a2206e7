#include "worker/core/utf8.h"

#include <errno.h>

/* Bytes the lead byte announces; 0 for one that may not lead (C0, C1 and F5 up never occur). */
static size_t announced(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2)
        return 0;
    if (lead < 0xe0)
        return 2;
    if (lead < 0xf0)
        return 3;
    return lead < 0xf5 ? 4 : 0;
}

int utf8_next(const char *s, size_t len, size_t *io_at, uint32_t *ret_code)
{
    static const unsigned char lead_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const char *p = s + *io_at;
    size_t n = announced((unsigned char)*p);
    uint32_t code;

    if (n == 0 || n > len - *io_at)
        return -EILSEQ;
    code = (unsigned char)*p & lead_bits[n];
    for (size_t i = 1; i < n; i++) {
        unsigned char c = (unsigned char)p[i];

        if ((c & 0xc0) != 0x80)
            return -EILSEQ;
        code = code << 6 | (c & 0x3f);
    }
    if (code < smallest[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return -EILSEQ;
    *io_at += n;
    *ret_code = code;
    return 0;
}
