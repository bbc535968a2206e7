/* http_driver - drives worker/io/http.h from outside, for tests and measurements.
 *
 *   http_driver [--max-calls N] [--parallel N] [--body-cap BYTES] [--idle-ms MS] [--ca FILE]
 *
 * Reads one JSON object a line: {"url", "method", "key", "body" | "body_size", "headers": {},
 * "timeout_ms", "connect_timeout_ms", "may_repeat", "gate", "abort_ms", "count", "id", "sigv4",
 * "sigv4_userpwd"}; only "url" is needed. "gate" says how often the gate opens. Runs up to
 * --parallel (1) of them at once and prints a line per result, in order of their ends. With
 * "count": n the request is made n times, and one line sums up. Ends at end of input; on SIGTERM at
 * once, with calls in the air. SIGUSR1 makes libcurl's next curl_multi_socket_action fail. */
#include "worker/core/err.h"
#include "worker/io/clock.h"
#include "worker/io/http.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HEADERS_MAX 32

struct driver {
    struct ev_loop *loop;
    struct http_pool *pool;
    ev_io input;
    ev_signal term;
    char *text; /* read, not yet run */
    size_t len, size;
    bool ended;
    unsigned parallel;
    struct job *jobs;
};

/* One line of input. */
struct job {
    struct job *next, **link; /* in the driver's list */
    struct driver *driver;
    json_t *spec;
    struct http_call *call;
    ev_timer abort;
    unsigned gate_calls;
    unsigned left, running; /* of "count" */
    unsigned complete, failed, reconnects;
    int64_t started_us, cpu_us;
};

static volatile sig_atomic_t break_next;

/* Stands before libcurl's own, to fail on demand. */
CURLMcode curl_multi_socket_action(CURLM *multi, curl_socket_t s, int mask, int *running)
{
    static CURLMcode (*real)(CURLM *, curl_socket_t, int, int *);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "curl_multi_socket_action");
    CURLMcode rc = real(multi, s, mask, running);
    if (break_next) {
        break_next = 0;
        return CURLM_INTERNAL_ERROR;
    }
    return rc;
}

static void on_usr1(int number)
{
    (void)number;
    break_next = 1;
}

static void run_lines(struct driver *d);

static int64_t cpu_us(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * (int64_t)1000000 + use.ru_utime.tv_usec +
           use.ru_stime.tv_usec;
}

static void print(json_t *line)
{
    json_dumpf(line, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    putchar('\n');
    fflush(stdout);
    json_decref(line);
}

static void free_job(struct job *job)
{
    *job->link = job->next;
    if (job->next)
        job->next->link = job->link;
    ev_timer_stop(job->driver->loop, &job->abort);
    json_decref(job->spec);
    free(job);
}

static json_t *latin1(const char *bytes, size_t len)
{
    char *text = malloc(len * 2 + 1); /* any bytes become valid UTF-8 */
    size_t n = 0;

    if (!text)
        abort();
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x80)
            text[n++] = (char)(0xc0 | c >> 6);
        text[n++] = (char)(c >= 0x80 ? 0x80 | (c & 0x3f) : c);
    }
    json_t *value = json_stringn(text, n);
    free(text);
    return value;
}

static void print_result(const struct job *job, const struct http_result *r)
{
    json_t *headers = json_object();
    json_t *id = json_object_get(job->spec, "id");
    size_t shown = r->body_len < 4096 ? r->body_len : 4096;

    for (size_t i = 0; i < r->headers_count; i++)
        json_object_set_new(headers, r->headers[i].name,
                            latin1(r->headers[i].value, strlen(r->headers[i].value)));
    print(json_pack("{s:O?, s:i, s:b, s:b, s:b, s:b, s:s, s:i, s:i, s:s, s:o, s:I, s:o, s:I, s:I,"
                    " s:I, s:i}",
                    "id", id, "permits", r->permits, "complete", r->complete, "dirty", r->dirty,
                    "tls_untrusted", r->tls_untrusted, "timed_out", r->timed_out, "phase",
                    http_phase_name(r->phase), "status", r->status, "curl_code", r->curl_code,
                    "error", r->error, "headers", headers, "headers_count",
                    (json_int_t)r->headers_count, "body", latin1(r->body, shown), "body_len",
                    (json_int_t)r->body_len, "connect_us", (json_int_t)r->connect_us, "total_us",
                    (json_int_t)r->total_us, "gate_calls", (int)job->gate_calls));
}

