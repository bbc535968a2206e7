#include "worker/core/err.h"
#include "worker/io/clock.h"
#include "worker/io/http_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Memory a call keeps between two uses. */
#define KEEP ((size_t)8 * 1024)
/* Beyond it libcurl asks for a 100 before it sends a body. */
#define SIGNED_BODY_MAX ((size_t)1024 * 1024)

/* --- the gate -------------------------------------------------------------------------------- */

static void copy_ip(char dst[INET6_ADDRSTRLEN], const char *ip)
{
    size_t len = strnlen(ip, INET6_ADDRSTRLEN - 1);

    memcpy(dst, ip, len);
    dst[len] = '\0';
}

/* Looks at the connection the request is about to use. A socket we cannot find counts as
 * dirty: the second try is on a new one, which is always found. */
static bool is_clean(struct http_call *call, const struct http_address *address)
{
    bool fresh;
    const struct http_sock *sock = http_sock_find(call, address, &fresh);

    call->fresh = fresh;
    return sock && http_sock_is_clean(sock, fresh && call->tls);
}

/* libcurl's PREREQFUNCTION: a connection is ready, no byte of the request has left. It is run
 * again for each repetition libcurl decides on by itself. */
static int on_prereq(void *arg, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
    struct http_call *call = arg;
    struct http_address address = {.remote_port = remote_port, .local_port = local_port};

    call->at_gate = true;
    /* Even a vendor that de-duplicates is asked twice at most: libcurl would try six times. */
    if (call->aborted || call->permits > (call->may_repeat ? 1 : 0))
        return CURL_PREREQFUNC_ABORT;
    copy_ip(address.remote_ip, remote_ip);
    copy_ip(address.local_ip, local_ip);
    if (!is_clean(call, &address)) {
        call->dirty = call->permits == 0;
        return CURL_PREREQFUNC_ABORT;
    }
    if (call->may_start && !call->may_start(call->arg))
        return CURL_PREREQFUNC_ABORT;
    http_reply_reset(&call->reply);
    call->permits++;
    return CURL_PREREQFUNC_OK;
}

/* --- the easy handle ------------------------------------------------------------------------- */

/* What no call may vary. */
static const struct {
    CURLoption option;
    long value;
} fixed[] = {
    {CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1},
    {CURLOPT_HTTP09_ALLOWED, 0},
    {CURLOPT_FOLLOWLOCATION, 0},
    {CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC}, /* never sent: only a signature sets a user */
    {CURLOPT_NETRC, CURL_NETRC_IGNORED},
    {CURLOPT_FAILONERROR, 0},
    {CURLOPT_NOSIGNAL, 1},
    {CURLOPT_TCP_NODELAY, 1},
    {CURLOPT_NOPROGRESS, 1},
    {CURLOPT_SSL_VERIFYPEER, 1},
    {CURLOPT_SSL_VERIFYHOST, 2},
    {CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2},
    {CURLOPT_SSL_OPTIONS, 0}, /* no early data, where libcurl knows it */
    /* A resumed session brings the certificate of its first handshake along, also of one that was
     * refused: a corrected certificate would not be seen. */
    {CURLOPT_SSL_SESSIONID_CACHE, 0},
    {CURLOPT_SUPPRESS_CONNECT_HEADERS, 1},
};

/* libcurl counts idle time in whole seconds and reuses up to the next one. */
static long max_age(int64_t idle_ms)
{
    int64_t seconds = idle_ms / 1000 - 1;

    if (seconds < 1)
        return 1;
    return seconds > 86400 ? 86400 : (long)seconds;
}

/* libcurl 7.88 tells no connect time of a handshake that fails; this marks its begin. */
static CURLcode on_tls(CURL *easy, void *ssl_ctx, void *arg)
{
    struct http_call *call = arg;

    (void)easy;
    (void)ssl_ctx;
    call->in_tls = true;
    return CURLE_OK;
}

static bool set_callbacks(struct http_call *call)
{
    CURL *easy = call->easy;

    /* Not every TLS library can tell; a failed handshake then shows as `connect`. */
    (void)curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_tls);
    (void)curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, call);
    return !curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_prereq) &&
           !curl_easy_setopt(easy, CURLOPT_PREREQDATA, call) &&
           !curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, http_sock_on_open) &&
           !curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, call) &&
           !curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, http_sock_on_close) &&
           !curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, call->pool) && /* outlives calls */
           !curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, http_reply_on_header) &&
           !curl_easy_setopt(easy, CURLOPT_HEADERDATA, &call->reply) &&
           !curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, http_reply_on_body) &&
           !curl_easy_setopt(easy, CURLOPT_WRITEDATA, &call->reply) &&
           !curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error) &&
           !curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
}

