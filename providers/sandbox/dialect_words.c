#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/world.h"

/* --- pairs ------------------------------------------------------------------------------ */

int sb_pairs_add_n(struct sb_pairs *p, const char *name, size_t name_len, const char *value,
                   size_t value_len)
{
    struct sb_pair *grown = realloc(p->v, (p->n + 1) * sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    p->v = grown;
    grown[p->n].name = strndup(name, name_len);
    grown[p->n].value = strndup(value, value_len);
    if (!grown[p->n].name || !grown[p->n].value) {
        free((char *)(uintptr_t)grown[p->n].name);
        free((char *)(uintptr_t)grown[p->n].value);
        return -ENOMEM;
    }
    p->n++;
    return 0;
}

int sb_pairs_add(struct sb_pairs *p, const char *name, const char *value)
{
    return sb_pairs_add_n(p, name, strlen(name), value, strlen(value));
}

const char *sb_pairs_get(const struct sb_pairs *p, const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->v[i].name, name) == 0)
            return p->v[i].value;
    return NULL;
}

void sb_pairs_done(struct sb_pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free((char *)(uintptr_t)p->v[i].name);
        free((char *)(uintptr_t)p->v[i].value);
    }
    free(p->v);
    *p = (struct sb_pairs){0};
}

/* Replaces an owned text. */
static int put_text(char **field, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        return -ENOMEM;
    free(*field);
    *field = copy;
    return 0;
}

/* Compact, non-ASCII as it is, in the order members were set. NULL takes as out of memory. */
static char *dump(json_t *take)
{
    char *text = take ? json_dumps(take, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    json_decref(take);
    return text;
}

/* --- answers ---------------------------------------------------------------------------- */

struct sb_reply *sb_reply_free(struct sb_reply *r)
{
    if (!r)
        return NULL;
    free(r->type);
    free(r->body);
    sb_pairs_done(&r->headers);
    free(r);
    return NULL;
}

static int reply_take(struct sb_reply *r, int status, const char *type, char *take_body)
{
    if (!take_body || put_text(&r->type, type) < 0) {
        free(take_body);
        return -ENOMEM;
    }
    free(r->body);
    r->body = take_body;
    r->len = strlen(take_body);
    r->status = status;
    return 0;
}

int sb_reply_json(struct sb_reply *r, int status, json_t *take)
{
    return reply_take(r, status, "application/json", dump(take));
}

int sb_reply_text(struct sb_reply *r, int status, const char *type, const char *text)
{
    return reply_take(r, status, type, strdup(text));
}

int sb_reply_printf(struct sb_reply *r, int status, const char *type, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return reply_take(r, status, type, n < 0 ? NULL : text);
}

int sb_reply_header(struct sb_reply *r, const char *name, const char *value)
{
    return sb_pairs_add(&r->headers, name, value);
}

int sb_reply_status(const struct sb_reply *r)
{
    return r->status;
}

/* --- calls to the customer -------------------------------------------------------------- */

int sb_out_init(struct sb_out *o, const char *target)
{
    *o = (struct sb_out){0};
    o->target = strdup(target);
    return o->target ? 0 : -ENOMEM;
}

void sb_out_done(struct sb_out *o)
{
    free(o->target);
    free(o->method);
    free(o->url);
    free(o->body);
    sb_pairs_done(&o->headers);
    *o = (struct sb_out){0};
}

const char *sb_out_target(const struct sb_out *o)
{
    return o->target;
}

int sb_out_call(struct sb_out *o, const char *method, const char *url)
{
    int rc = put_text(&o->method, method);

    return rc < 0 ? rc : put_text(&o->url, url);
}

int sb_out_header(struct sb_out *o, const char *name, const char *value)
{
    return sb_pairs_add(&o->headers, name, value);
}

static int out_take(struct sb_out *o, const char *type, char *take_body, size_t len)
{
    if (!take_body)
        return -ENOMEM;
    free(o->body);
    o->body = take_body;
    o->len = len;
    return type ? sb_out_header(o, "Content-Type", type) : 0;
}

int sb_out_body(struct sb_out *o, const char *type, const char *data, size_t len)
{
    char *copy = malloc(len + 1);

    if (copy) {
        memcpy(copy, data, len);
        copy[len] = '\0';
    }
    return out_take(o, type, copy, len);
}

int sb_out_json(struct sb_out *o, json_t *take)
{
    char *text = dump(take);

    return out_take(o, "application/json", text, text ? strlen(text) : 0);
}

const char *sb_out_text(const struct sb_out *o)
{
    return o->body ? o->body : "";
}