static void print_refused(const struct job *job, const char *why)
{
    print(json_pack("{s:O?, s:s}", "id", json_object_get(job->spec, "id"), "refused", why));
}

static void print_sum(const struct job *job)
{
    unsigned n = job->complete + job->failed;
    double cpu = (double)(cpu_us() - job->cpu_us) / n;
    int64_t wall = clock_boot_us() - job->started_us;
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    print(json_pack("{s:O?, s:i, s:i, s:i, s:f, s:f, s:I}", "id", json_object_get(job->spec, "id"),
                    "complete", (int)job->complete, "failed", (int)job->failed, "reconnects",
                    (int)job->reconnects, "cpu_us_per_call", cpu, "calls_per_s",
                    n * 1e6 / (double)wall, "max_rss_kib", (json_int_t)use.ru_maxrss));
}

static bool on_gate(void *arg)
{
    struct job *job = arg;
    json_t *gate = json_object_get(job->spec, "gate");

    job->gate_calls++;
    return !gate || (json_int_t)job->gate_calls <= json_integer_value(gate);
}

static void on_abort(struct ev_loop *loop, ev_timer *timer, int events)
{
    struct job *job = timer->data;

    (void)loop;
    (void)events;
    http_abort(job->call);
}

static void start(struct job *job);

static void on_done(void *arg, const struct http_result *result)
{
    struct job *job = arg;
    struct driver *d = job->driver;

    job->running--;
    job->complete += result->complete;
    job->failed += !result->complete;
    job->reconnects += result->connect_us > 0;
    if (!json_object_get(job->spec, "count")) {
        print_result(job, result);
    } else if (job->left > 0) {
        start(job);
        return;
    } else if (job->running > 0) {
        return;
    } else {
        print_sum(job);
    }
    free_job(job);
    run_lines(d);
}

static size_t read_headers(json_t *spec, struct http_header *headers)
{
    const char *name;
    json_t *value;
    size_t n = 0;
    const char *key = json_string_value(json_object_get(spec, "key"));

    if (key)
        headers[n++] = (struct http_header){"Idempotency-Key", key};
    json_object_foreach (json_object_get(spec, "headers"), name, value)
        if (n < HEADERS_MAX)
            headers[n++] = (struct http_header){name, json_string_value(value)};
    return n;
}