/* All options of a handle but those of its request; they outlive each call, because every
 * handle is used here only and set_request sets all it varies. */
static bool set_handle(struct http_call *call)
{
    const struct http_pool *pool = call->pool;
    CURL *easy = call->easy;

    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        if (curl_easy_setopt(easy, fixed[i].option, fixed[i].value))
            return false;
    /* Certificates come from one file. A folder beside it would be trusted as well, and it would
     * make libcurl read the whole file again for every connection. */
    if (curl_easy_setopt(easy, CURLOPT_CAPATH, NULL))
        return false;
    if (pool->ca_file && curl_easy_setopt(easy, CURLOPT_CAINFO, pool->ca_file))
        return false;
    return set_callbacks(call) && !curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") &&
           !curl_easy_setopt(easy, CURLOPT_PROXY, "") && /* not even from the environment */
           !curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, max_age(pool->options.idle_ms));
}

static bool set_method(struct http_call *call, const struct http_request *request)
{
    CURL *easy = call->easy;
    bool post = strcmp(request->method, "POST") == 0;
    const char *custom = post || strcmp(request->method, "GET") == 0 ? NULL : request->method;

    /* Each branch takes back what the others set. */
    if (post || request->body) {
        if (curl_easy_setopt(easy, CURLOPT_POST, 1L) ||
            curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body_len) ||
            curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->frozen.data + call->body_at))
            return false;
        custom = post ? NULL : request->method; /* a GET with a body is still a GET */
    } else if (strcmp(request->method, "HEAD") == 0) {
        custom = NULL;
        if (curl_easy_setopt(easy, CURLOPT_NOBODY, 1L))
            return false;
    } else if (curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L)) {
        return false;
    }
    return !curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, custom);
}

static bool set_times(struct http_call *call, int64_t left_ms, bool fresh)
{
    int64_t connect_ms = call->connect_timeout_ms < left_ms ? call->connect_timeout_ms : left_ms;

    return !curl_easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, (long)left_ms) &&
           !curl_easy_setopt(call->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms) &&
           !curl_easy_setopt(call->easy, CURLOPT_FRESH_CONNECT, fresh ? 1L : 0L);
}

/* Before set_method: CURLOPT_POSTFIELDS makes a POST. libcurl signs the body it was last given,
 * also for a request that has none, and the last one's is gone. */
static bool set_signature(struct http_call *call, const struct http_request *request)
{
    bool signs = request->sigv4 != NULL;

    if (!signs && !call->signs)
        return true; /* as the handle was made, or as the call before left it */
    call->signs = signs;
    return !curl_easy_setopt(call->easy, CURLOPT_POSTFIELDS, NULL) &&
           !curl_easy_setopt(call->easy, CURLOPT_USERPWD, signs ? request->sigv4_userpwd : NULL) &&
           !curl_easy_setopt(call->easy, CURLOPT_AWS_SIGV4, request->sigv4) &&
           !curl_easy_setopt(call->easy, CURLOPT_HTTPAUTH,
                             (long)(signs ? CURLAUTH_AWS_SIGV4 : CURLAUTH_BASIC));
}

static bool set_request(struct http_call *call, const struct http_request *request)
{
    return !curl_easy_setopt(call->easy, CURLOPT_URL, request->url) &&
           !curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers) &&
           set_signature(call, request) && set_method(call, request) &&
           set_times(call, call->timeout_ms, false);
}

/* --- the request ----------------------------------------------------------------------------- */

static bool is_token(const char *text)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

    return text && *text && text[strspn(text, token)] == '\0';
}

static bool has_header(const struct http_request *request, const char *name)
{
    for (size_t i = 0; i < request->headers_count; i++)
        if (strcasecmp(request->headers[i].name, name) == 0)
            return true;
    return false;
}

