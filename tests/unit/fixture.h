/* fixture.h - reading one case of a plugin's fixtures and comparing what came out. For
 * test_plugins.c, which tells the rules. */
#ifndef POSTRIDER_TESTS_FIXTURE_H
#define POSTRIDER_TESTS_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/engine/plugin.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FIXTURE_HEADERS_MAX = 32 };

/* ---- reading a case ------------------------------------------------------------------------- */

static inline const json_t *member(const json_t *object, const char *name)
{
    return json_object_get(object, name);
}

static inline const char *text_of(const json_t *object, const char *name)
{
    return json_string_value(member(object, name));
}

static inline int64_t number_of(const json_t *object, const char *name, int64_t otherwise)
{
    const json_t *value = member(object, name);

    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* `names` are between blanks. */
static inline void only(const json_t *object, const char *names)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)object, name, value) {
        char *padded = NULL;

        assert_true(asprintf(&padded, " %s ", name) > 0);
        if (!strstr(names, padded))
            fail_msg("the fixture names \"%s\"; known here:%s", name, names);
        free(padded);
    }
}

/* A body is a string, or {"$json": …} written compactly. The caller frees. */
static inline char *body_of(const json_t *object, size_t *ret_len)
{
    const json_t *body = member(object, "body");
    char *copy;

    if (json_is_object(body)) {
        only(body, " $json ");
        copy = json_dumps(member(body, "$json"), JSON_COMPACT | JSON_ENCODE_ANY);
        assert_non_null(copy);
        *ret_len = strlen(copy);
        return copy;
    }
    *ret_len = json_string_length(body);
    copy = malloc(*ret_len + 1);
    assert_non_null(copy);
    memcpy(copy, body ? json_string_value(body) : "", *ret_len + 1);
    return copy;
}

static inline size_t headers_of(const json_t *object,
                                struct provider_header headers[FIXTURE_HEADERS_MAX])
{
    const char *name;
    json_t *value;
    size_t n = 0;

    json_object_foreach ((json_t *)member(object, "headers"), name, value) {
        assert_true(n < FIXTURE_HEADERS_MAX);
        for (const char *p = name; *p; p++)
            if (*p >= 'A' && *p <= 'Z')
                fail_msg("header \"%s\": names come in lower case", name);
        headers[n].name = name;
        headers[n++].value = json_string_value(value);
    }
    return n;
}

/* ---- comparing ------------------------------------------------------------------------------ */

static inline void same(const char *what, const char *is, const char *wanted)
{
    if (is && wanted ? strcmp(is, wanted) != 0 : is != wanted)
        fail_msg("%s is %s, wanted %s", what, is ? is : "none", wanted ? wanted : "none");
}

static inline void same_number(const char *what, int64_t is, int64_t wanted)
{
    if (is != wanted)
        fail_msg("%s is %lld, wanted %lld", what, (long long)is, (long long)wanted);
}

/* Details are for people: a part of the words will do. Bodies repeat the message, and nothing of
 * that may reach a record on its own. */
static inline void same_detail(const char *is, const json_t *wanted)
{
    const char *part = text_of(wanted, "detail");

    if (part && (!is || !strstr(is, part)))
        fail_msg("detail is %s, wanted %s", is ? is : "none", part);
    assert_true(!is || !strstr(is, "482913"));
}

static inline void same_list(const char *what, char **is, size_t n, const json_t *wanted)
{
    same_number(what, (int64_t)n, (int64_t)json_array_size(wanted));
    for (size_t i = 0; i < n; i++)
        same(what, is[i], json_string_value(json_array_get(wanted, i)));
}

static inline size_t index_of(const char *what, const char *const *names, const char *name)
{
    for (size_t i = 0; name && names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fail_msg("the fixture's %s is %s", what, name ? name : "missing");
    return 0;
}

static inline void same_headers(const json_t *wanted, const struct plugin_request *request)
{
    const char *name;
    json_t *value;

    if (!wanted)
        return;
    for (size_t i = 0; i < request->headers_count; i++) {
        const struct http_header *h = &request->headers[i];
        bool found = false;

        json_object_foreach ((json_t *)wanted, name, value)
            if (strcasecmp(name, h->name) == 0) {
                same(name, h->value, json_string_value(value));
                found = true;
            }
        if (!found)
            fail_msg("header %s: %s is not wanted", h->name, h->value);
    }
    same_number("the number of headers", (int64_t)request->headers_count,
                (int64_t)json_object_size(wanted));
}

/* A string is the very bytes; {"$json": …} what a vendor's parser must make of them. */
static inline void same_body(const json_t *wanted, const struct plugin_request *request)
{
    json_t *read;

    if (!wanted || json_is_null(wanted)) {
        same("the body", request->body, NULL);
    } else if (json_is_string(wanted)) {
        same("the body", request->body, json_string_value(wanted));
        same_number("the body's length", (int64_t)request->body_len,
                    (int64_t)json_string_length(wanted));
    } else {
        only(wanted, " $json ");
        assert_non_null(request->body);
        read = json_loadb(request->body, request->body_len, JSON_REJECT_DUPLICATES, NULL);
        if (!json_equal(read, member(wanted, "$json")))
            fail_msg("the body is %s", request->body);
        json_decref(read);
    }
}

static inline void same_request(const json_t *wanted, const struct plugin_request *request)
{
    only(wanted, " method url headers body sigv4 sigv4_userpwd ");
    same("the method", request->method, text_of(wanted, "method"));
    same("the URL", request->url, text_of(wanted, "url"));
    same_headers(member(wanted, "headers"), request);
    same_body(member(wanted, "body"), request);
    same("the signature", request->sigv4, text_of(wanted, "sigv4"));
    if (member(wanted, "sigv4_userpwd"))
        same("its keys", request->sigv4_userpwd, text_of(wanted, "sigv4_userpwd"));
}

#endif