static json_int_t number(json_t *spec, const char *name, json_int_t otherwise)
{
    json_t *value = json_object_get(spec, name);

    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

static void start(struct job *job)
{
    json_t *spec = job->spec;
    struct http_header headers[HEADERS_MAX];
    const char *method = json_string_value(json_object_get(spec, "method"));
    struct err err = ERR_INIT;
    json_int_t body_size = number(spec, "body_size", -1);
    char *made = body_size >= 0 ? malloc((size_t)body_size + 1) : NULL;
    struct http_request request = {
        .method = method ? method : "POST",
        .url = json_string_value(json_object_get(spec, "url")),
        .headers = headers,
        .headers_count = read_headers(spec, headers),
        .body = made ? made : json_string_value(json_object_get(spec, "body")),
        .connect_timeout_ms = number(spec, "connect_timeout_ms", 5000),
        .timeout_ms = number(spec, "timeout_ms", 10000),
        .may_repeat = json_is_true(json_object_get(spec, "may_repeat")),
        .sigv4 = json_string_value(json_object_get(spec, "sigv4")),
        .sigv4_userpwd = json_string_value(json_object_get(spec, "sigv4_userpwd")),
        .may_start = on_gate,
        .arg = job,
    };

    if (made)
        memset(made, 'x', (size_t)body_size);
    request.body_len = made ? (size_t)body_size : request.body ? strlen(request.body) : 0;
    job->left--;
    if (http_start(job->driver->pool, &request, on_done, &job->call, &err) == 0) {
        job->running++;
        if (made)
            memset(made, '!', (size_t)body_size); /* what was copied is not touched */
    } else {
        print_refused(job, err_text(&err));
        if (job->running == 0)
            free_job(job);
    }
    err_done(&err);
    free(made);
}

static void run_line(struct driver *d, const char *line, size_t len)
{
    struct job *job = calloc(1, sizeof(*job));
    json_error_t error;

    if (!job)
        abort();
    job->driver = d;
    job->next = d->jobs;
    job->link = &d->jobs;
    if (job->next)
        job->next->link = &job->next;
    d->jobs = job;
    ev_timer_init(&job->abort, on_abort, 0., 0.);
    job->spec = json_loadb(line, len, 0, &error);
    if (!job->spec) {
        print_refused(job, error.text);
        free_job(job);
        return;
    }
    double abort_ms = (double)number(job->spec, "abort_ms", -1);
    job->left = (unsigned)number(job->spec, "count", 1);
    job->started_us = clock_boot_us();
    job->cpu_us = cpu_us();
    for (unsigned i = 1; i < d->parallel && job->left > 1; i++)
        start(job); /* all but the last, which may free the job */
    bool one = job->left == 1 && job->running == 0;
    start(job);
    if (one && abort_ms >= 0 && http_pool_active(d->pool) > 0) {
        job->abort.data = job;
        ev_timer_set(&job->abort, abort_ms / 1000.0, 0.);
        ev_timer_start(d->loop, &job->abort);
    }
}

static void run_lines(struct driver *d)
{
    char *end;

    while (http_pool_active(d->pool) < d->parallel && d->len > 0 &&
           (end = memchr(d->text, '\n', d->len)) != NULL) {
        size_t len = (size_t)(end - d->text);
        char *line = strndup(d->text, len);

        d->len -= len + 1;
        memmove(d->text, end + 1, d->len);
        if (line)
            run_line(d, line, len);
        free(line);
    }
    if (d->ended && http_pool_active(d->pool) == 0 && d->len == 0)
        ev_break(d->loop, EVBREAK_ALL);
}

static void on_input(struct ev_loop *loop, ev_io *io, int events)
{
    struct driver *d = io->data;

    (void)events;
    if (d->size - d->len < 4096) {
        d->size = d->size ? d->size * 2 : 65536;
        d->text = realloc(d->text, d->size);
        if (!d->text)
            abort();
    }
    ssize_t n = read(io->fd, d->text + d->len, d->size - d->len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        d->ended = true;
        ev_io_stop(loop, io);
    } else {
        d->len += (size_t)n;
    }
    run_lines(d);
}

static void on_term(struct ev_loop *loop, ev_signal *signal, int events)
{
    (void)signal;
    (void)events;
    ev_break(loop, EVBREAK_ALL);
}

static long to_number(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (*end != '\0' || end == text) {
        fprintf(stderr, "http_driver: \"%s\" is no number\n", text);
        exit(2);
    }
    return n;
}

static void read_options(int argc, char **argv, struct http_options *options, unsigned *parallel)
{
    static const struct option known[] = {
        {"max-calls", 1, NULL, 'm'}, {"parallel", 1, NULL, 'p'}, {"body-cap", 1, NULL, 'b'},
        {"idle-ms", 1, NULL, 'i'},   {"ca", 1, NULL, 'c'},       {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (c == 'm')
            options->max_calls = (unsigned)to_number(optarg);
        else if (c == 'p')
            *parallel = (unsigned)to_number(optarg);
        else if (c == 'b')
            options->body_cap = (size_t)to_number(optarg);
        else if (c == 'i')
            options->idle_ms = to_number(optarg);
        else if (c == 'c')
            options->ca_file = optarg;
        else
            exit(2);
    }
}

int main(int argc, char **argv)
{
    struct http_options options = {.max_calls = 0, .body_cap = 65536, .idle_ms = 30000};
    struct driver d = {.loop = EV_DEFAULT, .parallel = 1};
    struct err err = ERR_INIT;

    read_options(argc, argv, &options, &d.parallel);
    if (options.max_calls == 0)
        options.max_calls = d.parallel;
    if (http_global_init(&err) != 0 || http_pool_new(d.loop, &options, &d.pool, &err) != 0) {
        fprintf(stderr, "http_driver: %s\n", err_text(&err));
        return 1;
    }
    fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    ev_io_init(&d.input, on_input, STDIN_FILENO, EV_READ);
    d.input.data = &d;
    ev_io_start(d.loop, &d.input);
    ev_signal_init(&d.term, on_term, SIGTERM);
    ev_signal_start(d.loop, &d.term);
    signal(SIGUSR1, on_usr1);
    puts("ready"); /* signals are welcome */
    fflush(stdout);
    ev_run(d.loop, 0);
    http_pool_free(d.pool);
    while (d.jobs)
        free_job(d.jobs);
    http_global_done();
    ev_loop_destroy(d.loop);
    free(d.text);
    err_done(&err);
    return 0;
}
