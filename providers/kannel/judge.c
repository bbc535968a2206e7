/* What smsbox's words prove, and what a fetched dlr-url tells. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kannel/kannel.h"
#include "providers/kit/callback.h"
#include "providers/kit/verdict.h"

/* ---- answers -------------------------------------------------------------------------------- */

/* smsbox has no codes: a status and a sentence. Sentences are compared from their beginning, since
 * "Sent." may be followed by the number of parts. */
static const struct {
    int status;
    const char *begins;
    enum provider_outcome outcome;
} sentences[] = {
    {202, "0: Accepted for delivery", PROVIDER_ACCEPTED},
    {202, "3: Queued for later delivery", PROVIDER_ACCEPTED},
    {202, "Sent.", PROVIDER_ACCEPTED},
    {403, "Authorization failed for sendsms", PROVIDER_HELD},
    {403, "Not routable. Do not try again.", PROVIDER_REJECTED},
    {503, "Temporal failure, try again later.", PROVIDER_REFUSED},
    /* The request's own parameters: the set-up is wrong, and every message would fail so. */
    {400, "Sender missing and no global set", PROVIDER_HELD},
    {400, "Account field misformed", PROVIDER_HELD},
    {400, "DLR-URL field misformed", PROVIDER_HELD},
    {400, "DLR-Mask field misformed", PROVIDER_HELD},
    {400, "Validity field misformed", PROVIDER_HELD},
    {400, "Coding field misformed", PROVIDER_HELD},
    {400, "Invalid content-type", PROVIDER_HELD},
    {415, "Unsupported content-type", PROVIDER_HELD},
    {400, "Missing receiver", PROVIDER_REJECTED},
    {400, "Empty receiver number", PROVIDER_REJECTED},
    {400, "Number(s) has/have been denied", PROVIDER_REJECTED},
    {400, "Charset or body misformed", PROVIDER_REJECTED},
    {500, "Sending failed.", PROVIDER_UNKNOWN}, /* a part of it may be in */
};

static bool begins_with(const char *text, const char *begin)
{
    return strncmp(text, begin, strlen(begin)) == 0;
}

/* We send to one receiver a request: one that is named as denied is ours. */
static bool is_denied(const char *body)
{
    return strstr(body, "Denied receivers are:") != NULL;
}

int kannel_judge(const struct kannel *self, const struct provider_reply *reply,
                 struct provider_verdict *verdict)
{
    const char *body = reply->body ? reply->body : "";
    const size_t n = sizeof(sentences) / sizeof(sentences[0]);
    enum provider_outcome outcome;
    size_t i = 0;

    if (!reply->complete) {
        self->host->verdict(verdict, PROVIDER_UNKNOWN);
        return 0;
    }
    body += strspn(body, " \t\r\n");
    while (i < n &&
           (reply->status != sentences[i].status || !begins_with(body, sentences[i].begins)))
        i++;
    outcome = i < n ? sentences[i].outcome : verdict_of_status(reply->status);
    if (i < n && outcome == PROVIDER_ACCEPTED && is_denied(body))
        outcome = PROVIDER_REJECTED;
    self->host->verdict(verdict, outcome);
    if (i == n || outcome == PROVIDER_ACCEPTED)
        return 0; /* foreign words may repeat the text: they belong into no record */
    if (sentences[i].outcome == PROVIDER_ACCEPTED)
        return self->host->verdict_detail(verdict, "Denied receivers", strlen("Denied receivers"));
    return self->host->verdict_detail(verdict, body, strcspn(body, "\r\n"));
}

/* ---- receipts ------------------------------------------------------------------------------- */

/* The word after `stat:` in an SMPP receipt. */
static bool stat_word(const char *words, char *ret, size_t size)
{
    const char *at = strstr(words, "stat:");
    size_t len = at ? strspn(at + 5, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") : 0;

    if (len == 0 || len >= size)
        return false;
    memcpy(ret, at + 5, len);
    ret[len] = '\0';
    return true;
}

static enum provider_status undelivered_as(const char *word)
{
    if (strcmp(word, "EXPIRED") == 0)
        return PROVIDER_STATUS_EXPIRED;
    return strcmp(word, "REJECTD") == 0 ? PROVIDER_STATUS_REJECTED : PROVIDER_STATUS_UNDELIVERED;
}

/* smsbox's events (gw/dlr.h). False: none of them. */
static bool status_of(const char *event, const char *word, uint32_t *ret)
{
    if (strcmp(event, "1") == 0)
        *ret = PROVIDER_STATUS_DELIVERED;
    else if (strcmp(event, "2") == 0)
        *ret = undelivered_as(word);
    else if (strcmp(event, "4") == 0 || strcmp(event, "8") == 0)
        *ret = PROVIDER_STATUS_IN_TRANSIT;
    else if (strcmp(event, "16") == 0)
        *ret = PROVIDER_STATUS_REJECTED;
    else
        return false;
    return true;
}

static int read_inbound(const struct kannel *self, const struct provider_callback *cb,
                        struct provider_events *out)
{
    const struct provider_inbound m = {
        .from = callback_param(cb, "from"),
        .to = callback_param(cb, "to"),
        .text = callback_param(cb, "text"),
        .id = callback_param(cb, "id"),
    };

    return m.from && m.text ? self->host->inbound(out, &m) : -EBADMSG;
}

int kannel_receipt(const struct kannel *self, const struct provider_callback *cb,
                   struct provider_events *out)
{
    const char *event = callback_query(cb, "d"), *words = callback_query(cb, "a");
    const char *id = callback_query(cb, "f");
    struct provider_receipt r = {0};
    char word[16] = "";

    if (!event)
        return read_inbound(self, cb, out);
    if (!words)
        words = "";
    /* Of %A only the state goes on: an SMPP receipt repeats the first characters of the text. */
    if (stat_word(words, word, sizeof(word)))
        r.code = word;
    else if (begins_with(words, "NACK/") && words[5])
        r.code = words + 5;
    if (!status_of(event, word, &r.status))
        return -EBADMSG;
    if (r.status == PROVIDER_STATUS_DELIVERED || r.status == PROVIDER_STATUS_IN_TRANSIT)
        r.code = NULL;
    r.vendor_id = id && *id ? id : NULL;
    return self->host->receipt(out, &r);
}
