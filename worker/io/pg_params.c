#include "worker/io/pg_internal.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Object ids of pg_type.dat: fixed for ever. */
enum {
    OID_BYTEA = 17,
    OID_BYTEA_ARRAY = 1001,
    OID_UUID = 2950,
    OID_UUID_ARRAY = 2951,
    OID_INT4 = 23,
    OID_INT4_ARRAY = 1007,
    OID_INT8 = 20,
    OID_INT8_ARRAY = 1016,
    OID_TEXT = 25,
    OID_TEXT_ARRAY = 1009,
};

enum {
    UUID_CHARS = 36,
    UUID_BYTES = 16,
    ARRAY_HEAD = 20,         /* ndim, has-null, element type, then length and lower bound */
    ARRAY_HEAD_EMPTY = 12,   /* no dimension, so no length and bound */
    VALUE_MAX = 0x3fffffff,  /* PostgreSQL's MaxAllocSize */
    ELEMENTS_MAX = 0x7ffffff /* its MaxArraySize */
};

/* Stands for every object that could not be allocated, so that no caller has to ask. */
static struct pg_params no_memory = {.error = -ENOMEM, .borrowed = true};

struct pg_params *pg_params_new(void)
{
    struct pg_params *p = calloc(1, sizeof(*p));

    return p ? p : &no_memory;
}

void pg_params_free(struct pg_params *p)
{
    if (!p || p->borrowed)
        return;
    for (int i = 0; i < p->count; i++)
        free(p->values[i]);
    free(p);
}

static void fail(struct pg_params *p, int error)
{
    if (!p->error)
        p->error = error;
}

/* Takes `value`, which is NULL for SQL null only when `is_null`. */
static void add_take(struct pg_params *p, Oid type, char *value, bool is_null, int length,
                     int format)
{
    if (!value && !is_null)
        fail(p, -ENOMEM);
    else if (p->count == PG_PARAMS_MAX)
        fail(p, -E2BIG);
    if (p->error) {
        free(value);
        return;
    }
    p->types[p->count] = type;
    p->values[p->count] = value;
    p->lengths[p->count] = length;
    p->formats[p->count] = format;
    p->count++;
}

void pg_add_text(struct pg_params *p, const char *text)
{
    if (p->error)
        return;
    if (text && strnlen(text, VALUE_MAX) == VALUE_MAX) {
        fail(p, -E2BIG);
        return;
    }
    add_take(p, 0, text ? strdup(text) : NULL, !text, 0, 0);
}

void pg_add_i64(struct pg_params *p, int64_t value)
{
    char *text = NULL;

    if (p->error)
        return;
    if (asprintf(&text, "%lld", (long long)value) < 0)
        text = NULL;
    add_take(p, 0, text, false, 0, 0);
}

void pg_add_bool(struct pg_params *p, bool value)
{
    pg_add_text(p, value ? "t" : "f");
}

static char *put32(char *at, uint32_t value)
{
    uint32_t big = htobe32(value);

    memcpy(at, &big, sizeof(big));
    return at + sizeof(big);
}

static char *put64(char *at, uint64_t value)
{
    uint64_t big = htobe64(value);

    memcpy(at, &big, sizeof(big));
    return at + sizeof(big);
}

struct array {
    Oid type;
    Oid element;
    size_t count;
    size_t bytes; /* of all elements, each with its length word */
    bool has_null;
};

/* Adds an array's place and writes its head (array_recv in PostgreSQL's arrayfuncs.c reads it).
 * Returns where the elements go, or NULL when there is nothing to write. */
static char *add_array(struct pg_params *p, const struct array *a)
{
    size_t size = (a->count ? ARRAY_HEAD : ARRAY_HEAD_EMPTY) + a->bytes;

    if (p->error)
        return NULL;
    if (a->count > ELEMENTS_MAX || size > VALUE_MAX) {
        fail(p, -E2BIG);
        return NULL;
    }
    char *value = malloc(size);
    add_take(p, a->type, value, false, (int)size, 1);
    if (p->error)
        return NULL;
    char *at = put32(value, a->count ? 1 : 0);
    at = put32(at, a->has_null);
    at = put32(at, a->element);
    if (!a->count)
        return NULL;
    at = put32(at, (uint32_t)a->count);
    return put32(at, 1);
}

void pg_add_i64_array(struct pg_params *p, const int64_t *values, size_t n)
{
    struct array a = {OID_INT8_ARRAY, OID_INT8, n, n * 12, false};
    char *at = add_array(p, &a);

    for (size_t i = 0; at && i < n; i++)
        at = put64(put32(at, 8), (uint64_t)values[i]);
}

void pg_add_i32_array(struct pg_params *p, const int32_t *values, size_t n)
{
    struct array a = {OID_INT4_ARRAY, OID_INT4, n, n * 8, false};
    char *at = add_array(p, &a);

    for (size_t i = 0; at && i < n; i++)
        at = put32(put32(at, 4), (uint32_t)values[i]);
}

void pg_add_text_array(struct pg_params *p, const char *const *values, size_t n)
{
    struct array a = {OID_TEXT_ARRAY, OID_TEXT, n, n * 4, false};

    for (size_t i = 0; i < n; i++) {
        a.has_null |= !values[i];
        a.bytes += values[i] ? strlen(values[i]) : 0;
    }
    char *at = add_array(p, &a);
    for (size_t i = 0; at && i < n; i++) {
        size_t length = values[i] ? strlen(values[i]) : 0;
        at = put32(at, values[i] ? (uint32_t)length : UINT32_MAX); /* -1: null */
        if (length)
            memcpy(at, values[i], length);
        at += length;
    }
}

void pg_add_bytes_array(struct pg_params *p, const void *const *values, const size_t *lengths,
                        size_t n)
{
    struct array a = {OID_BYTEA_ARRAY, OID_BYTEA, n, n * 4, false};

    for (size_t i = 0; i < n; i++) {
        if (lengths[i] > VALUE_MAX) {
            fail(p, -E2BIG);
            return;
        }
        a.bytes += lengths[i];
    }
    char *at = add_array(p, &a);
    for (size_t i = 0; at && i < n; i++) {
        at = put32(at, (uint32_t)lengths[i]);
        if (lengths[i])
            memcpy(at, values[i], lengths[i]);
        at += lengths[i];
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool parse_uuid(const char *text, char bytes[UUID_BYTES])
{
    size_t n = 0;

    if (!text || strnlen(text, UUID_CHARS + 1) != UUID_CHARS)
        return false;
    for (size_t i = 0; i < UUID_CHARS;) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            if (text[i++] != '-')
                return false;
            continue;
        }
        int high = hex_digit(text[i]);
        int low = hex_digit(text[i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[n++] = (char)(high << 4 | low);
        i += 2;
    }
    return true;
}

void pg_add_uuid_array(struct pg_params *p, const char *const *values, size_t n)
{
    struct array a = {OID_UUID_ARRAY, OID_UUID, n, n * (4 + UUID_BYTES), false};
    char *at = add_array(p, &a);

    for (size_t i = 0; at && i < n; i++) {
        at = put32(at, UUID_BYTES);
        if (!parse_uuid(values[i], at)) {
            fail(p, -EINVAL);
            return; /* half written, but an object with an error is never sent */
        }
        at += UUID_BYTES;
    }
}
