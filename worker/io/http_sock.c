#include "worker/io/http_internal.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int http_socks_init(struct http_socks *socks, unsigned max_calls)
{
    size_t size = 64;

    while (size < max_calls && size < 65536)
        size *= 2;
    socks->by_port = calloc(size, sizeof(struct http_sock *));
    if (!socks->by_port)
        return -ENOMEM;
    socks->by_port_size = size;
    return 0;
}

static struct http_sock *by_fd(const struct http_socks *socks, int fd)
{
    return (size_t)fd < socks->by_fd_size ? socks->by_fd[fd] : NULL;
}

static bool make_room(struct http_socks *socks, int fd)
{
    size_t size = socks->by_fd_size ? socks->by_fd_size : 256;

    if ((size_t)fd < socks->by_fd_size)
        return true;
    while (size <= (size_t)fd)
        size *= 2;
    struct http_sock **grown = realloc(socks->by_fd, size * sizeof(struct http_sock *));
    if (!grown)
        return false;
    memset(grown + socks->by_fd_size, 0, (size - socks->by_fd_size) * sizeof(struct http_sock *));
    socks->by_fd = grown;
    socks->by_fd_size = size;
    return true;
}

/* --- the event loop -------------------------------------------------------------------------- */

static void on_io(struct ev_loop *loop, ev_io *io, int events)
{
    struct http_sock *sock = io->data;
    struct http_pool *pool;
    int mask = 0;

    if (sock->wanted == 0) {
        /* Something came while idle. The look before the next permit will find it. */
        ev_io_stop(loop, io);
        return;
    }
    if (events & EV_READ)
        mask |= CURL_CSELECT_IN;
    if (events & EV_WRITE)
        mask |= CURL_CSELECT_OUT;
    if (events & EV_ERROR)
        mask |= CURL_CSELECT_ERR;
    pool = sock->lane->pool;
    http_lane_act(sock->lane, sock->fd, mask); /* may free sock */
    http_pool_between(pool);
}

static void unlink_from(struct http_sock **list, const struct http_sock *sock)
{
    for (; *list; list = &(*list)->next)
        if (*list == sock) {
            *list = sock->next;
            return;
        }
}

static struct http_sock **chain(struct http_socks *socks, int port)
{
    return &socks->by_port[(size_t)port & (socks->by_port_size - 1)];
}

static void drop(struct http_sock *sock)
{
    struct http_pool *pool = sock->lane->pool;

    ev_io_stop(pool->loop, &sock->io);
    if (sock->named)
        unlink_from(chain(&pool->socks, sock->address.local_port), sock);
    else if (sock->opener)
        unlink_from(&sock->opener->opening, sock);
    pool->socks.by_fd[sock->fd] = NULL;
    free(sock);
}

void http_socks_done(struct http_socks *socks)
{
    for (size_t fd = 0; fd < socks->by_fd_size; fd++)
        if (socks->by_fd[fd])
            drop(socks->by_fd[fd]);
    free(socks->by_port);
    free(socks->by_fd);
}

static struct http_sock *add(struct http_lane *lane, int fd)
{
    struct http_socks *socks = &lane->pool->socks;

    if (fd < 0 || !make_room(socks, fd))
        return NULL;
    if (socks->by_fd[fd])
        drop(socks->by_fd[fd]); /* libcurl closes without a word what never was connected */
    struct http_sock *sock = calloc(1, sizeof(*sock));
    if (!sock)
        return NULL;
    sock->lane = lane;
    sock->fd = fd;
    ev_io_init(&sock->io, on_io, fd, 0);
    sock->io.data = sock;
    socks->by_fd[fd] = sock;
    return sock;
}

static void watch(struct ev_loop *loop, struct http_sock *sock, int events)
{
    sock->wanted = events;
    if (ev_is_active(&sock->io) && sock->io.events == events)
        return;
    ev_io_stop(loop, &sock->io);
    ev_io_set(&sock->io, sock->fd, events);
    ev_io_start(loop, &sock->io);
}

/* Idle, or about to be closed. A read watcher stays on: the next request on this connection
 * then needs no system call to arm it. */
