#include "worker/cli/mask.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "worker/core/err.h"
#include "worker/engine/config.h"

enum { SHORT = 6, NUMBER_MIN = 1000 };

static const char stars[] = "****";

struct secret {
    char *text;
    size_t len;
    bool word; /* only as a word of its own */
};

struct mask {
    struct secret *list;
    size_t n, cap;
};

struct mask *mask_new(void)
{
    return calloc(1, sizeof(struct mask));
}

struct mask *mask_free(struct mask *m)
{
    for (size_t i = 0; m && i < m->n; i++) {
        explicit_bzero(m->list[i].text, m->list[i].len);
        free(m->list[i].text);
    }
    if (m)
        free(m->list);
    free(m);
    return NULL;
}

/* ---- what is secret ------------------------------------------------------------------------ */

static int add(struct mask *m, const char *text, size_t len, bool word)
{
    struct secret s = {.len = len, .word = word || len < SHORT};

    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 16;
        struct secret *more = reallocarray(m->list, cap, sizeof(*more));

        if (!more)
            return -ENOMEM;
        m->list = more;
        m->cap = cap;
    }
    s.text = strndup(text, len);
    if (!s.text)
        return -ENOMEM;
    m->list[m->n++] = s;
    return 0;
}

int mask_add(struct mask *m, const char *secret)
{
    return secret && *secret ? add(m, secret, strlen(secret), false) : 0;
}

static bool has_word(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (isalnum((unsigned char)text[i]) || (unsigned char)text[i] >= 0x80)
            return true;
    }
    return false;
}

/* A template's text around its placeholders: "key=s3cret&to={{recipient}}". */
static int add_template(struct mask *m, const char *text, size_t len)
{
    const char *end = text + len;
    int rc = 0;

    while (rc == 0 && text < end) {
        const char *open = memmem(text, (size_t)(end - text), "{{", 2);
        const char *stop = open ? open : end, *shut;

        if (has_word(text, (size_t)(stop - text)))
            rc = add(m, text, (size_t)(stop - text), false);
        shut = open ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;
        text = shut ? shut + 2 : end;
    }
    return rc;
}

/* Of a URL that may be shown: who signs in, and the values of its query. */
static int add_url(struct mask *m, const char *url)
{
    const char *host = strstr(url, "://"), *query = strchr(url, '?');
    const char *at = host ? strpbrk(host + 3, "@/?#") : NULL;
    int rc = 0;

    if (at && *at == '@')
        rc = add(m, host + 3, (size_t)(at - host - 3), false);
    while (rc == 0 && query) {
        const char *next = strchr(query + 1, '&'), *end = next ? next : query + strlen(query);
        const char *value = memchr(query, '=', (size_t)(end - query));

        if (value)
            rc = add_template(m, value + 1, (size_t)(end - value - 1));
        query = next;
    }
    return rc;
}

