#include "worker/io/sdnotify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { STATUS_BYTES = 200, USEC_PER_SEC = 1000000 };

/* A path, or '@' for a name in the abstract space, where the first byte is 0 and the length,
 * not a zero byte, ends the name. */
static int address_read(const char *name, struct sockaddr_un *ret_addr, socklen_t *ret_len)
{
    size_t len = strlen(name);

    *ret_addr = (struct sockaddr_un){.sun_family = AF_UNIX};
    if ((name[0] != '/' && name[0] != '@') || len < 2 || len >= sizeof(ret_addr->sun_path))
        return -EINVAL;
    memcpy(ret_addr->sun_path, name, len);
    if (name[0] == '@')
        ret_addr->sun_path[0] = '\0';
    *ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    if (name[0] == '/')
        *ret_len += 1;
    return 0;
}

static int tell(const char *text, size_t len)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr;
    socklen_t addr_len;
    int fd, r;

    if (!name || !*name)
        return 0;
    r = address_read(name, &addr, &addr_len);
    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    r = sendto(fd, text, len, MSG_NOSIGNAL, (struct sockaddr *)&addr, addr_len) < 0 ? -errno : 1;
    close(fd);
    return r;
}

static int tell_status(const char *before, const char *status)
{
    size_t len = strcspn(status, "\r\n");
    char text[STATUS_BYTES + 32];
    int n;

    if (len > STATUS_BYTES)
        len = STATUS_BYTES;
    n = snprintf(text, sizeof(text), "%sSTATUS=%.*s", before, (int)len, status);
    return tell(text, (size_t)n);
}

int sdnotify_ready(const char *status)
{
    return status ? tell_status("READY=1\n", status) : tell("READY=1", strlen("READY=1"));
}

int sdnotify_status(const char *status)
{
    return tell_status("", status);
}

int sdnotify_reloading(void)
{
    char text[64];
    struct timespec t;
    int n;

    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        return -errno;
    n = snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
                 (int64_t)t.tv_sec * USEC_PER_SEC + t.tv_nsec / 1000);
    return tell(text, (size_t)n);
}

int sdnotify_stopping(void)
{
    return tell("STOPPING=1", strlen("STOPPING=1"));
}

int sdnotify_watchdog(void)
{
    return tell("WATCHDOG=1", strlen("WATCHDOG=1"));
}

/* A decimal number without sign or blank from the environment; 0 when absent or no number. */
static uint64_t env_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    unsigned long long n;

    if (!text || *text < '0' || *text > '9')
        return 0;
    errno = 0;
    n = strtoull(text, &end, 10);
    return errno || *end ? 0 : n;
}

double sdnotify_watchdog_interval(void)
{
    uint64_t pid = env_number("WATCHDOG_PID");

    if (getenv("WATCHDOG_PID") && pid != (uint64_t)getpid())
        return 0;
    return (double)env_number("WATCHDOG_USEC") / USEC_PER_SEC / 2;
}
