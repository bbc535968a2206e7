#include "worker/io/serve_internal.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define POLICY_NOTHING                                                                             \
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#define POLICY_PAGE                                                                                \
    "; connect-src 'self'; img-src data:; script-src 'nonce-%s'; style-src 'nonce-%s'"

/* Sets a header, in place of one of that name. */
static void put_header(struct MHD_Response *r, const char *name, const char *value)
{
    const char *old = MHD_get_response_header(r, name);

    if (old)
        MHD_del_response_header(r, name, old);
    MHD_add_response_header(r, name, value);
}

static void put_security(struct MHD_Response *r, const struct serve_reply *reply)
{
    char policy[sizeof(POLICY_NOTHING) + sizeof(POLICY_PAGE) + 2 * sizeof(reply->nonce)];
    int n = snprintf(policy, sizeof(policy), "%s", POLICY_NOTHING);

    if (reply->nonce[0])
        snprintf(policy + n, sizeof(policy) - (size_t)n, POLICY_PAGE, reply->nonce, reply->nonce);
    put_header(r, "Content-Security-Policy", policy);
    put_header(r, "X-Content-Type-Options", "nosniff");
    put_header(r, "Cache-Control", "no-store");
    put_header(r, "Referrer-Policy", "no-referrer");
}

struct MHD_Response *serve_response_take(const struct serve_reply *reply)
{
    struct MHD_Response *r;

    if (reply->fixed)
        r = MHD_create_response_from_buffer(reply->fixed_len, (void *)(uintptr_t)reply->fixed,
                                            MHD_RESPMEM_PERSISTENT);
    else if (reply->body)
        r = MHD_create_response_from_buffer(reply->body_len ? reply->body_len : strlen(reply->body),
                                            reply->body, MHD_RESPMEM_MUST_FREE);
    else
        r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (!r) {
        free(reply->body);
        return NULL;
    }
    put_security(r, reply);
    put_header(r, "Content-Type",
               reply->content_type ? reply->content_type : "text/plain; charset=utf-8");
    for (size_t i = 0; i < SERVE_REPLY_HEADERS && reply->headers[i].name; i++)
        put_header(r, reply->headers[i].name, reply->headers[i].value);
    return r;
}

enum MHD_Result serve_queue_take(struct MHD_Connection *c, unsigned status, struct MHD_Response *r)
{
    enum MHD_Result queued;

    if (!r)
        return MHD_NO; /* closes the connection: out of memory */
    queued = MHD_queue_response(c, status ? status : MHD_HTTP_INTERNAL_SERVER_ERROR, r);
    MHD_destroy_response(r);
    return queued;
}

enum MHD_Result serve_answer_take(struct MHD_Connection *c, struct serve_reply *reply)
{
    return serve_queue_take(c, reply->status, serve_response_take(reply));
}

enum MHD_Result serve_refuse(struct MHD_Connection *c, unsigned status,
                             const struct serve_route *route)
{
    struct serve_reply reply = {.status = status,
                                .content_type = "application/json; charset=utf-8"};
    const char *json;

    switch (status) {
    case MHD_HTTP_UNAUTHORIZED:
        json = "{\"error\":\"the admin token is needed\"}\n";
        reply.headers[0].name = "WWW-Authenticate";
        reply.headers[0].value = "Bearer realm=\"postrider\"";
        break;
    case MHD_HTTP_FORBIDDEN:
        json = "{\"error\":\"without an admin token this answers only to this host itself\","
               "\"hint\":\"set admin_token in the configuration\"}\n";
        break;
    case MHD_HTTP_NOT_FOUND:
        json = "{\"error\":\"no such page\"}\n";
        break;
    case MHD_HTTP_METHOD_NOT_ALLOWED:
        json = "{\"error\":\"this page does not take this method\"}\n";
        reply.headers[0].name = "Allow";
        reply.headers[0].value = !(route->methods & SERVE_POST)  ? "GET, HEAD"
                                 : !(route->methods & SERVE_GET) ? "POST"
                                                                 : "GET, HEAD, POST";
        break;
    case MHD_HTTP_SERVICE_UNAVAILABLE:
        json = "{\"error\":\"too much at once: try again\"}\n";
        break;
    default:
        json = "{\"error\":\"the request body is too long\"}\n";
        break;
    }
    reply.fixed = json;
    reply.fixed_len = strlen(json);
    return serve_answer_take(c, &reply);
}

int serve_page(const void *html, size_t len, struct serve_reply *reply)
{
    static const char mark[] = "{{nonce}}";
    unsigned char random[16];
    const char *from = html, *end = from + len;
    char *out;

    _Static_assert(sizeof(reply->nonce) == 2 * sizeof(random) + 1, "a nonce is 16 bytes in hex");
    if (getrandom(random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random))
        return -EIO;
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(reply->nonce + 2 * i, 3, "%02x", random[i]);
    /* The mark is 9 bytes, the nonce 32: no page can need more than four times its room. */
    reply->body = out = malloc(4 * len + 1);
    if (!out)
        return -ENOMEM;
    while (from < end) {
        const char *hit = memmem(from, (size_t)(end - from), mark, sizeof(mark) - 1);
        size_t plain = (size_t)((hit ? hit : end) - from);

        memcpy(out, from, plain);
        out += plain;
        from += plain;
        if (hit) {
            memcpy(out, reply->nonce, 2 * sizeof(random));
            out += 2 * sizeof(random);
            from += sizeof(mark) - 1;
        }
    }
    *out = '\0';
    reply->body_len = (size_t)(out - reply->body);
    reply->content_type = "text/html; charset=utf-8";
    reply->status = MHD_HTTP_OK;
    return 0;
}
