#include "worker/engine/config_json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/core/err.h"
#include "worker/engine/config.h"

enum { SECRET_MAX = 65536 };

/* ---- places ------------------------------------------------------------------------------- */

/* The text is JSON that jansson has read, so the walkers below need not check it; `end` keeps
 * them inside all the same. */
static const char *skip_blank(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
        p++;
    return p;
}

static const char *skip_string(const char *p, const char *end)
{
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\')
            p++;
    return p < end ? p + 1 : end;
}

static const char *skip_value(const char *p, const char *end)
{
    int depth = 0;

    while (p < end) {
        if (*p == '"') {
            p = skip_string(p, end);
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            if (depth-- == 0)
                return p; /* the container's own end, after a bare value */
            p++;
        } else if (*p == ',' && depth == 0) {
            return p;
        } else {
            p++;
            continue;
        }
        if (depth == 0)
            return p;
    }
    return end;
}

/* A key may be written with escapes, so jansson reads it once more. */
static bool key_is(const char *token, const char *token_end, const char *key)
{
    json_t *read = json_loadb(token, (size_t)(token_end - token), JSON_DECODE_ANY, NULL);
    bool same = json_is_string(read) && strcmp(json_string_value(read), key) == 0;

    json_decref(read);
    return same;
}

/* From an object's or array's first character to the wanted member: *io_p becomes its value;
 * returns where the member begins, NULL if there is none. */
static const char *step_into(const char **io_p, const char *end, const struct config_place *step)
{
    const char *p = skip_blank(*io_p, end);
    bool object = p < end && *p == '{';

    if (p >= end || (!object && *p != '[') || object != (step->key != NULL))
        return NULL;
    p = skip_blank(p + 1, end);
    for (size_t i = 0; p < end && *p != '}' && *p != ']'; i++) {
        const char *member = p;
        bool wanted = !object && i == step->index;

        if (object) {
            const char *key_end = skip_string(p, end);
            wanted = key_is(p, key_end, step->key);
            p = skip_blank(key_end, end);
            p = skip_blank(p < end ? p + 1 : end, end); /* the colon */
        }
        if (wanted) {
            *io_p = p;
            return member;
        }
        p = skip_blank(skip_value(p, end), end);
        if (p < end && *p == ',')
            p = skip_blank(p + 1, end);
    }
    return NULL;
}

/* Walks from the file down to `at`; recursion is as deep as the path. */
static const char *find(const struct config_source *source, const struct config_place *at,
                        const char **ret_value)
{
    if (!at->up) {
        *ret_value = source->text;
        return source->text;
    }
    if (!find(source, at->up, ret_value))
        return NULL;
    return step_into(ret_value, source->text + source->len, at);
}

size_t config_line(const struct config_source *source, const struct config_place *at)
{
    const char *value;
    const char *found = at->up ? find(source, at, &value) : NULL;
    size_t line = 1;

    if (!found)
        return 0;
    for (const char *p = source->text; p < found; p++)
        line += *p == '\n';
    return line;
}

/* "providers.main.settings" in a string the caller frees; "" for the whole file. */
static char *path_of(const struct config_place *at)
{
    char *above, *path = NULL;

    if (!at->up)
        return strdup("");
    above = path_of(at->up);
    if (!above)
        return NULL;
    if (at->hidden)
        return above;
    const char *dot = *above ? "." : "";
    int n = at->key ? asprintf(&path, "%s%s%s", above, dot, at->key)
                    : asprintf(&path, "%s[%zu]", above, at->index);
    if (n < 0)
        path = NULL;
    free(above);
    return path;
}

int config_fail(const struct config_source *source, const struct config_place *at, struct err *err,
                const char *fmt, ...)
{
    size_t line = config_line(source, at);
    char *path = path_of(at), *why = NULL, *where = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&why, fmt, ap) < 0)
        why = NULL;
    va_end(ap);
    if (line > 0 && asprintf(&where, ": line %zu", line) < 0)
        where = NULL;
    err_set(err, -EINVAL, "%s%s%s%s: %s", source->name, where ? where : "",
            path && *path ? ": " : "", path ? path : "", why ? why : "refused");
    free(where);
    free(path);
    free(why);
    return -EINVAL;
}

/* ---- secrets ------------------------------------------------------------------------------ */

bool config_is_secret(const json_t *value)
{
    return json_is_object(value) && json_object_size(value) == 1 &&
           (json_is_string(json_object_get(value, "env")) ||
            json_is_string(json_object_get(value, "file")));
}

static int secret_env(const struct config_source *source, const struct config_place *at,
                      const char *variable, char **ret_text, struct err *err)
{
    const char *text = getenv(variable);

    if (!text || !*text) {
        config_fail(source, at, err, "environment variable %s is %s", variable,
                    text ? "empty" : "not set");
        err_hint(err, "set %s before starting postrider", variable);
        return -EINVAL;
    }
    *ret_text = strdup(text);
    return *ret_text ? 0 : -ENOMEM;
}

