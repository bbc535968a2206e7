#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/kit/form.h"
#include "providers/kit/sign.h"
#include "providers/sandbox/world.h"

static struct sb_call_priv *priv(const struct sb_call *c)
{
    return c->priv_;
}

/* --- paths ------------------------------------------------------------------------------ */

static bool fits_part(const char *pattern, const char *path, struct sb_pairs *parts)
{
    const char *close = strchr(pattern, '}');
    size_t name_len = (size_t)(close - pattern) - 1;

    /* the shortest that lets the rest fit */
    for (size_t len = 1; path[len - 1] && path[len - 1] != '/'; len++) {
        size_t before = parts ? parts->n : 0;
        if (parts && sb_pairs_add_n(parts, pattern + 1, name_len, path, len) < 0)
            return false;
        if (sb_path_fits(close + 1, path + len, parts))
            return true;
        while (parts && parts->n > before) {
            parts->n--;
            free((char *)(uintptr_t)parts->v[parts->n].name);
            free((char *)(uintptr_t)parts->v[parts->n].value);
        }
    }
    return false;
}

/* Recursion is as deep as the pattern has parts. NOLINTNEXTLINE(misc-no-recursion) */
bool sb_path_fits(const char *pattern, const char *path, struct sb_pairs *parts)
{
    while (*pattern && *pattern != '{' && *pattern == *path) {
        pattern++;
        path++;
    }
    if (*pattern == '{')
        return fits_part(pattern, path, parts);
    return *pattern == '\0' && *path == '\0';
}

/* --- taking apart ----------------------------------------------------------------------- */

static enum MHD_Result on_pair(void *arg, enum MHD_ValueKind kind, const char *name,
                               const char *value)
{
    struct sb_pairs *p = arg;

    (void)kind;
    return sb_pairs_add(p, name, value ? value : "") == 0 ? MHD_YES : MHD_NO;
}

/* One name=value of a form body. -EINVAL: broken escapes. */
static int add_field(struct sb_pairs *form, const char *s, size_t len)
{
    char *text = strndup(s, len);
    int rc = -EINVAL;

    if (!text)
        return -ENOMEM;
    char *eq = strchr(text, '=');
    if (eq)
        *eq = '\0';
    long value_len = eq ? form_decode(eq + 1, 1) : 0;
    if (form_decode(text, 1) >= 0 && value_len >= 0)
        rc = sb_pairs_add(form, text, eq ? eq + 1 : "");
    free(text);
    return rc;
}

static int read_urlencoded(struct sb_pairs *form, const char *body, size_t len)
{
    if (memchr(body, '\0', len))
        return -EINVAL;
    for (size_t at = 0; at < len;) {
        const char *amp = memchr(body + at, '&', len - at);
        size_t part = amp ? (size_t)(amp - (body + at)) : len - at;
        int rc = part > 0 ? add_field(form, body + at, part) : 0;
        if (rc < 0)
            return rc;
        at += part + 1;
    }
    return 0;
}

/* The library hands a long value over in pieces: those after the first have an offset. */
static enum MHD_Result on_piece(void *arg, enum MHD_ValueKind kind, const char *key,
                                const char *filename, const char *type, const char *encoding,
                                const char *data, uint64_t offset, size_t size)
{
    struct sb_pairs *form = arg;

    (void)kind;
    (void)filename;
    (void)type;
    (void)encoding;
    if (offset == 0)
        return sb_pairs_add_n(form, key, strlen(key), data, size) == 0 ? MHD_YES : MHD_NO;
    if (form->n == 0)
        return MHD_NO;
    struct sb_pair *last = &form->v[form->n - 1];
    char *grown = realloc((char *)(uintptr_t)last->value, offset + size + 1);
    if (!grown)
        return MHD_NO;
    memcpy(grown + offset, data, size);
    grown[offset + size] = '\0';
    last->value = grown;
    return MHD_YES;
}

static int read_multipart(struct sb_pairs *form, struct sb_req *r)
{
    struct MHD_PostProcessor *pp = MHD_create_post_processor(r->conn, 4096, on_piece, form);

    if (!pp)
        return -EINVAL;
    enum MHD_Result fed = MHD_post_process(pp, r->body, r->len);
    return MHD_destroy_post_processor(pp) == MHD_YES && fed == MHD_YES ? 0 : -EINVAL;
}

