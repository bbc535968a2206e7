/* Into a vendor's JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/http/http.h"

/* ---- JSON pointer (RFC 6901) ---------------------------------------------------------------- */

bool hp_pointer_ok(const char *pointer)
{
    if (*pointer != '\0' && *pointer != '/')
        return false;
    for (const char *p = strchr(pointer, '~'); p; p = strchr(p + 1, '~'))
        if (p[1] != '0' && p[1] != '1')
            return false;
    return true;
}

/* "~1" is a slash, "~0" a tilde. In place: the result is never longer. */
static void unescape(char *token)
{
    char *to = token;

    for (const char *from = token; *from; from++) {
        *to = *from;
        if (from[0] == '~' && from[1]) {
            *to = from[1] == '1' ? '/' : '~';
            from++;
        }
        to++;
    }
    *to = '\0';
}

static json_t *array_member(const json_t *array, const char *token)
{
    size_t len = strlen(token);

    if (len == 0 || len > 9 || strspn(token, "0123456789") != len || (*token == '0' && len > 1))
        return NULL;
    return json_array_get(array, strtoul(token, NULL, 10));
}

json_t *hp_pointer_get(const json_t *document, const char *pointer)
{
    json_t *at = (json_t *)document;

    while (at && *pointer == '/') {
        size_t len = strcspn(++pointer, "/");
        char *token = strndup(pointer, len);

        if (!token)
            return NULL; /* as if it were not there: the outcome stays unproven */
        unescape(token);
        at = json_is_array(at) ? array_member(at, token) : json_object_get(at, token);
        free(token);
        pointer += len;
    }
    return at;
}

bool hp_text_at(const json_t *document, const char *pointer, char digits[static 24],
                const char **ret_text, size_t *ret_len)
{
    const json_t *value = pointer ? hp_pointer_get(document, pointer) : NULL;

    if (json_is_string(value)) {
        *ret_text = json_string_value(value);
        *ret_len = json_string_length(value);
    } else if (json_is_integer(value)) {
        *ret_text = digits;
        *ret_len = (size_t)snprintf(digits, 24, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else {
        return false;
    }
    return *ret_len > 0;
}

/* A byte order mark is no part of the text, but some vendors send one. */
json_t *hp_read_json(const char *body, size_t len)
{
    size_t skip = len >= 3 && memcmp(body, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    if (!body || len == skip)
        return NULL;
    return json_loadb(body + skip, len - skip, JSON_DECODE_ANY, NULL);
}
