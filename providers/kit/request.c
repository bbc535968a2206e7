#include "providers/kit/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/json.h"
#include "providers/kit/sign.h"

char *request_basic(const char *user, const char *password)
{
    char *pair = NULL, *value = NULL, *coded;

    if (asprintf(&pair, "%s:%s", user, password) < 0)
        return NULL;
    coded = sign_base64((const uint8_t *)pair, strlen(pair));
    if (!coded || asprintf(&value, "Basic %s", coded) < 0)
        value = NULL;
    free(coded);
    free(pair);
    return value;
}

char *request_bearer(const char *token)
{
    char *value = NULL;

    return asprintf(&value, "Bearer %s", token) < 0 ? NULL : value;
}

static int begin(const struct provider_host *host, struct provider_req *req, const char *method,
                 const char *url, const char *authorization)
{
    int r = host->req_method(req, method);

    if (r == 0)
        r = host->req_url(req, url);
    if (r == 0 && authorization)
        r = host->req_header(req, "Authorization", authorization);
    if (r == 0)
        r = host->req_header(req, "Accept", "application/json");
    return r;
}

int request_get(const struct provider_host *host, struct provider_req *req, const char *url,
                const char *authorization)
{
    return begin(host, req, "GET", url, authorization);
}

int request_post(const struct provider_host *host, struct provider_req *req, const char *url,
                 const char *authorization, const char *type, const char *body, size_t len)
{
    int r = begin(host, req, "POST", url, authorization);

    if (r == 0)
        r = host->req_header(req, "Content-Type", type);
    if (r == 0)
        r = host->req_body(req, body, len);
    return r;
}

int request_post_json(const struct provider_host *host, struct provider_req *req, const char *url,
                      const char *authorization, json_t *take)
{
    char *text = take ? json_text(take) : NULL;
    int r = !take ? -EINVAL : -ENOMEM;

    if (text)
        r = request_post(host, req, url, authorization, "application/json", text, strlen(text));
    free(text);
    json_decref(take);
    return r;
}
