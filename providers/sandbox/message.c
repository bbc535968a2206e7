#include "providers/sandbox/message.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *string_of(const json_t *root, const char *name)
{
    return json_string_value(json_object_get(root, name));
}

/* A number, or a number in a string as forms and careless templates send it. */
static double number_of(const json_t *value)
{
    if (json_is_number(value))
        return json_number_value(value);
    const char *s = json_string_value(value);
    if (!s)
        return 0;
    char *end = NULL;
    double x = strtod(s, &end);
    return end != s && *end == '\0' && isfinite(x) ? x : 0;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c ? strchr(digits, c | 0x20) : NULL;

    return at ? (int)(at - digits) : -1;
}

/* Decodes one form field's name or value; the caller frees. NULL when out of memory. */
static char *form_decode(const char *s, size_t len)
{
    char *out = malloc(len + 1);
    size_t n = 0;

    if (!out)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        int high = s[i] == '%' && i + 2 < len ? hex_digit(s[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(s[i + 2]) : -1;
        if (low >= 0) {
            out[n++] = (char)(high * 16 + low);
            i += 2;
        } else {
            out[n++] = s[i];
            if (s[i] == '+')
                out[n - 1] = ' ';
        }
    }
    out[n] = '\0';
    return out;
}

static int form_field(json_t *root, const char *s, size_t len)
{
    const char *eq = memchr(s, '=', len);
    size_t name_len = eq ? (size_t)(eq - s) : len;
    char *name = form_decode(s, name_len);
    char *value = eq ? form_decode(eq + 1, len - name_len - 1) : form_decode("", 0);
    int rc = -EINVAL;

    /* json_string refuses what is not UTF-8 */
    if (name && value && json_object_set_new(root, name, json_string(value)) == 0)
        rc = 0;
    free(name);
    free(value);
    return rc;
}

static json_t *parse_form(const char *body, size_t len)
{
    json_t *root = json_object();

    for (size_t at = 0; root && at < len;) {
        const char *amp = memchr(body + at, '&', len - at);
        size_t part = amp ? (size_t)(amp - (body + at)) : len - at;
        if (part > 0 && form_field(root, body + at, part) < 0) {
            json_decref(root);
            return NULL;
        }
        at += part + 1;
    }
    return root;
}

int sb_message_parse(const char *body, size_t len, const char *content_type,
                     struct sb_message *ret_message)
{
    static const char form[] = "application/x-www-form-urlencoded";

    memset(ret_message, 0, sizeof(*ret_message));
    if (content_type && strncasecmp(content_type, form, sizeof(form) - 1) == 0)
        ret_message->root = parse_form(body, len);
    else
        ret_message->root = json_loadb(body, len, 0, NULL);
    if (!json_is_object(ret_message->root))
        return -EINVAL;
    ret_message->to = string_of(ret_message->root, "to");
    ret_message->text = string_of(ret_message->root, "text");
    ret_message->key = string_of(ret_message->root, "key");
    ret_message->lane = string_of(ret_message->root, "lane");
    ret_message->t_ms = number_of(json_object_get(ret_message->root, "t"));
    return 0;
}

void sb_message_done(struct sb_message *m)
{
    json_decref(m->root);
    memset(m, 0, sizeof(*m));
}
