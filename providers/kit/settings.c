#include "providers/kit/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/core/near.h"

/* ---- refusing ------------------------------------------------------------------------------- */

int settings_refuse(struct settings *s, const char *name, const char *cure, const char *fmt, ...)
{
    char *why = NULL;
    va_list args;

    if (s->error)
        return s->error;
    s->error = -EINVAL;
    va_start(args, fmt);
    if (vasprintf(&why, fmt, args) < 0)
        why = NULL;
    va_end(args);
    s->host->refuse(s->report, name, why ? why : "refused", cure);
    free(why);
    return s->error;
}

static void no_memory(struct settings *s)
{
    if (!s->error)
        s->error = -ENOMEM;
}

/* ---- begin and end -------------------------------------------------------------------------- */

int settings_begin(struct settings *s, const struct provider_host *host, const char *json,
                   struct provider_report *report)
{
    json_error_t je;

    *s = (struct settings){.host = host, .report = report};
    s->root = json_loads(json, JSON_REJECT_DUPLICATES, &je);
    if (!s->root)
        return settings_refuse(s, "", NULL, "must be a JSON object: %s", je.text);
    if (!json_is_object(s->root))
        return settings_refuse(s, "", NULL, "must be a JSON object");
    return 0;
}

static bool is_asked(const struct settings *s, const char *name)
{
    for (size_t i = 0; i < s->asked_n; i++)
        if (strcmp(s->asked[i], name) == 0)
            return true;
    return false;
}

static const char *nearest(const struct settings *s, const char *name)
{
    struct near near;

    near_init(&near, name);
    for (size_t i = 0; i < s->asked_n; i++)
        if (!json_object_get(s->root, s->asked[i]))
            near_try(&near, s->asked[i]);
    return near_best(&near);
}

static void refuse_unknown(struct settings *s, const char *name, const char *known)
{
    char *cure = NULL;

    if (known && asprintf(&cure, "did you mean \"%s\"?", known) < 0)
        cure = NULL;
    settings_refuse(s, "", cure, "unknown key \"%s\"", name);
    free(cure);
}

/* A member that lacks is often there under a mistyped name: that is said instead. */
static void refuse_missing(struct settings *s)
{
    const char *key;
    json_t *value;

    s->error = 0;
    json_object_foreach (s->root, key, value) {
        const char *known = is_asked(s, key) ? NULL : nearest(s, key);

        if (known && strcmp(known, s->missing) == 0) {
            refuse_unknown(s, key, known);
            return;
        }
    }
    settings_refuse(s, s->missing, NULL, "is required");
}

int settings_end(struct settings *s)
{
    const char *key;
    json_t *value;

    if (s->missing)
        refuse_missing(s);
    json_object_foreach (s->root, key, value)
        if (!s->error && !is_asked(s, key))
            refuse_unknown(s, key, nearest(s, key));
    json_decref(s->root);
    s->root = NULL;
    return s->error;
}

/* ---- reading -------------------------------------------------------------------------------- */

static const json_t *ask(struct settings *s, const char *name)
{
    if (!is_asked(s, name)) {
        if (s->asked_n == SETTINGS_MAX) {
            settings_refuse(s, name, NULL, "the plugin reads too many settings");
            return NULL;
        }
        s->asked[s->asked_n++] = name;
    }
    return json_object_get(s->root, name);
}

static void is_missing(struct settings *s, const char *name)
{
    if (s->error)
        return;
    s->missing = name; /* said at the end, when all names are known */
    s->error = -EINVAL;
}

bool settings_has(struct settings *s, const char *name)
{
    return ask(s, name) != NULL;
}

const json_t *settings_json(struct settings *s, const char *name)
{
    return ask(s, name);
}

/* The text of a string that is not empty and holds no control characters, NULL when refused. */
static const char *checked(struct settings *s, const char *name, const json_t *value, bool lines)
{
    const char *text = json_string_value(value);

    if (!text) {
        settings_refuse(s, name, NULL, "must be a string");
        return NULL;
    }
    if (!*text) {
        settings_refuse(s, name, "leave it out where it is not wanted", "must not be empty");
        return NULL;
    }
    for (size_t i = 0; i < json_string_length(value); i++) {
        unsigned char c = (unsigned char)text[i];

        if ((c < 0x20 || c == 0x7f) && !(lines && (c == '\n' || c == '\r'))) {
            settings_refuse(s, name, NULL, "holds a control character");
            return NULL;
        }
    }
    return text;
}

