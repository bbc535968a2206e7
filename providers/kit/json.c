#include "providers/kit/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *json_body(const char *body, size_t len)
{
    /* A byte order mark is no part of the text, but some vendors send one. */
    size_t skip = len >= 3 && memcmp(body, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    if (!body || len == skip)
        return NULL;
    return json_loadb(body + skip, len - skip, JSON_ALLOW_NUL, NULL);
}

/* A member by the name of `len` bytes; vendors' names are short, longer ones are not there. */
static const json_t *member(const json_t *object, const char *name, size_t len)
{
    char key[128];

    if (len >= sizeof(key))
        return NULL;
    memcpy(key, name, len);
    key[len] = '\0';
    return json_object_get(object, key);
}

static const json_t *element(const json_t *array, const char *name, size_t len)
{
    size_t at = 0;

    if (len == 0 || len > 6)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        if (name[i] < '0' || name[i] > '9')
            return NULL;
        at = at * 10 + (size_t)(name[i] - '0');
    }
    return json_array_get(array, at);
}

const json_t *json_path(const json_t *root, const char *path)
{
    const json_t *at = root;

    while (at && *path) {
        size_t len = strcspn(path, "/");

        at = json_is_array(at) ? element(at, path, len) : member(at, path, len);
        path += len;
        path += *path == '/';
    }
    return at;
}

/* A text with a NUL inside would be cut there: it counts as none. */
static const char *text_of(const json_t *value)
{
    const char *text = json_string_value(value);

    return text && strlen(text) == json_string_length(value) ? text : NULL;
}

const char *json_text_at(const json_t *root, const char *path)
{
    return text_of(json_path(root, path));
}

const char *json_word_at(const json_t *root, const char *path, char *buf, size_t size)
{
    const json_t *value = json_path(root, path);
    int n;

    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    if (!json_is_integer(value))
        return text_of(value);
    n = snprintf(buf, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return n > 0 && (size_t)n < size ? buf : NULL;
}

bool json_i64_at(const json_t *root, const char *path, int64_t *ret)
{
    const json_t *value = json_path(root, path);
    const char *text = text_of(value);
    char *end = NULL;
    long long number;

    if (json_is_integer(value)) {
        *ret = json_integer_value(value);
        return true;
    }
    if (!text || !(*text == '-' || (*text >= '0' && *text <= '9')))
        return false;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text)
        return false;
    *ret = number;
    return true;
}

char *json_text(const json_t *value)
{
    return json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
}
