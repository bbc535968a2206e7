#include "providers/kit/callback.h"

#include <string.h>

static const char *header(const struct provider_header *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].value;
    return NULL;
}

static const char *param(const struct provider_param *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].value;
    return NULL;
}

const char *reply_header(const struct provider_reply *r, const char *name)
{
    return header(r->headers, r->headers_count, name);
}

const char *callback_header(const struct provider_callback *cb, const char *name)
{
    return header(cb->headers, cb->headers_count, name);
}

const char *callback_query(const struct provider_callback *cb, const char *name)
{
    return param(cb->query, cb->query_count, name);
}

const char *callback_form(const struct provider_callback *cb, const char *name)
{
    return param(cb->form, cb->form_count, name);
}

const char *callback_param(const struct provider_callback *cb, const char *name)
{
    const char *value = callback_form(cb, name);

    return value ? value : callback_query(cb, name);
}
