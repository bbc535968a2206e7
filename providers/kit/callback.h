/* callback.h - looking into a reply or a callback. Pure; everything returned is borrowed. */
#ifndef POSTRIDER_KIT_CALLBACK_H
#define POSTRIDER_KIT_CALLBACK_H

#include "providers/provider.h"

/* The first of that name (lower case), NULL when there is none. */
const char *reply_header(const struct provider_reply *r, const char *name);
const char *callback_header(const struct provider_callback *cb, const char *name);

/* A parameter of the query, of the form body, or of either (form first). */
const char *callback_query(const struct provider_callback *cb, const char *name);
const char *callback_form(const struct provider_callback *cb, const char *name);
const char *callback_param(const struct provider_callback *cb, const char *name);

#endif
