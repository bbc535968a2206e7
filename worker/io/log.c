#include "worker/io/log.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "worker/io/log_line.h"

enum {
    TAIL_BYTES = 96, /* kept free for suppressed=, lost=, cut= and the line's end */
    EVENT_BYTES = 40,
    EVENTS = 64, /* event names whose rate is watched at a time */
    DEFAULT_RATE = 20,
    WINDOW_MS = 1000
};

/* How often one event came in the current second. */
struct rate {
    char event[EVENT_BYTES];
    int64_t since_ms;
    uint64_t seen;
    uint64_t suppressed;
    enum log_level level;
};

static struct {
    struct log_sink sink;
    bool ready; /* the sink was looked at */
    bool torn;  /* the last line went out only in part */
    enum log_level level;
    unsigned per_second;
    uint64_t lost;
    struct rate rates[EVENTS];
} log_state = {.level = LOG_LEVEL_INFO, .per_second = DEFAULT_RATE};

static const char *const level_names[] = {"debug", "info", "warn", "error", "off"};

const char *log_level_name(enum log_level level)
{
    return level_names[level];
}

int log_level_parse(const char *text, enum log_level *ret_level)
{
    for (int i = LOG_LEVEL_DEBUG; i <= LOG_LEVEL_OFF; i++) {
        if (strcmp(text, level_names[i]) == 0) {
            *ret_level = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

void log_set_level(enum log_level level)
{
    log_state.level = level;
}

enum log_level log_get_level(void)
{
    return log_state.level;
}

void log_set_rate(unsigned per_second)
{
    log_state.per_second = per_second;
}

/* ---- where lines go ---- */

static int64_t clock_ms(clockid_t id)
{
    struct timespec t;

    if (clock_gettime(id, &t) != 0)
        return 0;
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t real_now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

static int64_t real_wall_ms(void)
{
    return clock_ms(CLOCK_REALTIME);
}

/* JOURNAL_STREAM is DEVICE:INODE of the journal's socket and is inherited by children whose
 * stderr goes elsewhere, so it is compared, as systemd.exec(5) asks. */
static bool is_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat st;
    char own[64];

    if (!stream || fstat(fd, &st) != 0)
        return false;
    snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(stream, own) == 0;
}

void log_set_sink(const struct log_sink *sink)
{
    log_state.sink = *sink;
    if (!log_state.sink.now_ms)
        log_state.sink.now_ms = real_now_ms;
    if (!log_state.sink.wall_ms)
        log_state.sink.wall_ms = real_wall_ms;
    log_state.ready = true;
    log_state.torn = false;
    log_state.lost = 0;
    memset(log_state.rates, 0, sizeof(log_state.rates));
}

static void sink_find(void)
{
    struct log_sink real = {.fd = STDERR_FILENO, .journal = is_journal(STDERR_FILENO)};

    if (!log_state.ready)
        log_set_sink(&real);
}

/* Writes without waiting. stderr's O_NONBLOCK is not ours to set (the flag belongs to everyone
 * who shares the terminal or pipe), so it is asked first whether it would take a line. */
static void sink_write(const char *text, size_t len)
{
    struct pollfd p = {.fd = log_state.sink.fd, .events = POLLOUT};
    ssize_t n;

    if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)) {
        log_state.lost++;
        return;
    }
    n = send(p.fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == ENOTSOCK)
        n = write(p.fd, text, len);
    if (n != (ssize_t)len)
        log_state.lost++;
    else
        log_state.lost = 0;
    if (n > 0)
        log_state.torn = n != (ssize_t)len;
}

/* ---- building a line ---- */

static void line_number(struct log_line *l, const char *key, uint64_t n)
{
    char text[64];

    snprintf(text, sizeof(text), " %s=%" PRIu64, key, n);
    log_line_puts(l, text);
}

static void line_time(struct log_line *l, int64_t wall_ms)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    char text[64], ms[16];

    if (!gmtime_r(&seconds, &tm) || strftime(text, sizeof(text), "ts=%Y-%m-%dT%H:%M:%S", &tm) == 0)
        return;
    snprintf(ms, sizeof(ms), ".%03dZ ", (int)(wall_ms % 1000));
    log_line_puts(l, text);
    log_line_puts(l, ms);
}

