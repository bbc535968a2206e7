#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "worker/io/serve.h"
#include "worker/io/serve_internal.h"

bool serve_secret_equal(const char *wanted, const char *offered)
{
    size_t wanted_len = strlen(wanted), len = strlen(offered);
    volatile unsigned char differ = wanted_len != len;

    for (size_t i = 0; i < len; i++)
        differ = differ | (unsigned char)(offered[i] ^ wanted[i % wanted_len]);
    return !differ;
}

static bool token_offered(const char *token, struct MHD_Connection *c, unsigned method)
{
    const char *auth = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Authorization");
    const char *cookie;

    if (auth && strncasecmp(auth, "Bearer ", 7) == 0)
        return serve_secret_equal(token, auth + 7 + strspn(auth + 7, " "));
    if (method != SERVE_GET)
        return false;
    cookie = MHD_lookup_connection_value(c, MHD_COOKIE_KIND, "postrider_token");
    return cookie && serve_secret_equal(token, cookie);
}

static bool in_loopback_net(const void *v4)
{
    return *(const unsigned char *)v4 == 127;
}

static bool peer_is_loopback(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CLIENT_ADDRESS);

    if (!info || !info->client_addr)
        return false;
    if (info->client_addr->sa_family == AF_INET)
        return in_loopback_net(&((const struct sockaddr_in *)info->client_addr)->sin_addr);
    if (info->client_addr->sa_family == AF_INET6) {
        const struct in6_addr *a = &((const struct sockaddr_in6 *)info->client_addr)->sin6_addr;

        return IN6_IS_ADDR_LOOPBACK(a) ||
               (IN6_IS_ADDR_V4MAPPED(a) && in_loopback_net(&a->s6_addr[12]));
    }
    return false;
}

/* The name the client believes it talks to: a page from elsewhere that had its own name
 * resolve to 127.0.0.1 still names itself here. */
static bool host_is_loopback(struct MHD_Connection *c)
{
    const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");
    char name[64];
    struct in_addr v4;
    size_t len;

    if (!host)
        return false;
    len = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (len >= sizeof(name) || len > strlen(host) || (host[len] && host[len] != ':'))
        return false;
    memcpy(name, host, len);
    name[len] = '\0';
    return strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0 ||
           (inet_pton(AF_INET, name, &v4) == 1 && in_loopback_net(&v4));
}

static bool through_proxy(struct MHD_Connection *c)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, "X-Forwarded-For") ||
           MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Forwarded") ||
           MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Via");
}

unsigned serve_guard(const char *token, struct MHD_Connection *c, unsigned method)
{
    if (token)
        return token_offered(token, c, method) ? 0 : MHD_HTTP_UNAUTHORIZED;
    return peer_is_loopback(c) && host_is_loopback(c) && !through_proxy(c) ? 0 : MHD_HTTP_FORBIDDEN;
}
