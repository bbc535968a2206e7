/* The encodings of sign.h: RFC 4648. */
#include <stdlib.h>
#include <string.h>

#include "providers/kit/sign.h"

static const char standard[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char for_urls[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

char *sign_hex(const uint8_t *data, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    char *text = len < SIZE_MAX / 2 ? malloc(len * 2 + 1) : NULL;

    if (!text)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        text[2 * i] = digits[data[i] >> 4];
        text[2 * i + 1] = digits[data[i] & 15];
    }
    text[2 * len] = '\0';
    return text;
}

static char *encode(const uint8_t *data, size_t len, const char *alphabet, bool pad)
{
    char *text = len < SIZE_MAX / 2 ? malloc((len + 2) / 3 * 4 + 1) : NULL;
    char *to = text;

    if (!text)
        return NULL;
    for (size_t i = 0; i < len; i += 3) {
        size_t have = len - i < 3 ? len - i : 3;
        uint32_t bits = (uint32_t)data[i] << 16;

        bits |= have > 1 ? (uint32_t)data[i + 1] << 8 : 0;
        bits |= have > 2 ? data[i + 2] : 0;
        for (size_t k = 0; k < 4; k++)
            if (k <= have)
                *to++ = alphabet[bits >> (18 - 6 * k) & 63];
            else if (pad)
                *to++ = '=';
    }
    *to = '\0';
    return text;
}

char *sign_base64(const uint8_t *data, size_t len)
{
    return encode(data, len, standard, true);
}

char *sign_base64url(const uint8_t *data, size_t len)
{
    return encode(data, len, for_urls, false);
}

static int value_of(char c, const char *alphabet)
{
    const char *at = c ? strchr(alphabet, c) : NULL;

    return at ? (int)(at - alphabet) : -1;
}

/* `len` without padding. Bits left over must be zero, so that each value has one spelling. */
static uint8_t *decode(const char *text, size_t len, const char *alphabet, size_t *ret_len)
{
    uint8_t *data = len % 4 != 1 ? malloc(len / 4 * 3 + 4) : NULL;
    uint32_t bits = 0;
    size_t n = 0;
    int held = 0;

    if (!data)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        int v = value_of(text[i], alphabet);

        if (v < 0)
            goto bad;
        bits = (bits << 6 | (uint32_t)v) & 0xffff;
        held += 6;
        if (held >= 8) {
            held -= 8;
            data[n++] = (uint8_t)(bits >> held);
        }
    }
    if (bits & ((1u << held) - 1))
        goto bad;
    data[n] = 0;
    *ret_len = n;
    return data;
bad:
    free(data);
    return NULL;
}

uint8_t *sign_unbase64(const char *text, size_t len, size_t *ret_len)
{
    size_t pad = 0;

    if (len % 4 != 0)
        return NULL;
    while (pad < 2 && pad < len && text[len - 1 - pad] == '=')
        pad++;
    return decode(text, len - pad, standard, ret_len);
}

uint8_t *sign_unbase64url(const char *text, size_t len, size_t *ret_len)
{
    return decode(text, len, for_urls, ret_len);
}