static bool is_json(const char *body)
{
    while (*body && isspace((unsigned char)*body))
        body++;
    return *body == '{' || *body == '[';
}

static int read_body(struct sb_call *c, struct sb_call_priv *p, struct sb_req *r)
{
    int rc = 0;

    if (sb_call_type(c, "application/x-www-form-urlencoded"))
        rc = read_urlencoded(&p->form, c->body, c->len);
    else if (sb_call_type(c, "multipart/form-data"))
        rc = read_multipart(&p->form, r);
    else if (is_json(c->body))
        p->json = json_loadb(c->body, c->len, JSON_REJECT_DUPLICATES, NULL);
    if (rc == -ENOMEM)
        return rc;
    c->form_broken = rc < 0;
    c->json = p->json;
    return 0;
}

int sb_call_init(struct sb_call *c, struct sb_call_priv *p, struct sb_world *w, struct sb_req *r)
{
    *p = (struct sb_call_priv){0};
    *c = (struct sb_call){.world = w, .method = r->method, .path = r->tail, .body = "", .priv_ = p};
    MHD_get_connection_values(r->conn, MHD_HEADER_KIND, on_pair, &p->headers);
    MHD_get_connection_values(r->conn, MHD_GET_ARGUMENT_KIND, on_pair, &p->query);
    if (r->len > 0 && !(c->body = sb_call_copy(c, r->body, r->len)))
        return -ENOMEM;
    c->len = r->len;
    int rc = read_body(c, p, r);
    c->query = p->query.v;
    c->query_n = p->query.n;
    c->form = p->form.v;
    c->form_n = p->form.n;
    return rc;
}

void sb_call_done(struct sb_call *c)
{
    struct sb_call_priv *p = c->priv_;

    if (!p)
        return;
    sb_pairs_done(&p->headers);
    sb_pairs_done(&p->query);
    sb_pairs_done(&p->form);
    sb_pairs_done(&p->parts);
    for (size_t i = 0; i < p->texts_n; i++)
        free(p->texts[i]);
    free(p->texts);
    json_decref(p->jsons);
    json_decref(p->json);
    *p = (struct sb_call_priv){0};
}

/* --- looking into it -------------------------------------------------------------------- */

const char *sb_call_header(const struct sb_call *c, const char *name)
{
    const struct sb_pairs *h = &priv(c)->headers;

    for (size_t i = 0; i < h->n; i++)
        if (strcasecmp(h->v[i].name, name) == 0)
            return h->v[i].value;
    return NULL;
}

bool sb_call_header_at(const struct sb_call *c, size_t i, struct sb_pair *ret)
{
    const struct sb_pairs *h = &priv(c)->headers;

    if (i >= h->n)
        return false;
    *ret = h->v[i];
    return true;
}

const char *sb_call_query(const struct sb_call *c, const char *name)
{
    return sb_pairs_get(&priv(c)->query, name);
}

const char *sb_call_form(const struct sb_call *c, const char *name)
{
    return sb_pairs_get(&priv(c)->form, name);
}

const char *sb_call_param(const struct sb_call *c, const char *name)
{
    const char *value = sb_call_form(c, name);

    return value ? value : sb_call_query(c, name);
}

const char *sb_call_part(const struct sb_call *c, const char *name)
{
    const char *value = sb_pairs_get(&priv(c)->parts, name);

    return value ? value : "";
}

bool sb_call_type(const struct sb_call *c, const char *type)
{
    const char *s = sb_call_header(c, "Content-Type");
    size_t len = strlen(type);

    return s && strncasecmp(s, type, len) == 0 &&
           (s[len] == '\0' || s[len] == ';' || s[len] == ' ');
}

const char *sb_call_bearer(const struct sb_call *c, const char *scheme)
{
    const char *s = sb_call_header(c, "Authorization");
    size_t len = strlen(scheme);

    if (!s || strncasecmp(s, scheme, len) != 0 || s[len] != ' ')
        return NULL;
    s += len;
    while (*s == ' ')
        s++;
    return *s ? s : NULL;
}

