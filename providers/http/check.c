/* Reading settings one by one: what is odd is refused with its path and a cure. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/http/http.h"
#include "worker/core/near.h"

int hp_refuse(const struct hp_open *open, const char *setting, const char *cure, const char *fmt,
              ...)
{
    char *why = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&why, fmt, ap) < 0)
        why = NULL;
    va_end(ap);
    open->host->refuse(open->report, setting, why ? why : "refused", cure);
    free(why);
    return -EINVAL;
}

/* ---- checked access ------------------------------------------------------------------------- */

/* `path` is "" for the settings themselves. */
int hp_check_keys(const struct hp_open *open, const char *path, const json_t *object,
                  const char *const *known)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)object, key, value) {
        const char *const *k = known;
        struct near near;
        char *cure = NULL;

        while (*k && strcmp(*k, key) != 0)
            k++;
        if (*k)
            continue;
        near_init(&near, key);
        for (k = known; *k; k++)
            near_try(&near, *k);
        if (near_best(&near) && asprintf(&cure, "did you mean \"%s\"?", near_best(&near)) < 0)
            cure = NULL;
        hp_refuse(open, path, cure, "unknown key \"%s\"", key);
        free(cure);
        return -EINVAL;
    }
    return 0;
}

/* A string that is not empty, or NULL when absent. */
int hp_get_string(const struct hp_open *open, const char *path, const json_t *object,
                  const char *key, const char **ret)
{
    const json_t *value = json_object_get(object, key);

    *ret = NULL;
    if (!value)
        return 0;
    if (!json_is_string(value) || json_string_length(value) == 0)
        return hp_refuse(open, path, NULL, "must be a string that is not empty");
    *ret = json_string_value(value);
    return 0;
}

int hp_get_pointer(const struct hp_open *open, const char *path, const json_t *object,
                   const char *key, const char **ret)
{
    const json_t *value = json_object_get(object, key);

    *ret = NULL;
    if (!value)
        return 0;
    if (!json_is_string(value) || !hp_pointer_ok(json_string_value(value)))
        return hp_refuse(open, path, "write \"/id\" for the member \"id\" of the reply",
                         "must be a JSON pointer");
    *ret = json_string_value(value);
    return 0;
}

int hp_get_int(const struct hp_open *open, const char *path, const json_t *value, int64_t min,
               int64_t max, int64_t *ret)
{
    *ret = json_integer_value(value);
    if (json_is_integer(value) && *ret >= min && *ret <= max)
        return 0;
    return hp_refuse(open, path, NULL, "must be a whole number from %lld to %lld", (long long)min,
                     (long long)max);
}

int hp_get_bool(const struct hp_open *open, const char *path, const json_t *object, const char *key,
                bool *io)
{
    const json_t *value = json_object_get(object, key);

    if (value && !json_is_boolean(value))
        return hp_refuse(open, path, NULL, "must be true or false");
    if (value)
        *io = json_is_true(value);
    return 0;
}

/* ---- rules ---------------------------------------------------------------------------------- */

int hp_check_status(const struct hp_open *open, const char *path, const json_t *value, int max)
{
    json_int_t status = json_integer_value(value);

    if (json_is_integer(value) && status >= HP_STATUS_MIN && status <= max)
        return 0;
    return hp_refuse(open, path, NULL, "a status is a whole number from %d to %d", HP_STATUS_MIN,
                     max);
}

static int check_match(const struct hp_open *open, const char *path, const json_t *match)
{
    const char *pointer;
    json_t *value;

    if (!match)
        return 0;
    if (!json_is_object(match) || json_object_size(match) == 0)
        return hp_refuse(open, path, "write {\"/code\": 0}",
                         "match must be an object of JSON pointers and values");
    json_object_foreach ((json_t *)match, pointer, value)
        if (!hp_pointer_ok(pointer))
            return hp_refuse(open, path, "write {\"/code\": 0}",
                             "match: \"%s\" is not a JSON pointer", pointer);
    return 0;
}

/* {"status": 200 | [200, 202], "match": {...}}. */
int hp_check_rule(const struct hp_open *open, const char *path, const json_t *rule,
                  const char *const *known, int max)
{
    const json_t *status = json_object_get(rule, "status");
    int r;

    if (!json_is_object(rule))
        return hp_refuse(open, path, NULL, "must be an object with \"status\"");
    r = hp_check_keys(open, path, rule, known);
    if (r < 0)
        return r;
    if (json_is_integer(status))
        r = hp_check_status(open, path, status, max);
    else if (!json_is_array(status) || json_array_size(status) == 0)
        r = hp_refuse(open, path, NULL, "\"status\" must be a status or a list of them");
    for (size_t i = 0; i < json_array_size(status) && r == 0; i++)
        r = hp_check_status(open, path, json_array_get(status, i), max);
    return r < 0 ? r : check_match(open, path, json_object_get(rule, "match"));
}