static bool is_public(const char *name)
{
    static const char *const names[] = {"url",    "from", "sender",       "method", "path",
                                        "region", "api",  "content-type", "accept"};

    for (size_t i = 0; name && i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcasecmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

/* `written` is the same place of the file: an object where the value was fetched from elsewhere. */
static int add_value(struct mask *m, const char *name, const json_t *value, const json_t *written)
{
    const char *text = json_string_value(value);
    char digits[32];

    if (text && json_is_string(written) && is_public(name))
        return add_url(m, text);
    if (text)
        return add_template(m, text, strlen(text));
    if (!json_is_integer(value) ||
        (json_integer_value(value) > -NUMBER_MIN && json_integer_value(value) < NUMBER_MIN))
        return 0;
    snprintf(digits, sizeof(digits), "%lld", (long long)json_integer_value(value));
    return add(m, digits, strlen(digits), true);
}

enum { DEPTH_MAX = 32 }; /* deeper ones the configuration refuses or jansson ends */

static int add_tree(struct mask *m, const char *name, const json_t *value, const json_t *written,
                    int depth)
{
    const char *member;
    json_t *item;
    size_t i;
    int rc = 0;

    if (depth > DEPTH_MAX)
        return -EINVAL;
    if (json_is_object(value)) {
        json_object_foreach ((json_t *)value, member, item) {
            if (rc == 0)
                rc = add_tree(m, member, item, json_object_get(written, member), depth + 1);
        }
    } else if (json_is_array(value)) {
        json_array_foreach (value, i, item) {
            if (rc == 0)
                rc = add_tree(m, name, item, json_array_get(written, i), depth + 1);
        }
    } else {
        rc = add_value(m, name, value, written);
    }
    return rc;
}

int mask_add_settings(struct mask *m, const char *path, const struct config_provider *p,
                      struct err *err)
{
    json_auto_t *file = json_load_file(path, 0, NULL);
    json_auto_t *settings = json_loads(p->settings_json, 0, NULL);
    const json_t *providers = json_object_get(file, "providers");
    const json_t *written = json_object_get(json_object_get(providers, p->name), "settings");
    int rc = settings ? add_tree(m, NULL, settings, written, 0) : -EINVAL;

    return rc < 0 ? err_set(err, rc, "cannot tell which settings are secret") : 0;
}

/* ---- finding it ---------------------------------------------------------------------------- */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static size_t escaped(const char *text, size_t len, unsigned char want)
{
    static const char names[] = "n\nt\tr\rb\bf\f";

    if (len >= 2 && (unsigned char)text[1] == want && strchr("\"\\/", text[1]))
        return 2;
    for (size_t i = 0; len >= 2 && names[i]; i += 2) {
        if (text[1] == names[i] && (unsigned char)names[i + 1] == want)
            return 2;
    }
    if (len >= 6 && text[1] == 'u' && text[2] == '0' && text[3] == '0' && hex(text[4]) >= 0 &&
        hex(text[5]) >= 0 && hex(text[4]) * 16 + hex(text[5]) == want && want < 0x80)
        return 6;
    return 0;
}

/* How many bytes of the text write this one; 0: they do not. */
static size_t writes(const char *text, size_t len, unsigned char want)
{
    size_t n = 0;

    if (len >= 3 && text[0] == '%' && hex(text[1]) >= 0 && hex(text[2]) >= 0 &&
        hex(text[1]) * 16 + hex(text[2]) == want)
        return 3;
    if (text[0] == '\\')
        n = escaped(text, len, want);
    if (n > 0)
        return n;
    return (unsigned char)text[0] == want || (want == ' ' && text[0] == '+') ? 1 : 0;
}

static size_t found_at(const struct secret *s, const char *text, size_t len)
{
    size_t at = 0;

    for (size_t i = 0; i < s->len; i++) {
        size_t n = at < len ? writes(text + at, len - at, (unsigned char)s->text[i]) : 0;

        if (n == 0)
            return 0;
        at += n;
    }
    return at;
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

static bool stands_alone(const char *text, size_t len, size_t at, size_t n)
{
    bool before = at == 0 || !in_word(text[at - 1]) || (at >= 3 && text[at - 3] == '%') ||
                  (at >= 2 && text[at - 2] == '\\');

    return before && (at + n == len || !in_word(text[at + n]));
}

/* The longest secret that begins here. */
static size_t secret_at(const struct mask *m, const char *text, size_t len, size_t at)
{
    size_t most = 0;

    for (size_t i = 0; i < m->n; i++) {
        size_t n = found_at(&m->list[i], text + at, len - at);

        if (n > most && (!m->list[i].word || stands_alone(text, len, at, n)))
            most = n;
    }
    return most;
}

char *mask_text(const struct mask *m, const char *text, size_t len)
{
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);

    if (!f)
        return NULL;
    for (size_t at = 0; at < len;) {
        size_t n = secret_at(m, text, len, at);

        if (n > 0)
            fputs(stars, f);
        else
            fputc(text[at], f);
        at += n > 0 ? n : 1;
    }
    if (fclose(f) == 0)
        return out;
    free(out);
    return NULL;
}

static bool is_secret_name(const char *name)
{
    static const char *const words[] = {"auth",   "key",       "token",  "secret",    "passw",
                                        "cookie", "signature", "signed", "credential"};

    if (strcasestr(name, "idempotency"))
        return false;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasestr(name, words[i]))
            return true;
    }
    return false;
}

/* "Basic", "Bearer", "App": the word before a credential, if that is all it can be. */
static int scheme_len(const char *value)
{
    size_t n = strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-");

    return n > 0 && n <= 16 && value[n] == ' ' && value[n + 1] ? (int)n + 1 : 0;
}

char *mask_header(const struct mask *m, const char *name, const char *value)
{
    char *text = NULL, *clean;

    if (!is_secret_name(name))
        return mask_text(m, value, strlen(value));
    if (asprintf(&text, "%.*s%s", scheme_len(value), value, stars) < 0)
        return NULL;
    clean = mask_text(m, text, strlen(text));
    free(text);
    return clean;
}