static char *copy(struct settings *s, const char *text)
{
    char *mine = text ? strdup(text) : NULL;

    if (text && !mine)
        no_memory(s);
    return mine;
}

static char *read_text(struct settings *s, const char *name, const char *fallback, bool lines)
{
    const json_t *value = ask(s, name);

    if (value)
        return copy(s, checked(s, name, value, lines));
    if (!fallback) {
        is_missing(s, name);
        return NULL;
    }
    return *fallback ? copy(s, fallback) : NULL;
}

char *settings_text(struct settings *s, const char *name, const char *fallback)
{
    return read_text(s, name, fallback, false);
}

char *settings_lines(struct settings *s, const char *name, const char *fallback)
{
    return read_text(s, name, fallback, true);
}

/* NULL: fine. */
static const char *url_fault(const char *url)
{
    const char *rest = strncmp(url, "https://", 8) == 0  ? url + 8
                       : strncmp(url, "http://", 7) == 0 ? url + 7
                                                         : NULL;
    size_t host = rest ? strcspn(rest, "/") : 0;

    if (!rest)
        return "must begin with https:// or http://";
    if (host == 0)
        return "has no host";
    if (memchr(rest, '@', host))
        return "must not hold a user name";
    if (strpbrk(rest, "?#"))
        return "must have no query and no fragment";
    for (; *rest; rest++)
        if (*rest <= ' ' || *rest > '~') /* also bytes beyond ASCII, whatever char's sign */
            return "holds a character that is not allowed in a URL";
    return NULL;
}

char *settings_url(struct settings *s, const char *name, const char *fallback)
{
    char *url = settings_text(s, name, fallback);
    const char *fault = url ? url_fault(url) : NULL;
    size_t len;

    if (fault) {
        settings_refuse(s, name, "write the root of the API, such as https://api.vendor.example",
                        "%s", fault);
        free(url);
        return NULL;
    }
    len = url ? strlen(url) : 0;
    while (len > 0 && url[len - 1] == '/')
        url[--len] = '\0';
    return url;
}

int64_t settings_int(struct settings *s, const char *name, int64_t fallback, int64_t min,
                     int64_t max)
{
    const json_t *value = ask(s, name);
    int64_t number = json_integer_value(value);

    if (!value)
        return fallback;
    if (json_is_integer(value) && number >= min && number <= max)
        return number;
    settings_refuse(s, name, NULL, "must be a whole number from %" PRId64 " to %" PRId64, min, max);
    return fallback;
}

bool settings_bool(struct settings *s, const char *name, bool fallback)
{
    const json_t *value = ask(s, name);

    if (json_is_boolean(value))
        return json_is_true(value);
    if (value)
        settings_refuse(s, name, NULL, "must be true or false");
    return fallback;
}

/* "a, b or c"; NULL when out of memory. */
static char *spell_words(const char *const *words)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    for (size_t i = 0; words[i]; i++)
        (void)fprintf(f, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

size_t settings_word(struct settings *s, const char *name, const char *const *words,
                     size_t fallback)
{
    const json_t *value = ask(s, name);
    const char *word = json_string_value(value);
    char *known;

    if (!value)
        return fallback;
    for (size_t i = 0; word && words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    known = spell_words(words);
    settings_refuse(s, name, NULL, "must be %s", known ? known : "another word");
    free(known);
    return fallback;
}

char **settings_list(struct settings *s, const char *name)
{
    const json_t *value = ask(s, name);
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    char **list;

    if (!value)
        return NULL;
    if (n == 0) {
        settings_refuse(s, name, "leave it out where it is not wanted", "must not be empty");
        return NULL;
    }
    list = calloc(n + 1, sizeof(*list));
    if (!list) {
        no_memory(s);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;

        list[i] = copy(s, checked(s, name, item, false));
        if (!list[i]) {
            settings_list_free(list);
            return NULL;
        }
    }
    return list;
}

void settings_list_free(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}
