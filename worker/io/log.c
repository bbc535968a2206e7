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

#include "worker/core/clean.h"

enum {
    /* PIPE_BUF: the kernel takes such a line whole or not at all, so that lines of two processes
     * on one pipe never mix. What is longer is cut, and says so. */
    LINE_BYTES = 4096,
    TAIL_BYTES = 96, /* kept free for suppressed=, lost=, cut= and the line's end */
    VALUE_BYTES = 1024,
    EVENT_BYTES = 40,
    EVENTS = 64, /* event names whose rate is watched at a time */
    DEFAULT_RATE = 20,
    WINDOW_MS = 1000
};

struct line {
    char text[LINE_BYTES];
    size_t len;
    size_t limit; /* rises at the end to let the tail in */
    bool cut;
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

static void line_put(struct line *l, const char *text, size_t len)
{
    if (l->cut || len > l->limit - l->len) {
        l->cut = true;
        return;
    }
    memcpy(l->text + l->len, text, len);
    l->len += len;
}

static void line_puts(struct line *l, const char *text)
{
    line_put(l, text, strlen(text));
}

/* May stand bare: a reader splits at blanks and '='. */
static bool is_bare(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s[i] <= ' ' || (unsigned char)s[i] >= 0x7f || strchr("\"=\\", s[i]))
            return false;
    return len > 0;
}

/* A value is cleaned first (one line, no controls, UTF-8), then quoted where needed. It goes in
 * whole or not at all: half a quoted value would swallow what follows. */
static void line_value(struct line *l, const char *raw, size_t raw_len)
{
    char text[VALUE_BYTES];
    char quoted[2 * VALUE_BYTES + 2];
    size_t len = clean_text(text, sizeof(text), raw, raw_len, 0);
    size_t n = 0;

    if (is_bare(text, len)) {
        line_put(l, text, len);
        return;
    }
    quoted[n++] = '"';
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"' || text[i] == '\\')
            quoted[n++] = '\\';
        quoted[n++] = text[i];
    }
    quoted[n++] = '"';
    line_put(l, quoted, n);
}

static void line_number(struct line *l, const char *key, uint64_t n)
{
    char text[64];

    snprintf(text, sizeof(text), " %s=%" PRIu64, key, n);
    line_puts(l, text);
}

static void line_time(struct line *l, int64_t wall_ms)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    char text[64];
    size_t n;

    if (!gmtime_r(&seconds, &tm))
        return;
    n = strftime(text, sizeof(text), "ts=%Y-%m-%dT%H:%M:%S", &tm);
    line_put(l, text, n);
    snprintf(text, sizeof(text), ".%03dZ ", (int)(wall_ms % 1000));
    line_puts(l, text);
}

static void line_begin(struct line *l, enum log_level level, const char *event)
{
    static const char *const priority[] = {"<7>", "<6>", "<4>", "<3>"};

    l->len = 0;
    l->limit = LINE_BYTES - TAIL_BYTES;
    l->cut = false;
    if (log_state.torn)
        line_puts(l, "\n");
    if (log_state.sink.journal)
        line_puts(l, priority[level]);
    else
        line_time(l, log_state.sink.wall_ms());
    line_puts(l, "level=");
    line_puts(l, level_names[level]);
    line_puts(l, " event=");
    line_value(l, event, strlen(event));
}

static void line_end(struct line *l, uint64_t suppressed)
{
    bool was_cut = l->cut;

    l->cut = false;
    l->limit = LINE_BYTES;
    if (was_cut)
        line_puts(l, " cut=1");
    if (suppressed)
        line_number(l, "suppressed", suppressed);
    if (log_state.lost)
        line_number(l, "lost", log_state.lost);
    line_puts(l, "\n");
    sink_write(l->text, l->len);
}

/* ---- "key=%s other=%d" ---- */

struct value {
    char text[VALUE_BYTES];
    size_t len;
};

static void value_put(struct value *v, const char *text, size_t len)
{
    size_t room = sizeof(v->text) - v->len;

    len = len < room ? len : room;
    memcpy(v->text + v->len, text, len);
    v->len += len;
}

static void value_string(struct value *v, const char *s, int precision)
{
    if (!s)
        s = "none";
    value_put(v, s, precision < 0 ? strlen(s) : strnlen(s, (size_t)precision));
}

/* One conversion, without its '%'. The arguments are passed on in one va_list by pointer. */
struct spec {
    int precision; /* -1: none */
    char size;     /* 0, 'l', 'L' for ll, 'z', 'j' */
    char kind;
};