bool sb_call_basic(const struct sb_call *c, const char *user, const char *password)
{
    const char *token = sb_call_bearer(c, "Basic");
    size_t len = 0;
    uint8_t *plain = token ? sign_unbase64(token, strlen(token), &len) : NULL;
    char *colon = plain ? strchr((char *)plain, ':') : NULL;
    bool ok = colon && strlen((char *)plain) == len;

    if (ok) {
        *colon = '\0';
        ok = (!user || strcmp((char *)plain, user) == 0) &&
             (!password || strcmp(colon + 1, password) == 0);
    }
    free(plain);
    return ok;
}

/* --- texts that live as long as the call ------------------------------------------------ */

static const char *keep(struct sb_call *c, char *take)
{
    struct sb_call_priv *p = c->priv_;
    char **grown = take ? realloc(p->texts, (p->texts_n + 1) * sizeof(*grown)) : NULL;

    if (!grown) {
        free(take);
        return NULL;
    }
    p->texts = grown;
    grown[p->texts_n++] = take;
    return take;
}

const char *sb_call_copy(struct sb_call *c, const char *text, size_t len)
{
    char *copy = malloc(len + 1);

    if (copy) {
        memcpy(copy, text, len);
        copy[len] = '\0';
    }
    return keep(c, copy);
}

const char *sb_call_printf(struct sb_call *c, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : keep(c, text);
}

json_t *sb_call_keep(struct sb_call *c, json_t *take)
{
    struct sb_call_priv *p = c->priv_;

    if (!p->jsons)
        p->jsons = json_array();
    if (!take || json_array_append_new(p->jsons, take) < 0)
        return NULL;
    return take;
}

static char *put_utf8(char *at, uint32_t code)
{
    if (code < 0x80) {
        *at++ = (char)code;
    } else if (code < 0x800) {
        *at++ = (char)(0xc0 | (code >> 6));
        *at++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *at++ = (char)(0xe0 | (code >> 12));
        *at++ = (char)(0x80 | ((code >> 6) & 0x3f));
        *at++ = (char)(0x80 | (code & 0x3f));
    } else {
        *at++ = (char)(0xf0 | (code >> 18));
        *at++ = (char)(0x80 | ((code >> 12) & 0x3f));
        *at++ = (char)(0x80 | ((code >> 6) & 0x3f));
        *at++ = (char)(0x80 | (code & 0x3f));
    }
    return at;
}

const char *sb_call_utf16be(struct sb_call *c, const void *units, size_t len)
{
    const uint8_t *u = units;
    char *out = len % 2 == 0 ? malloc(len / 2 * 3 + 1) : NULL;
    char *at = out;

    for (size_t i = 0; out && i < len; i += 2) {
        uint32_t code = (uint32_t)u[i] << 8 | u[i + 1];
        if (code >= 0xd800 && code < 0xdc00 && i + 3 < len && (u[i + 2] & 0xfc) == 0xdc) {
            code = 0x10000 + ((code & 0x3ff) << 10) + ((uint32_t)(u[i + 2] & 3) << 8 | u[i + 3]);
            i += 2;
        }
        if (code == 0 || (code >= 0xd800 && code < 0xe000)) {
            free(out);
            return NULL;
        }
        at = put_utf8(at, code);
    }
    if (at)
        *at = '\0';
    return keep(c, out);
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

const char *sb_call_utf16be_hex(struct sb_call *c, const char *hex)
{
    size_t len = strlen(hex);
    uint8_t *bytes = len % 4 == 0 ? calloc(1, len / 2 + 1) : NULL;
    const char *text = NULL;
    bool ok = bytes != NULL;

    for (size_t i = 0; ok && i < len; i += 2) {
        int high = hex_value(hex[i]);
        int low = hex_value(hex[i + 1]);
        ok = high >= 0 && low >= 0;
        bytes[i / 2] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
    }
    if (ok)
        text = sb_call_utf16be(c, bytes, len / 2);
    free(bytes);
    return text;
}
