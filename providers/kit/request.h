/* request.h - filling in a request at once. Pure; all arguments are borrowed.
 *
 * Each returns 0 or a negative errno to pass on. */
#ifndef POSTRIDER_KIT_REQUEST_H
#define POSTRIDER_KIT_REQUEST_H

#include <jansson.h>

#include "providers/provider.h"

/* "Basic …" of user and password, "Bearer …" of a token: values of an Authorization header.
 * Allocated; NULL when out of memory. */
char *request_basic(const char *user, const char *password);
char *request_bearer(const char *token);

/* A GET; `authorization` NULL: without that header. */
int request_get(const struct provider_host *host, struct provider_req *req, const char *url,
                const char *authorization);
/* A POST of a body of that type. */
int request_post(const struct provider_host *host, struct provider_req *req, const char *url,
                 const char *authorization, const char *type, const char *body, size_t len);
/* A POST of compact JSON. `take` is decref'd in any case; NULL (it could not be made: a text that
 * is not UTF-8, or no memory) gives -EINVAL. */
int request_post_json(const struct provider_host *host, struct provider_req *req, const char *url,
                      const char *authorization, json_t *take);

#endif