static int check_headers(const struct http_request *request, struct err *err)
{
    /* The framing of a request is ours: two opinions about its end are two requests. */
    static const char *const ours[] = {"Content-Length", "Transfer-Encoding", "Expect"};

    for (size_t i = 0; i < request->headers_count; i++) {
        const struct http_header *h = &request->headers[i];
        if (!is_token(h->name))
            return err_set(err, -EINVAL, "a header's name has characters HTTP forbids");
        for (const char *p = h->value; *p; p++)
            if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
                return err_set(err, -EINVAL, "header \"%s\" has a control character", h->name);
    }
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (has_header(request, ours[i]))
            return err_set(err, -EINVAL, "header \"%s\" cannot be set", ours[i]);
    return 0;
}

static bool is_blank(const char *value)
{
    return value[strspn(value, " \t")] == '\0';
}

/* libcurl 7.88 signs what the header list says, also that a header is not to be sent: a signed
 * request cannot do without libcurl's guesses, so it must give them no occasion. */
static int check_signed(const struct http_request *request, struct err *err)
{
    if (!request->sigv4_userpwd || !strchr(request->sigv4_userpwd, ':'))
        return err_set(err, -EINVAL, "the request is to be signed without a key");
    if (request->body && !has_header(request, "Content-Type"))
        return err_set(err, -EINVAL, "a signed request with a body wants a Content-Type");
    if (request->body_len > SIGNED_BODY_MAX)
        return err_set(err, -EINVAL, "a signed request's body has %zu bytes, at most %zu",
                       request->body_len, SIGNED_BODY_MAX);
    for (size_t i = 0; i < request->headers_count; i++)
        if (is_blank(request->headers[i].value))
            return err_set(err, -EINVAL, "header \"%s\" of a signed request has no value",
                           request->headers[i].name);
    return 0;
}

static int check(const struct http_request *request, struct err *err)
{
    if (!is_token(request->method))
        return err_set(err, -EINVAL, "the method is no word");
    if (!request->url || (strncasecmp(request->url, "http://", 7) != 0 &&
                          strncasecmp(request->url, "https://", 8) != 0))
        return err_set(err, -EINVAL, "the URL begins with neither http:// nor https://");
    if (request->timeout_ms < 1 || request->timeout_ms > 86400000)
        return err_set(err, -EINVAL, "timeout is %lld ms, must be 1 to 86400000",
                       (long long)request->timeout_ms);
    if (request->sigv4 && check_signed(request, err) < 0)
        return -EINVAL;
    return check_headers(request, err);
}

struct writer {
    struct http_buf *buf;
    struct curl_slist *nodes;
    size_t count;
};

static void add_line(struct writer *w, const char *name, const char *between, const char *value)
{
    struct curl_slist *node = &w->nodes[w->count];

    node->data = w->buf->data + w->buf->len;
    node->next = NULL;
    if (w->count++ > 0)
        w->nodes[w->count - 2].next = node;
    (void)http_buf_add(w->buf, name, strlen(name)); /* room was made */
    (void)http_buf_add(w->buf, between, strlen(between));
    (void)http_buf_add(w->buf, value, strlen(value) + 1);
}

/* One block holds the header list, its lines and the body, and serves call after call. */
static int freeze(struct http_call *call, const struct http_request *request)
{
    size_t nodes = (request->headers_count + 2) * sizeof(struct curl_slist);
    size_t need = nodes + request->body_len + 64;

    for (size_t i = 0; i < request->headers_count; i++)
        need += strlen(request->headers[i].name) + strlen(request->headers[i].value) + 4;
    call->frozen.len = 0;
    if (!http_buf_reserve(&call->frozen, need))
        return -ENOMEM;
    struct writer w = {&call->frozen, (struct curl_slist *)(void *)call->frozen.data, 0};
    call->frozen.len = nodes;
    if (!request->sigv4)
        add_line(&w, "Expect", ":", ""); /* libcurl waits for no 100 */
    if (!request->sigv4 && !has_header(request, "Content-Type"))
        add_line(&w, "Content-Type", ":", ""); /* libcurl guesses none */
    for (size_t i = 0; i < request->headers_count; i++) {
        const struct http_header *h = &request->headers[i];
        bool blank = is_blank(h->value);
        add_line(&w, h->name, blank ? ";" : ": ", blank ? "" : h->value);
    }
    call->headers = w.count > 0 ? w.nodes : NULL;
    call->body_at = call->frozen.len;
    call->body_len = request->body ? request->body_len : 0;
    (void)http_buf_add(&call->frozen, request->body ? request->body : "", call->body_len);
    return 0;
}

/* --- a call's life --------------------------------------------------------------------------- */

