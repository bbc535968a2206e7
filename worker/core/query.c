#include "worker/core/query.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Writes the decoded bytes and a NUL to *io_out and moves it behind them. False: a NUL is inside.
 */
static bool decode(const char *text, size_t len, char **io_out)
{
    char *out = *io_out;
    bool whole = true;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        int high = c == '%' && len - i > 2 ? hex(text[i + 1]) : -1;
        int low = high >= 0 ? hex(text[i + 2]) : -1;

        if (low >= 0) {
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+') {
            c = ' ';
        }
        whole = whole && c != '\0';
        *out++ = c;
    }
    *out++ = '\0';
    *io_out = out;
    return whole;
}

static size_t count_pieces(const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += text[i] != '&' && (i == 0 || text[i - 1] == '&');
    return n;
}

static void add_piece(struct query *q, const char *piece, size_t len, char **io_out)
{
    const char *equals = memchr(piece, '=', len);
    size_t name_len = equals ? (size_t)(equals - piece) : len;
    size_t value_at = equals ? name_len + 1 : len;
    struct provider_param *param = &q->params[q->count];

    param->name = *io_out;
    bool whole = decode(piece, name_len, io_out);
    param->value = *io_out;
    whole = decode(piece + value_at, len - value_at, io_out) && whole;
    q->count += whole;
}

int query_split(const char *text, size_t len, struct query *ret)
{
    size_t pieces = count_pieces(text, len);
    char *out;

    *ret = (struct query){0};
    if (pieces == 0)
        return 0;
    if (pieces > QUERY_PARAMS_MAX)
        return -E2BIG;
    ret->params = calloc(pieces, sizeof(*ret->params));
    ret->text = malloc(len + 2 * pieces); /* decoding never grows; two NULs each */
    if (!ret->params || !ret->text) {
        query_done(ret);
        return -ENOMEM;
    }
    out = ret->text;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '&', len - at);
        size_t piece = end ? (size_t)(end - text) - at : len - at;

        if (piece > 0)
            add_piece(ret, text + at, piece, &out);
        at += piece + 1;
    }
    return 0;
}

const char *query_find(const struct query *query, const char *name)
{
    for (size_t i = 0; i < query->count; i++)
        if (strcmp(query->params[i].name, name) == 0)
            return query->params[i].value;
    return NULL;
}

void query_done(struct query *query)
{
    free(query->params);
    free(query->text);
    *query = (struct query){0};
}