static void line_begin(struct log_line *l, enum log_level level, const char *event)
{
    static const char *const priority[] = {"<7>", "<6>", "<4>", "<3>"};

    l->len = 0;
    l->limit = LOG_LINE_BYTES - TAIL_BYTES;
    l->cut = false;
    if (log_state.torn)
        log_line_puts(l, "\n");
    if (log_state.sink.journal)
        log_line_puts(l, priority[level]);
    else
        line_time(l, log_state.sink.wall_ms());
    log_line_puts(l, "level=");
    log_line_puts(l, level_names[level]);
    log_line_puts(l, " event=");
    log_line_value(l, event, strlen(event));
}

static void line_end(struct log_line *l, uint64_t suppressed)
{
    bool was_cut = l->cut;

    l->cut = false;
    l->limit = LOG_LINE_BYTES;
    if (was_cut)
        log_line_puts(l, " cut=1");
    if (suppressed)
        line_number(l, "suppressed", suppressed);
    if (log_state.lost)
        line_number(l, "lost", log_state.lost);
    log_line_puts(l, "\n");
    sink_write(l->text, l->len);
}

/* ---- how often ---- */

/* The event's own entry, else an unused one, else the one whose second began first. */
static struct rate *rate_find(const char *event)
{
    struct rate *other = &log_state.rates[0];

    for (size_t i = 0; i < EVENTS; i++) {
        struct rate *r = &log_state.rates[i];

        if (!r->event[0])
            return r;
        if (strncmp(r->event, event, EVENT_BYTES - 1) == 0)
            return r;
        if (r->since_ms < other->since_ms)
            other = r;
    }
    return other;
}

static void rate_begin(struct rate *r, const char *event, int64_t now)
{
    *r = (struct rate){.since_ms = now};
    snprintf(r->event, sizeof(r->event), "%s", event);
}

static void rate_tell(struct rate *r)
{
    struct log_line l;

    if (r->suppressed == 0)
        return;
    line_begin(&l, r->level, "suppressed");
    log_line_puts(&l, " of=");
    log_line_value(&l, r->event, strlen(r->event));
    line_end(&l, r->suppressed);
    r->suppressed = 0;
}

/* Whether this line may go out; *ret_suppressed is what it has to own up to. */
static bool rate_pass(const char *event, enum log_level level, uint64_t *ret_suppressed)
{
    int64_t now = log_state.sink.now_ms();
    struct rate *r;

    *ret_suppressed = 0;
    if (log_state.per_second == 0)
        return true;
    r = rate_find(event);
    if (strncmp(r->event, event, EVENT_BYTES - 1) != 0) {
        rate_tell(r); /* pushed out: its count is not lost with it */
        rate_begin(r, event, now);
    } else if (now - r->since_ms >= WINDOW_MS) {
        *ret_suppressed = r->suppressed;
        rate_begin(r, event, now);
    }
    if (r->seen++ < log_state.per_second)
        return true;
    r->level = r->suppressed && r->level > level ? r->level : level;
    r->suppressed++;
    return false;
}

void log_event(enum log_level level, const char *event, const char *pairs, ...)
{
    int saved = errno;
    uint64_t suppressed;
    struct log_line l;
    va_list args;

    if (level < log_state.level || level >= LOG_LEVEL_OFF)
        return;
    sink_find();
    if (rate_pass(event, level, &suppressed)) {
        line_begin(&l, level, event);
        va_start(args, pairs);
        log_line_pairs(&l, pairs, &args);
        va_end(args);
        line_end(&l, suppressed);
    }
    errno = saved;
}

void log_flush(void)
{
    int saved = errno;
    struct log_line l;

    sink_find();
    for (size_t i = 0; i < EVENTS; i++)
        rate_tell(&log_state.rates[i]);
    if (log_state.lost && log_state.level < LOG_LEVEL_OFF) {
        line_begin(&l, LOG_LEVEL_WARN, "log_lines_lost");
        line_end(&l, 0);
    }
    errno = saved;
}

/* ---- phone numbers ---- */

const char *log_mask_phone(const char *number, char out[static LOG_PHONE_MAX])
{
    size_t len = number ? strnlen(number, LOG_PHONE_MAX - 1) : 0;
    /* As much as names the country and the network, and two digits to tell rows apart; at least
     * five in the middle stay hidden, whatever the length. */
    size_t head = len >= 13 ? 6 : len >= 10 ? len - 7 : 0;
    size_t tail = len >= 10 ? 2 : 0;

    for (size_t i = 0; i < len; i++) {
        bool shown = (i < head || i >= len - tail) && number[i] > ' ' && number[i] < 0x7f;

        out[i] = (char)(shown ? number[i] : '*');
    }
    out[len] = '\0';
    return out;
}