/* Reads to the end or SECRET_MAX; -errno. */
static ssize_t read_all(int fd, char *buf, size_t size)
{
    size_t used = 0;

    while (used < size) {
        ssize_t n = read(fd, buf + used, size - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    return (ssize_t)used;
}

static ssize_t read_secret_file(struct config *config, const char *path, char *buf)
{
    struct stat st;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & S_IROTH))
        config_note(config, "secret file %s can be read by everyone: chmod o-r it", path);
    n = read_all(fd, buf, SECRET_MAX + 1);
    close(fd);
    return n;
}

static int secret_file(const struct config_source *source, const struct config_place *at,
                       const char *path, char **ret_text, struct err *err)
{
    char *buf = malloc(SECRET_MAX + 1);
    const char *why = NULL;
    ssize_t n;

    if (!buf)
        return -ENOMEM;
    n = read_secret_file(source->config, path, buf);
    if (n > 0 && n <= SECRET_MAX && buf[n - 1] == '\n')
        n -= n > 1 && buf[n - 2] == '\r' ? 2 : 1;
    if (n < 0)
        why = strerror((int)-n);
    else if (n == 0)
        why = "it is empty";
    else if (n > SECRET_MAX)
        why = "it is longer than 64 KiB";
    else if (memchr(buf, '\0', (size_t)n))
        why = "it holds a NUL byte";
    if (why) {
        explicit_bzero(buf, SECRET_MAX + 1);
        free(buf);
        return config_fail(source, at, err, "secret file \"%s\": %s", path, why);
    }
    *ret_text = strndup(buf, (size_t)n);
    explicit_bzero(buf, SECRET_MAX + 1);
    free(buf);
    return *ret_text ? 0 : -ENOMEM;
}

int config_read_secret(const struct config_source *source, const struct config_place *at,
                       const json_t *value, char **ret_text, struct err *err)
{
    const json_t *variable = json_object_get(value, "env");

    if (variable)
        return secret_env(source, at, json_string_value(variable), ret_text, err);
    return secret_file(source, at, json_string_value(json_object_get(value, "file")), ret_text,
                       err);
}

static int expand_secret(const struct config_source *source, const struct config_place *at,
                         json_t **io_value, struct err *err)
{
    char *text = NULL;
    json_t *string;
    int r = config_read_secret(source, at, *io_value, &text, err);

    if (r < 0)
        return r;
    /* A plugin would take "{{" for a placeholder, and its complaint would print the secret. */
    if (strstr(text, "{{"))
        r = config_fail(source, at, err, "the secret contains \"{{\", which begins a placeholder");
    string = json_string(text);
    if (r == 0 && !string)
        r = config_fail(source, at, err, "the secret is not UTF-8");
    explicit_bzero(text, strlen(text));
    free(text);
    if (r < 0) {
        json_decref(string);
        return r;
    }
    json_decref(*io_value);
    *io_value = string;
    return 0;
}

static int expand_array(const struct config_source *source, const struct config_place *at,
                        json_t *array, struct err *err)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        struct config_place here = {.up = at, .index = i};
        json_t *value = json_incref(json_array_get(array, i));
        int r = config_expand(source, &here, &value, err);

        if (r == 0 && json_array_set(array, i, value) != 0)
            r = -ENOMEM;
        json_decref(value);
        if (r < 0)
            return r;
    }
    return 0;
}

static int expand_object(const struct config_source *source, const struct config_place *at,
                         json_t *object, struct err *err)
{
    /* Setting an existing key keeps iterators valid (jansson's documentation). */
    for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
        struct config_place here = {.up = at, .key = json_object_iter_key(it)};
        json_t *value = json_incref(json_object_iter_value(it));
        int r = config_expand(source, &here, &value, err);

        if (r == 0 && json_object_iter_set(object, it, value) != 0)
            r = -ENOMEM;
        json_decref(value);
        if (r < 0)
            return r;
    }
    return 0;
}

int config_expand(const struct config_source *source, const struct config_place *at,
                  json_t **io_value, struct err *err)
{
    if (config_is_secret(*io_value))
        return expand_secret(source, at, io_value, err);
    if (json_is_object(*io_value))
        return expand_object(source, at, *io_value, err);
    if (json_is_array(*io_value))
        return expand_array(source, at, *io_value, err);
    return 0;
}

int config_note(struct config *config, const char *fmt, ...)
{
    char **grown = realloc(config->notes, (config->notes_count + 1) * sizeof(*grown));
    char *text = NULL;
    va_list ap;

    if (!grown)
        return -ENOMEM;
    config->notes = grown;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    if (!text)
        return -ENOMEM;
    grown[config->notes_count++] = text;
    return 0;
}