struct http_call *http_call_new(struct http_pool *pool)
{
    struct http_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->pool = pool;
    call->reply.body_cap = pool->options.body_cap;
    call->easy = curl_easy_init();
    if (!call->easy || !set_handle(call)) {
        http_call_free(call);
        return NULL;
    }
    return call;
}

void http_call_free(struct http_call *call)
{
    if (!call)
        return;
    curl_easy_cleanup(call->easy);
    http_buf_clear(&call->frozen, 0);
    http_reply_done(&call->reply);
    free(call);
}

void http_call_clear(struct http_call *call)
{
    call->state = HTTP_CALL_FREE;
    call->permits = 0;
    call->at_gate = call->opened = call->in_tls = call->fresh = false;
    call->dirty = call->retried = call->aborted = false;
    call->error[0] = '\0';
    http_buf_clear(&call->frozen, KEEP);
    http_reply_reset(&call->reply);
}

int http_call_prepare(struct http_call *call, const struct http_request *request, struct err *err)
{
    int rc = check(request, err);

    if (rc)
        return rc;
    call->may_start = request->may_start;
    call->arg = request->arg;
    call->may_repeat = request->may_repeat;
    call->tls = strncasecmp(request->url, "https:", 6) == 0;
    call->timeout_ms = request->timeout_ms;
    call->connect_timeout_ms =
        request->connect_timeout_ms > 0 ? request->connect_timeout_ms : request->timeout_ms;
    call->started_us = clock_boot_us();
    if (freeze(call, request) != 0 || !set_request(call, request))
        return err_set(err, -ENOMEM, "out of memory for a call");
    return 0;
}

bool http_call_retry(struct http_call *call)
{
    int64_t left_ms = call->timeout_ms - (clock_boot_us() - call->started_us) / 1000;

    if (call->retried || call->aborted || call->permits > 0 || left_ms < 1 ||
        !set_times(call, left_ms, true))
        return false;
    call->retried = true;
    call->dirty = false;
    call->at_gate = call->opened = call->in_tls = false;
    call->error[0] = '\0';
    return true;
}

/* --- the result ------------------------------------------------------------------------------ */

static bool is_trust_fault(CURLcode code)
{
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_ISSUER_ERROR ||
           code == CURLE_SSL_PINNEDPUBKEYNOTMATCH || code == CURLE_SSL_INVALIDCERTSTATUS;
}

static enum http_phase phase_of(const struct http_call *call, bool complete)
{
    if (complete)
        return HTTP_PHASE_COMPLETE;
    if (call->permits > 0)
        return call->reply.status ? HTTP_PHASE_REPLY : HTTP_PHASE_SENT;
    if (call->at_gate)
        return HTTP_PHASE_GATE;
    if (!call->opened)
        return HTTP_PHASE_QUEUE;
    return call->in_tls ? HTTP_PHASE_TLS : HTTP_PHASE_CONNECT;
}

static int64_t connect_us(const struct http_call *call)
{
    curl_off_t us = 0;

    if (!call->opened)
        return 0;
    if (call->tls)
        curl_easy_getinfo(call->easy, CURLINFO_APPCONNECT_TIME_T, &us);
    if (us == 0)
        curl_easy_getinfo(call->easy, CURLINFO_CONNECT_TIME_T, &us);
    return us;
}

void http_call_result(struct http_call *call, CURLcode code, const char *why,
                      struct http_result *ret_result)
{
    struct http_reply *reply = &call->reply;

    http_reply_seal(reply);
    bool single = call->permits == 1 || (call->permits > 1 && call->may_repeat);
    /* CURLE_OK alone is no proof: a header block cut in the middle comes with it, too. */
    bool complete = code == CURLE_OK && single && reply->status >= 200 &&
                    reply->state == HTTP_REPLY_BODY && !reply->broken;

    if (!why)
        why = call->error[0] || code == CURLE_OK ? call->error : curl_easy_strerror(code);
    *ret_result = (struct http_result){
        .permits = call->permits,
        .complete = complete,
        .dirty = call->dirty,
        .tls_untrusted = call->permits == 0 && is_trust_fault(code),
        .timed_out = code == CURLE_OPERATION_TIMEDOUT,
        .phase = phase_of(call, complete),
        .status = reply->status,
        .curl_code = (int)code,
        .error = why,
        .headers = reply->headers,
        .headers_count = reply->count,
        .body = reply->body.data ? reply->body.data : "",
        .body_len = reply->body.len,
        .connect_us = connect_us(call),
        .total_us = clock_boot_us() - call->started_us,
    };
}
