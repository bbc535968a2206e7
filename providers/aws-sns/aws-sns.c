/* Amazon SNS, Publish to a phone number: query protocol, XML answers, nothing to prove a lost
 * answer by. See README.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/sender.h"
#include "providers/kit/settings.h"
#include "providers/kit/verdict.h"
#include "providers/provider.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char sender_signs[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";
static const char region_signs[] = "abcdefghijklmnopqrstuvwxyz0123456789-";

enum { TYPE_BY_KIND, TYPE_TRANSACTIONAL, TYPE_PROMOTIONAL };

struct sns_self {
    const struct provider_host *host;
    char *url, *region, *access_key, *secret_key, *session, *from;
    size_t type;
};

/* A number of ours, or a SenderID: letters, digits and hyphens. */
static bool sender_ok(const char *sender)
{
    enum sender_kind kind = sender_kind(sender);

    return kind == SENDER_NAME ? strspn(sender, sender_signs) == strlen(sender)
                               : kind != SENDER_BAD;
}

static void sns_close(void *arg)
{
    struct sns_self *self = arg;

    if (!self)
        return;
    free(self->url);
    free(self->region);
    free(self->access_key);
    free(self->secret_key);
    free(self->session);
    free(self->from);
    free(self);
}

static void read_region(struct sns_self *self, struct settings *s)
{
    char *host = NULL;

    self->region = settings_text(s, "region", NULL);
    if (self->region && strspn(self->region, region_signs) != strlen(self->region))
        settings_refuse(s, "region", "write it as AWS does: eu-central-1", "is not a region");
    if (self->region && asprintf(&host, "https://sns.%s.amazonaws.com", self->region) < 0)
        host = NULL;
    self->url = settings_url(s, "url", host ? host : "https://sns.amazonaws.com");
    free(host);
}

static int sns_open(const struct provider_host *host, const char *settings_json,
                    struct provider_report *report, void **ret_self)
{
    static const char *const types[] = {"by_kind", "Transactional", "Promotional", NULL};
    struct sns_self *self = calloc(1, sizeof(*self));
    struct settings s;
    int r;