static void unwatch(struct ev_loop *loop, struct http_sock *sock)
{
    sock->wanted = 0;
    if (sock->foreign)
        drop(sock);
    else if (sock->io.events != EV_READ)
        ev_io_stop(loop, &sock->io);
}

int http_sock_on_poll(CURL *easy, curl_socket_t fd, int what, void *arg, void *socketp)
{
    struct http_lane *lane = arg;
    struct http_sock *sock = by_fd(&lane->pool->socks, fd);

    (void)easy;
    (void)socketp;
    if (what == CURL_POLL_REMOVE) {
        if (sock)
            unwatch(lane->pool->loop, sock);
        return 0;
    }
    if (!sock) {
        sock = add(lane, fd);
        if (!sock)
            return -1;
        sock->foreign = true;
    }
    int events = (what & CURL_POLL_IN ? EV_READ : 0) | (what & CURL_POLL_OUT ? EV_WRITE : 0);
    watch(lane->pool->loop, sock, events);
    return 0;
}

/* --- opening and closing --------------------------------------------------------------------- */

/* A killed process must not go on sending from the kernel's buffers (rule R5): closing drops
 * what was not delivered, and a peer that stops acknowledging ends the connection in time. */
static void set_options(int fd, int64_t timeout_ms)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    unsigned int ms = timeout_ms > 0 && timeout_ms < INT32_MAX ? (unsigned int)timeout_ms : 0;

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

curl_socket_t http_sock_on_open(void *arg, curlsocktype purpose, struct curl_sockaddr *addr)
{
    struct http_call *call = arg;

    (void)purpose;
    int fd = socket(addr->family, addr->socktype | SOCK_CLOEXEC, addr->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    struct http_sock *sock = add(call->lane, fd);
    if (!sock) {
        close(fd);
        return CURL_SOCKET_BAD;
    }
    set_options(fd, call->timeout_ms);
    sock->opener = call;
    sock->next = call->opening;
    call->opening = sock;
    call->opened = true;
    return fd;
}

int http_sock_on_close(void *arg, curl_socket_t fd)
{
    struct http_pool *pool = arg;
    struct http_sock *sock = by_fd(&pool->socks, fd);

    if (sock)
        drop(sock); /* its watcher stops before the number can mean another socket */
    return close(fd);
}

void http_sock_forget(struct http_call *call)
{
    struct http_sock *sock;

    while ((sock = call->opening) != NULL) {
        call->opening = sock->next;
        sock->opener = NULL;
        drop(sock);
    }
}

/* --- the look before a permit ---------------------------------------------------------------- */

static int local_port(int fd)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);

    if (getsockname(fd, (struct sockaddr *)&addr, &len) != 0)
        return -1;
    if (addr.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)&addr)->sin6_port);
    return addr.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&addr)->sin_port) : -1;
}

/* One local port may serve several remote addresses: all four parts must agree. */
static bool same_address(const struct http_address *a, const struct http_address *b)
{
    return a->local_port == b->local_port && a->remote_port == b->remote_port &&
           strcmp(a->remote_ip, b->remote_ip) == 0 && strcmp(a->local_ip, b->local_ip) == 0;
}

static void name(struct http_sock *sock, const struct http_address *address)
{
    struct http_sock **list = chain(&sock->lane->pool->socks, address->local_port);

    unlink_from(&sock->opener->opening, sock);
    sock->opener = NULL;
    sock->named = true;
    sock->address = *address;
    sock->next = *list;
    *list = sock;
}

struct http_sock *http_sock_find(struct http_call *call, const struct http_address *address,
                                 bool *ret_fresh)
{
    struct http_sock *sock;

    *ret_fresh = true;
    for (sock = call->opening; sock; sock = sock->next)
        if (local_port(sock->fd) == address->local_port) {
            name(sock, address);
            return sock;
        }
    *ret_fresh = false;
    for (sock = *chain(&call->pool->socks, address->local_port); sock; sock = sock->next)
        if (same_address(&sock->address, address))
            return sock;
    return NULL;
}

bool http_sock_is_clean(const struct http_sock *sock, bool fresh_tls)
{
    char byte;
    ssize_t n = recv(sock->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    if (n > 0)
        return fresh_tls;
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}