static bool spec_read(const char **io_fmt, va_list *args, struct spec *ret)
{
    const char *f = *io_fmt;

    *ret = (struct spec){.precision = -1};
    if (f[0] == '.' && f[1] == '*') {
        ret->precision = va_arg(*args, int);
        f += 2;
    } else if (f[0] == '.' && f[1] >= '0' && f[1] <= '9') {
        ret->precision = f[1] - '0';
        f += 2;
    }
    if (f[0] == 'l' && f[1] == 'l') {
        ret->size = 'L';
        f += 2;
    } else if (*f == 'l' || *f == 'z' || *f == 'j') {
        ret->size = *f++;
    }
    ret->kind = *f;
    if (!*f)
        return false;
    *io_fmt = f + 1;
    return true;
}

static intmax_t arg_signed(va_list *args, char size)
{
    switch (size) {
    case 'l':
        return va_arg(*args, long);
    case 'L':
        return va_arg(*args, long long);
    case 'z':
        return va_arg(*args, ssize_t);
    case 'j':
        return va_arg(*args, intmax_t);
    default:
        return va_arg(*args, int);
    }
}

static uintmax_t arg_unsigned(va_list *args, char size)
{
    switch (size) {
    case 'l':
        return va_arg(*args, unsigned long);
    case 'L':
        return va_arg(*args, unsigned long long);
    case 'z':
        return va_arg(*args, size_t);
    case 'j':
        return va_arg(*args, uintmax_t);
    default:
        return va_arg(*args, unsigned);
    }
}

static bool value_convert(struct value *v, const struct spec *s, va_list *args)
{
    char text[512]; /* the longest double in %f has 309 digits before its point */
    int precision = s->precision < 0 ? 6 : s->precision;

    text[0] = '\0';
    switch (s->kind) {
    case 's':
        value_string(v, va_arg(*args, const char *), s->precision);
        return true;
    case 'd':
    case 'i':
        snprintf(text, sizeof(text), "%jd", arg_signed(args, s->size));
        break;
    case 'u':
        snprintf(text, sizeof(text), "%ju", arg_unsigned(args, s->size));
        break;
    case 'x':
        snprintf(text, sizeof(text), "%jx", arg_unsigned(args, s->size));
        break;
    case 'f':
        snprintf(text, sizeof(text), "%.*f", precision, va_arg(*args, double));
        break;
    case 'g':
        snprintf(text, sizeof(text), "%.*g", precision, va_arg(*args, double));
        break;
    case '%':
        snprintf(text, sizeof(text), "%%");
        break;
    default:
        return false;
    }
    value_put(v, text, strlen(text));
    return true;
}

/* Everything between '=' and the next blank of the format is one value, whatever its arguments
 * hold: they cannot end it. */
static bool pair_value(struct line *l, const char **io_fmt, va_list *args)
{
    const char *f = *io_fmt;
    struct value v;
    struct spec s;

    v.len = 0;
    while (*f && *f != ' ') {
        if (*f != '%') {
            value_put(&v, f++, 1);
            continue;
        }
        f++;
        if (!spec_read(&f, args, &s) || !value_convert(&v, &s, args))
            return false;
    }
    line_value(l, v.text, v.len);
    *io_fmt = f;
    return true;
}

static void line_pairs(struct line *l, const char *fmt, va_list *args)
{
    while (fmt && *fmt) {
        size_t key = strcspn(fmt, "= %");

        if (key == 0 || fmt[key] != '=') {
            line_puts(l, " bad_format=1");
            return;
        }
        line_puts(l, " ");
        line_put(l, fmt, key + 1);
        fmt += key + 1;
        if (!pair_value(l, &fmt, args)) {
            line_puts(l, " bad_format=1");
            return;
        }
        while (*fmt == ' ')
            fmt++;
    }
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
    struct line l;

    if (r->suppressed == 0)
        return;
    line_begin(&l, r->level, "suppressed");
    line_puts(&l, " of=");
    line_value(&l, r->event, strlen(r->event));
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
    struct line l;
    va_list args;

    if (level < log_state.level || level >= LOG_LEVEL_OFF)
        return;
    sink_find();
    if (rate_pass(event, level, &suppressed)) {
        line_begin(&l, level, event);
        va_start(args, pairs);
        line_pairs(&l, pairs, &args);
        va_end(args);
        line_end(&l, suppressed);
    }
    errno = saved;
}

void log_flush(void)
{
    int saved = errno;
    struct line l;

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