    if (!self)
        return -ENOMEM;
    self->host = host;
    if (settings_begin(&s, host, settings_json, report) == 0) {
        read_region(self, &s);
        self->access_key = settings_text(&s, "access_key_id", NULL);
        self->secret_key = settings_text(&s, "secret_access_key", NULL);
        self->session = settings_text(&s, "session_token", "");
        self->from = settings_text(&s, "from", "");
        self->type = settings_word(&s, "sms_type", types, TYPE_BY_KIND);
        if (self->from && !sender_ok(self->from))
            settings_refuse(&s, "from", "a name is of letters, digits and hyphens", SENDER_RULE);
    }
    r = settings_end(&s);
    if (r < 0) {
        sns_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

/* All that is true of Publish: no key, no look-up, no receipts, no lifetime. */
static void sns_describe(const void *arg, struct provider_caps *ret)
{
    (void)arg;
    ret->number = PROVIDER_NUMBER_PLUS;
}

/* ---- build ---------------------------------------------------------------------------------- */

static void add_attribute(struct form *body, int n, const char *name, const char *value)
{
    struct form at = {0};

    form_printf(&at, "&MessageAttributes.entry.%d.", n);
    form_printf(body, "%sName=", at.error ? "" : at.text);
    form_escape(body, name, strlen(name));
    form_printf(body, "%sValue.DataType=String%sValue.StringValue=", at.error ? "" : at.text,
                at.error ? "" : at.text);
    form_escape(body, value, strlen(value));
    if (at.error)
        body->error = at.error;
    form_done(&at);
}

static void add_sender(struct form *body, const char *sender)
{
    struct form number = {0};

    if (sender_kind(sender) == SENDER_NAME) {
        add_attribute(body, 2, "AWS.SNS.SMS.SenderID", sender);
        return;
    }
    form_printf(&number, "+%s", sender + (*sender == '+'));
    if (number.error)
        body->error = number.error;
    else
        add_attribute(body, 2, "AWS.MM.SMS.OriginationNumber", number.text);
    form_done(&number);
}

static const char *type_of(const struct sns_self *self, const char *kind)
{
    if (self->type == TYPE_PROMOTIONAL)
        return "Promotional";
    if (self->type == TYPE_BY_KIND && strcmp(kind, "campaign") == 0)
        return "Promotional";
    return "Transactional";
}

static int fill(const struct sns_self *self, const struct form *url, const struct form *body,
                struct provider_req *req)
{
    const struct provider_host *host = self->host;
    int r = url->error ? url->error : body->error;

    if (r == 0)
        r = host->req_method(req, "POST");
    if (r == 0)
        r = host->req_url(req, url->text);
    /* No "Accept: application/json": SNS would then answer in another form than it documents. */
    if (r == 0)
        r = host->req_header(req, "Content-Type", "application/x-www-form-urlencoded");
    if (r == 0)
        r = host->req_body(req, body->text, body->len);
    if (r == 0)
        r = host->req_sigv4(req, self->region, "sns", self->access_key, self->secret_key,
                            self->session);
    return r;
}

static int sns_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct sns_self *self = arg;
    const char *sender = msg->sender ? msg->sender : self->from;
    struct form url = {0}, body = {0};
    int r;

    if (sender && !sender_ok(sender))
        return -EINVAL;
    form_printf(&url, "%s/", self->url);
    form_raw(&body, "Action=Publish&Version=2010-03-31");
    form_add(&body, "PhoneNumber", msg->recipient);
    form_add_n(&body, "Message", msg->body, msg->body_len);
    add_attribute(&body, 1, "AWS.SNS.SMS.SMSType", type_of(self, msg->kind));
    if (sender)
        add_sender(&body, sender);
    r = fill(self, &url, &body, req);
    form_done(&url);
    form_done(&body);
    return r;
}

/* ---- judge ---------------------------------------------------------------------------------- */

/* AWS writes these answers without attributes or comments inside, so that looking for the tags is
 * enough; anything else finds nothing, which proves nothing. */
static bool root_is(const char *body, size_t len, const char *name)
{
    static const char space[] = " \t\r\n";
    const char *p = body + strspn(body, space);
    size_t n = strlen(name);

    if (memchr(body, '\0', len))
        return false;
    if (strncmp(p, "<?xml", 5) == 0) {
        p = strstr(p, "?>");
        if (!p)
            return false;
        p += 2;
        p += strspn(p, space);
    }
    return *p == '<' && strncmp(p + 1, name, n) == 0 &&
           (p[n + 1] == '>' || (p[n + 1] && strchr(space, p[n + 1])));
}

static void decode_entities(char *text)
{
    static const struct {
        const char *name;
        char sign;
    } entities[] = {
        {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&amp;", '&'}};
    char *out = text;

    while (*text) {
        size_t i, n = 0;

        for (i = 0; i < COUNT(entities) && n == 0; i++)
            if (strncmp(text, entities[i].name, strlen(entities[i].name)) == 0)
                n = strlen(entities[i].name);
        *out++ = n > 0 ? entities[i - 1].sign : *text;
        text += n > 0 ? n : 1;
    }
    *out = '\0';
}

/* What stands between <tag> and </tag>; the caller frees. NULL: not there, empty or no memory. */
static char *element(const char *body, const char *tag)
{
    char open[32], close[33];
    const char *from, *to;
    char *text;

    (void)snprintf(open, sizeof(open), "<%s>", tag);
    (void)snprintf(close, sizeof(close), "</%s>", tag);
    from = strstr(body, open);
    if (!from)
        return NULL;
    from += strlen(open);
    to = strstr(from, close);
    if (!to || to == from)
        return NULL;
    text = strndup(from, (size_t)(to - from));
    if (text)
        decode_entities(text);
    return text;
}

static const struct verdict_row rows[] = {
    {"InvalidParameter", 4, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"InvalidParameterValue", 4, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"ParameterValueInvalid", 4, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"ValidationException", 4, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"ValidationError", 4, PROVIDER_REJECTED, VERDICT_PLAIN},
    {"OptedOut", 4, PROVIDER_REJECTED, VERDICT_OPT_OUT},
    {"Throttling", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"Throttled", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"ThrottledException", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"ThrottlingException", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"RequestLimitExceeded", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"TooManyRequestsException", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"KMSThrottling", 0, PROVIDER_THROTTLED, VERDICT_PLAIN},
    {"AuthorizationError", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"InvalidSecurity", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"KMSOptInRequired", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"KMSAccessDenied", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"KMSDisabled", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"KMSInvalidState", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"KMSNotFound", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"NotFound", 4, PROVIDER_HELD, VERDICT_PLAIN},
    /* what a wrong key, clock or policy looks like: AWS answers some of them with 400 */
    {"AccessDenied", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"AccessDeniedException", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"SignatureDoesNotMatch", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"IncompleteSignature", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"InvalidClientTokenId", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"MissingAuthenticationToken", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"ExpiredToken", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"RequestExpired", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"OptInRequired", 4, PROVIDER_HELD, VERDICT_PLAIN},
    {"InternalError", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN},
    {"InternalFailure", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN},
    {"ServiceUnavailable", 0, PROVIDER_UNKNOWN, VERDICT_PLAIN},
};

static int judge_error(const struct sns_self *self, const struct provider_reply *reply,
                       struct provider_verdict *v)
{
    bool theirs = root_is(reply->body, reply->body_len, "ErrorResponse");
    char *code = theirs ? element(reply->body, "Code") : NULL;
    char *words = theirs ? element(reply->body, "Message") : NULL;
    struct verdict_row plain = {.outcome = verdict_of_status(reply->status)};
    const struct verdict_row *row =
        code ? verdict_find(rows, COUNT(rows), reply->status, code) : NULL;
    int r;

    /* The attributes are the sender and the type: set-up, which fails every message alike. */
    if (row && row->outcome == PROVIDER_REJECTED && words && strstr(words, "AWS.SNS.SMS.")) {
        plain.outcome = PROVIDER_HELD;
        row = &plain;
    }
    r = verdict_say(self->host, v, row ? row : &plain, code,
                    theirs ? words : "the answer is not in the form of SNS");
    free(code);
    free(words);
    return r;
}

static int sns_judge(const void *arg, const struct provider_reply *reply,
                     struct provider_verdict *v)
{
    static const struct verdict_row accepted = {.outcome = PROVIDER_ACCEPTED};
    const struct sns_self *self = arg;
    char *id = NULL;
    int r;

    if (reply->status / 100 == 2 && root_is(reply->body, reply->body_len, "PublishResponse"))
        id = element(reply->body, "MessageId");
    if (!id)
        return judge_error(self, reply, v);
    r = self->host->verdict_id(v, id, strlen(id));
    if (r == 0)
        r = verdict_say(self->host, v, &accepted, NULL, NULL);
    free(id);
    return r;
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = 1,
        .abi_minor = 1,
        .size = sizeof(struct provider),
        .name = "aws-sns",
        .open = sns_open,
        .close = sns_close,
        .describe = sns_describe,
        .build = sns_build,
        .judge = sns_judge,
    };

    return &provider;
}
