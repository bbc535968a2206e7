#include "worker/io/http_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Bounds of what a vendor can make us keep; beyond them a reply is incomplete. */
#define HEADER_TEXT_MAX  ((size_t)64 * 1024)
#define HEADER_COUNT_MAX 256u
/* Memory a call keeps between two uses. */
#define KEEP ((size_t)8 * 1024)

bool http_buf_reserve(struct http_buf *buf, size_t more)
{
    size_t need = buf->len + more + 1;
    size_t size = buf->size ? buf->size : 256;

    if (need <= buf->size)
        return true;
    while (size < need)
        size *= 2;
    char *data = realloc(buf->data, size);
    if (!data)
        return false;
    buf->data = data;
    buf->size = size;
    return true;
}

bool http_buf_add(struct http_buf *buf, const char *bytes, size_t len)
{
    if (!http_buf_reserve(buf, len))
        return false;
    memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
    return true;
}

void http_buf_clear(struct http_buf *buf, size_t keep)
{
    buf->len = 0;
    if (buf->size <= keep)
        return;
    free(buf->data);
    buf->data = NULL;
    buf->size = 0;
}

void http_reply_reset(struct http_reply *reply)
{
    reply->state = HTTP_REPLY_NONE;
    reply->status = 0;
    reply->broken = false;
    reply->count = 0;
    http_buf_clear(&reply->text, KEEP);
    http_buf_clear(&reply->body, KEEP);
}

void http_reply_done(struct http_reply *reply)
{
    http_buf_clear(&reply->text, 0);
    http_buf_clear(&reply->body, 0);
    free(reply->at);
    free(reply->headers);
    reply->at = NULL;
    reply->headers = NULL;
    reply->count = reply->size = 0;
}

/* "HTTP/1.1 200 OK": exactly three digits, else 0. */
static int parse_status(const char *line, size_t len)
{
    const char *p = memchr(line, ' ', len);
    const char *end = line + len;

    if (!p || end - p < 5)
        return 0;
    for (int i = 1; i <= 3; i++)
        if (!isdigit((unsigned char)p[i]))
            return 0;
    if (!isspace((unsigned char)p[4]))
        return 0;
    return (p[1] - '0') * 100 + (p[2] - '0') * 10 + (p[3] - '0');
}

static bool grow_headers(struct http_reply *reply)
{
    if (reply->count < reply->size)
        return true;
    size_t size = reply->size ? reply->size * 2 : 16;
    struct http_header_at *at = realloc(reply->at, size * sizeof(*at));
    if (!at)
        return false;
    reply->at = at;
    struct http_header *headers = realloc(reply->headers, size * sizeof(*headers));
    if (!headers)
        return false;
    reply->headers = headers;
    reply->size = size;
    return true;
}

static void trim(const char **text, size_t *len)
{
    while (*len > 0 && isspace((unsigned char)**text)) {
        (*text)++;
        (*len)--;
    }
    while (*len > 0 && isspace((unsigned char)(*text)[*len - 1]))
        (*len)--;
}

/* Adds text and a NUL; a NUL inside would hide what follows it. */
static bool add_text(struct http_buf *text, const char *bytes, size_t len, bool lower)
{
    size_t start = text->len;

    if (!http_buf_add(text, bytes, len) || !http_buf_add(text, "", 1))
        return false;
    for (size_t i = start; i < start + len; i++) {
        if (text->data[i] == '\0')
            text->data[i] = ' ';
        if (lower)
            text->data[i] = (char)tolower((unsigned char)text->data[i]);
    }
    return true;
}

/* An old-style continuation line belongs to the value before it, joined by a space. */
static bool add_fold(struct http_reply *reply, const char *line, size_t len)
{
    trim(&line, &len);
    if (reply->count == 0)
        return true;
    reply->text.data[reply->text.len - 1] = ' ';
    return add_text(&reply->text, line, len, false);
}

static bool add_header(struct http_reply *reply, const char *line, size_t len)
{
    if (len > HEADER_TEXT_MAX - reply->text.len || reply->count >= HEADER_COUNT_MAX)
        return false;
    if (*line == ' ' || *line == '\t')
        return add_fold(reply, line, len);
    const char *colon = memchr(line, ':', len);
    if (!colon)
        return true; /* no header; nobody can ask for it */
    size_t name_len = (size_t)(colon - line);
    const char *value = colon + 1;
    size_t value_len = len - name_len - 1;
    trim(&line, &name_len);
    trim(&value, &value_len);
    if (!grow_headers(reply))
        return false;
    struct http_header_at *at = &reply->at[reply->count];
    at->name = reply->text.len;
    if (!add_text(&reply->text, line, name_len, true))
        return false;
    at->value = reply->text.len;
    if (!add_text(&reply->text, value, value_len, false))
        return false;
    reply->count++;
    return true;
}

static void begin(struct http_reply *reply, const char *line, size_t len)
{
    int status = parse_status(line, len);

    if (status >= 200) {
        reply->status = status;
        reply->state = HTTP_REPLY_HEADERS;
    } else if (status >= 100) {
        reply->state = HTTP_REPLY_INTERIM;
    }
}

size_t http_reply_on_header(char *data, size_t size, size_t n, void *arg)
{
    struct http_reply *reply = arg;
    size_t len = size * n;

    if (len == 0 || data[len - 1] != '\n')
        return len; /* half a line proves nothing */
    bool blank = len == 1 || (len == 2 && data[0] == '\r');
    switch (reply->state) {
    case HTTP_REPLY_NONE:
        begin(reply, data, len);
        break;
    case HTTP_REPLY_INTERIM:
        if (blank)
            reply->state = HTTP_REPLY_NONE;
        break;
    case HTTP_REPLY_HEADERS:
        if (blank)
            reply->state = HTTP_REPLY_BODY;
        else if (!add_header(reply, data, len))
            reply->broken = true;
        break;
    case HTTP_REPLY_BODY:
        break; /* trailers */
    }
    return reply->broken ? 0 : len;
}

size_t http_reply_on_body(char *data, size_t size, size_t n, void *arg)
{
    struct http_reply *reply = arg;
    size_t len = size * n;
    size_t room = reply->body_cap - reply->body.len;

    if (len > room || !http_buf_add(&reply->body, data, len)) {
        if (len > room)
            (void)http_buf_add(&reply->body, data, room); /* the head is worth reading */
        reply->broken = true;
        return 0;
    }
    return len;
}

/* libcurl reads "2x" as 2 and the last of several lengths as the length. */
static bool lengths_agree(const struct http_reply *reply)
{
    const char *length = NULL;

    for (size_t i = 0; i < reply->count; i++) {
        const struct http_header *h = &reply->headers[i];

        if (strcmp(h->name, "content-length") != 0)
            continue;
        if (!*h->value || h->value[strspn(h->value, "0123456789")] != '\0')
            return false;
        if (length && strcmp(length, h->value) != 0)
            return false;
        length = h->value;
    }
    return true;
}

void http_reply_seal(struct http_reply *reply)
{
    for (size_t i = 0; i < reply->count; i++) {
        reply->headers[i].name = reply->text.data + reply->at[i].name;
        reply->headers[i].value = reply->text.data + reply->at[i].value;
    }
    reply->broken = reply->broken || !lengths_agree(reply);
}
