/* The service manager's side of the socket: what arrives, and that nobody waits for it. */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/io/sdnotify.h"

static char path[sizeof("/tmp/postrider-XXXXXX/notify")];
static int manager = -1;
static char got[4096];

static void listen_at(const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t len = strlen(name);

    memcpy(a.sun_path, name, len);
    if (name[0] == '@')
        a.sun_path[0] = '\0';
    manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(manager >= 0);
    assert_int_equal(bind(manager, (struct sockaddr *)&a,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)),
                     0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
}

static const char *received(void)
{
    ssize_t n = recv(manager, got, sizeof(got) - 1, 0);

    got[n > 0 ? n : 0] = '\0';
    return got;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "/tmp/postrider-XXXXXX");
    if (!mkdtemp(path))
        return -1;
    memcpy(path + strlen(path), "/notify", sizeof("/notify"));
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    if (manager >= 0)
        close(manager);
    manager = -1;
    unlink(path);
    *strrchr(path, '/') = '\0';
    return rmdir(path);
}

static void nothing_outside_a_service_manager(void **state)
{
    (void)state;
    assert_int_equal(sdnotify_ready("x"), 0);
    assert_int_equal(sdnotify_stopping(), 0);
    assert_true(sdnotify_watchdog_interval() == 0);
}

static void every_word_arrives(void **state)
{
    (void)state;
    listen_at(path);
    assert_int_equal(sdnotify_ready(NULL), 1);
    assert_string_equal(received(), "READY=1");
    assert_int_equal(sdnotify_ready("12 in the air"), 1);
    assert_string_equal(received(), "READY=1\nSTATUS=12 in the air");
    assert_int_equal(sdnotify_status("database down\nREADY=1"), 1);
    assert_string_equal(received(), "STATUS=database down"); /* no second line is slipped in */
    assert_int_equal(sdnotify_watchdog(), 1);
    assert_string_equal(received(), "WATCHDOG=1");
    assert_int_equal(sdnotify_stopping(), 1);
    assert_string_equal(received(), "STOPPING=1");
}

static int64_t monotonic_us(void)
{
    struct timespec t;

    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &t), 0);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* systemd takes only a READY=1 that is later than this stamp as the end of the reload. */
static void reload_carries_the_monotonic_clock(void **state)
{
    int64_t before, stamp = 0, after;

    (void)state;
    listen_at(path);
    before = monotonic_us();
    assert_int_equal(sdnotify_reloading(), 1);
    after = monotonic_us();
    assert_int_equal(sscanf(received(), "RELOADING=1\nMONOTONIC_USEC=%" SCNd64, &stamp), 1);
    assert_true(before <= stamp && stamp <= after);
}

static void abstract_names_work(void **state)
{
    char name[64];

    (void)state;
    snprintf(name, sizeof(name), "@postrider-test-%d", (int)getpid());
    listen_at(name);
    assert_int_equal(sdnotify_watchdog(), 1);
    assert_string_equal(received(), "WATCHDOG=1");
}

static void wrong_names_are_refused(void **state)
{
    char name[200];

    (void)state;
    memset(name, 'a', sizeof(name) - 1);
    name[0] = '/';
    name[sizeof(name) - 1] = '\0';
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    assert_int_equal(sdnotify_ready(NULL), -EINVAL);
    assert_int_equal(setenv("NOTIFY_SOCKET", "relative", 1), 0);
    assert_int_equal(sdnotify_ready(NULL), -EINVAL);
    assert_int_equal(setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1), 0);
    assert_int_equal(sdnotify_ready(NULL), -ENOENT);
}

/* The kernel queues a bounded number of datagrams; the one too many is refused at once. */
static void a_full_queue_is_not_waited_for(void **state)
{
    int r = 1, i;

    (void)state;
    listen_at(path);
    for (i = 0; i < 100000 && r == 1; i++)
        r = sdnotify_watchdog();
    assert_int_equal(r, -EAGAIN);
    assert_string_equal(received(), "WATCHDOG=1");
    assert_int_equal(sdnotify_watchdog(), 1);
}

static void watchdog_is_fed_twice_a_period(void **state)
{
    char pid[32];

    (void)state;
    assert_int_equal(setenv("WATCHDOG_USEC", "30000000", 1), 0);
    assert_float_equal(sdnotify_watchdog_interval(), 15.0, 1e-9);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_int_equal(setenv("WATCHDOG_PID", pid, 1), 0);
    assert_float_equal(sdnotify_watchdog_interval(), 15.0, 1e-9);
    assert_int_equal(setenv("WATCHDOG_PID", "1", 1), 0); /* meant for another process */
    assert_true(sdnotify_watchdog_interval() == 0);
    assert_int_equal(unsetenv("WATCHDOG_PID"), 0);
    assert_int_equal(setenv("WATCHDOG_USEC", "-5", 1), 0);
    assert_true(sdnotify_watchdog_interval() == 0);
    assert_int_equal(setenv("WATCHDOG_USEC", "5x", 1), 0);
    assert_true(sdnotify_watchdog_interval() == 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(nothing_outside_a_service_manager),
        T(every_word_arrives),
        T(reload_carries_the_monotonic_clock),
        T(abstract_names_work),
        T(wrong_names_are_refused),
        T(a_full_queue_is_not_waited_for),
        T(watchdog_is_fed_twice_a_period),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
