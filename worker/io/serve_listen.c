#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "worker/io/serve_internal.h"

enum { BACKLOG = 64 };

void serve_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

struct listen {
    char *host; /* "" = every address */
    const char *port;
};

static void listen_done(struct listen *l)
{
    free(l->host);
}

/* "host:port", "[v6]:port", ":port". */
static int listen_parse(const char *text, struct listen *ret, struct err *err)
{
    const char *colon = strrchr(text, ':');
    const char *host = text;
    size_t len;

    if (!colon || colon[1] == '\0' || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strlen(colon + 1) > 5 || strtoul(colon + 1, NULL, 10) > UINT16_MAX) {
        err_set(err, -EINVAL, "listen: \"%s\" is not host:port", text);
        err_hint(err, "for example 127.0.0.1:8025, [::1]:8025, or :8025 for every address");
        return -EINVAL;
    }
    len = (size_t)(colon - text);
    if (len >= 2 && host[0] == '[' && host[len - 1] == ']') {
        host++;
        len -= 2;
    } else if (memchr(host, ':', len)) {
        err_set(err, -EINVAL, "listen: an IPv6 address needs brackets: [%.*s]%s", (int)len, text,
                colon);
        return -EINVAL;
    }
    ret->host = strndup(host, len);
    ret->port = colon + 1;
    return ret->host ? 0 : -ENOMEM;
}

static void addrinfo_free(struct addrinfo **list)
{
    if (*list)
        freeaddrinfo(*list);
}

static int bind_one(const struct addrinfo *a, int *ret_fd)
{
    CLEANUP(serve_close_fd)
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, off = 0;

    if (fd < 0)
        return -errno;
    /* A restart finds its port still in TIME_WAIT; two living workers are still refused. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0)
        return -errno;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int serve_listen(const char *text, int *ret_fd, struct err *err)
{
    CLEANUP(listen_done) struct listen l = {0};
    CLEANUP(addrinfo_free) struct addrinfo *list = NULL;
    struct addrinfo want = {.ai_socktype = SOCK_STREAM,
                            .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
    const char *host;
    int r = listen_parse(text, &l, err);

    if (r < 0)
        return r;
    host = strcmp(l.host, "localhost") == 0 ? "127.0.0.1" : l.host;
    if (!*host)
        host = "::"; /* every address of both families, where the host has both */
    r = getaddrinfo(host, l.port, &want, &list);
    if (r != 0) {
        err_set(err, -EINVAL, "listen: \"%s\" is not an address of this host", l.host);
        err_hint(err, "names are not looked up here; write the address, or localhost");
        return -EINVAL;
    }
    r = bind_one(list, ret_fd);
    if (r == -EAFNOSUPPORT && !*l.host) {
        freeaddrinfo(list);
        list = NULL;
        if (getaddrinfo("0.0.0.0", l.port, &want, &list) == 0)
            r = bind_one(list, ret_fd);
    }
    return r < 0 ? err_set(err, r, "could not listen on %s: %s", text, strerror(-r)) : 0;
}

int serve_listen_address(int fd, char **ret_address, int *ret_port)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof(a);
    char host[INET6_ADDRSTRLEN], port[8];
    char *address;

    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0 ||
        getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return -EIO;
    if (asprintf(&address, a.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port) < 0)
        return -ENOMEM;
    *ret_address = address;
    *ret_port = (int)strtol(port, NULL, 10);
    return 0;
}
