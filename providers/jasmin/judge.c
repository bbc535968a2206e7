/* What Jasmin's answers prove: `Success "id"`, or `Error "words"` under a status of several
 * meanings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/jasmin/jasmin.h"
#include "providers/kit/verdict.h"

/* The text between the quotes of `WORD "text"`, as long as the whole body is just that. */
static const char *quoted(const struct provider_reply *reply, const char *word, size_t *ret_len)
{
    size_t n = strlen(word), len = reply->body_len;
    const char *body = reply->body;

    while (len > 0 && strchr(" \t\r\n", body[len - 1]) && body[len - 1])
        len--;
    if (len < n + 3 || memcmp(body, word, n) != 0 || memcmp(body + n, " \"", 2) != 0 ||
        body[len - 1] != '"')
        return NULL;
    *ret_len = len - n - 3;
    return body + n + 2;
}

/* Words at the beginning of the error, read in order. 403 alone has four meanings. */
static const struct {
    int status;
    const char *begins;
    enum provider_outcome outcome;
} errors[] = {
    {403, "Authentication failure", PROVIDER_HELD},
    {403, "Authorization failed", PROVIDER_HELD},
    {403, "Cannot charge submit_sm", PROVIDER_HELD},
    {403, "User throughput exceeded", PROVIDER_THROTTLED}, /* before charging and queueing */
    {412, "Failover route has no bound connectors", PROVIDER_REFUSED},
    {400, "Argument [from]", PROVIDER_HELD},
    {400, "Argument [to]", PROVIDER_REJECTED},
    {400, "Argument [content]", PROVIDER_REJECTED},
    {400, "Argument [hex-content]", PROVIDER_REJECTED},
    {400, "Argument [", PROVIDER_HELD},
    {400, "Mandatory argument", PROVIDER_HELD},
    {500, "Cannot send submit_sm", PROVIDER_UNKNOWN},
    {500, "Unknown error", PROVIDER_UNKNOWN},
    {503, "", PROVIDER_REFUSED}, /* the interceptor, before queueing */
};

static enum provider_outcome error_outcome(const struct jasmin *self, int status, const char *words,
                                           size_t len)
{
    static const char no_route[] = "No route found";

    if (status == 412 && len >= strlen(no_route) && memcmp(words, no_route, strlen(no_route)) == 0)
        return self->no_route_holds ? PROVIDER_HELD : PROVIDER_REJECTED;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        size_t n = strlen(errors[i].begins);

        if (status == errors[i].status && len >= n && memcmp(words, errors[i].begins, n) == 0)
            return errors[i].outcome;
    }
    return verdict_of_status(status);
}

int jasmin_judge(const struct jasmin *self, const struct provider_reply *reply,
                 struct provider_verdict *verdict)
{
    const struct provider_host *host = self->host;
    const char *words;
    size_t len;

    if (!reply->complete || !reply->body) {
        host->verdict(verdict, PROVIDER_UNKNOWN);
        return 0;
    }
    words = quoted(reply, "Success", &len);
    if (reply->status == 200 && words && len > 0 && !memchr(words, '"', len)) {
        int r = host->verdict_id(verdict, words, len);

        host->verdict(verdict, r == 0 ? PROVIDER_ACCEPTED : PROVIDER_UNKNOWN);
        return r == -ENOMEM ? r : 0;
    }
    words = quoted(reply, "Error", &len);
    if (!words || reply->status < 400) {
        host->verdict(verdict, verdict_of_status(reply->status));
        return 0;
    }
    host->verdict(verdict, error_outcome(self, reply->status, words, len));
    return host->verdict_detail(verdict, words, len);
}
