/* Amazon SNS, Publish to a phone number: query protocol, XML answers, SigV4. No de-duplication,
 * look-up or receipts. Facts: AWS's service description and API reference of SNS. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "providers/sandbox/dialect.h"
#include "providers/sandbox/dialects/aws_sigv4.h"
#include "worker/core/text.h"

#define NAMESPACE "http://sns.amazonaws.com/doc/2010-03-31/"
#define REQUEST   "b1a6f0c2-7d52-5e3a-9f0e-0a4f5c6d7e80"

enum { BODY_MAX = 1600, ATTRIBUTES_MAX = 10 };

static int say_error(struct sb_reply *reply, int status, const char *code, const char *message)
{
    sb_reply_header(reply, "x-amzn-RequestId", REQUEST);
    return sb_reply_printf(reply, status, "text/xml",
                           "<ErrorResponse xmlns=\"" NAMESPACE "\">\n"
                           "  <Error>\n    <Type>%s</Type>\n    <Code>%s</Code>\n"
                           "    <Message>%s</Message>\n  </Error>\n"
                           "  <RequestId>" REQUEST "</RequestId>\n</ErrorResponse>\n",
                           status < 500 ? "Sender" : "Receiver", code, message);
}

static int refuse_read(struct sb_reply *reply, int status, const char *code, const char *message)
{
    int rc = say_error(reply, status, code, message);

    return rc < 0 ? rc : -EINVAL;
}

static int check_signature(const struct sb_call *c, struct sb_reply *reply)
{
    switch (aws_sigv4_check(c, "sns")) {
    case AWS_OK:
        return 0;
    case AWS_MISSING:
        return refuse_read(reply, 403, "MissingAuthenticationToken",
                           "Request is missing Authentication Token");
    case AWS_KEY:
        return refuse_read(reply, 403, "InvalidClientTokenId",
                           "The security token included in the request is invalid.");
    case AWS_TIME:
        return refuse_read(reply, 403, "SignatureDoesNotMatch", "Signature expired");
    case AWS_MISMATCH:
        return refuse_read(reply, 403, "SignatureDoesNotMatch",
                           "The request signature we calculated does not match the signature you "
                           "provided.");
    default:
        return -ENOMEM;
    }
}

static bool is_e164(const char *s)
{
    size_t digits = *s == '+' ? strspn(s + 1, "0123456789") : 0;

    return digits >= 7 && digits <= 15 && s[digits + 1] == '\0' && s[1] != '0';
}

static bool is_sender_id(const char *s)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    size_t len = strlen(s);

    return len >= 1 && len <= 11 && strpbrk(s, letters) &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static int check_attribute(const char *name, const char *value, struct sb_send *s,
                           struct sb_reply *reply)
{
    if (strcmp(name, "AWS.SNS.SMS.SMSType") == 0) {
        if (strcmp(value, "Transactional") != 0 && strcmp(value, "Promotional") != 0)
            return refuse_read(reply, 400, "InvalidParameter",
                               "Invalid parameter: AWS.SNS.SMS.SMSType");
    } else if (strcmp(name, "AWS.SNS.SMS.SenderID") == 0) {
        if (!is_sender_id(value))
            return refuse_read(reply, 400, "InvalidParameter",
                               "Invalid parameter: AWS.SNS.SMS.SenderID");
        s->from = value;
    } else if (strcmp(name, "AWS.MM.SMS.OriginationNumber") == 0) {
        if (!is_e164(value))
            return refuse_read(reply, 400, "InvalidParameter",
                               "Invalid parameter: AWS.MM.SMS.OriginationNumber");
        s->from = value;
    }
    return 0; /* others are taken and do nothing */
}

/* MessageAttributes.entry.N.Name, .Value.DataType, .Value.StringValue: N from 1 without a gap. */
static int read_attributes(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    int rc = 0;

    for (int n = 1; n <= ATTRIBUTES_MAX && rc == 0; n++) {
        const char *at = sb_call_printf(c, "MessageAttributes.entry.%d.", n);
        const char *name = at ? sb_call_form(c, sb_call_printf(c, "%sName", at)) : NULL;
        const char *type = at ? sb_call_form(c, sb_call_printf(c, "%sValue.DataType", at)) : NULL;
        const char *value =
            at ? sb_call_form(c, sb_call_printf(c, "%sValue.StringValue", at)) : NULL;

        if (!name && !type && !value)
            break;
        if (!name || !type || !value || strcmp(type, "String") != 0)
            return refuse_read(reply, 400, "InvalidParameterValue",
                               "The message attribute must contain a name, type and value.");
        rc = check_attribute(name, value, s, reply);
    }
    return rc;
}

static int read_send(struct sb_call *c, struct sb_send *s, struct sb_reply *reply)
{
    const char *action = sb_call_form(c, "Action");
    const char *version = sb_call_form(c, "Version");
    struct text_measure m;
    int rc = check_signature(c, reply);

    if (rc < 0)
        return rc;
    if (!action || strcmp(action, "Publish") != 0 || !version || strcmp(version, "2010-03-31") != 0)
        return refuse_read(reply, 400, "InvalidAction", "Could not find operation");
    s->to = sb_call_form(c, "PhoneNumber");
    s->text = sb_call_form(c, "Message");
    if (!s->to || !is_e164(s->to))
        return refuse_read(reply, 400, "InvalidParameter",
                           "Invalid parameter: PhoneNumber Reason: not valid to publish to");
    if (!s->text || !*s->text)
        return refuse_read(reply, 400, "InvalidParameter", "Invalid parameter: Empty message");
    if (text_measure(s->text, strlen(s->text), &m) < 0 || m.characters > BODY_MAX)
        return refuse_read(reply, 400, "InvalidParameter", "Invalid parameter: Message too long");
    return read_attributes(c, s, reply);
}

static int accept_send(struct sb_call *c, const struct sb_send *s, const struct sb_msg *m,
                       bool replay, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)replay;
    return sb_reply_printf(reply, 200, "text/xml",
                           "<PublishResponse xmlns=\"" NAMESPACE "\">\n  <PublishResult>\n"
                           "    <MessageId>%s</MessageId>\n  </PublishResult>\n"
                           "  <ResponseMetadata>\n    <RequestId>" REQUEST "</RequestId>\n"
                           "  </ResponseMetadata>\n</PublishResponse>\n",
                           m->ids[0]);
}

/* An opted-out number is not told by Publish; what the sandbox does instead is its own. */
static int refuse_send(struct sb_call *c, enum sb_refusal why, const struct sb_send *s,
                       const struct sb_msg *known, struct sb_reply *reply)
{
    (void)c;
    (void)s;
    (void)known;
    switch (why) {
    case SB_REFUSE_NUMBER:
        return say_error(reply, 400, "InvalidParameter",
                         "Invalid parameter: PhoneNumber Reason: not valid to publish to");
    case SB_REFUSE_THROTTLED:
        return say_error(reply, 400, "Throttling", "Rate exceeded");
    case SB_REFUSE_ACCOUNT:
        return say_error(reply, 403, "AuthorizationError",
                         "User is not authorized to perform: SNS:Publish");
    case SB_REFUSE_ERROR:
        return say_error(reply, sb_reply_status(reply), "InternalError", "Internal Error");
    default:
        return -ENOTSUP;
    }
}

static const struct sb_setting settings[] = {AWS_SETTINGS, {NULL, NULL, NULL}};

static const struct sb_dialect_route routes[] = {
    {"POST", "/", NULL, false},
    {NULL, NULL, NULL, false},
};

const struct sb_dialect sb_dialect_aws_sns = {
    .name = "aws-sns",
    .help = "Publish to a phone number; SigV4; no look-up, no receipts",
    .settings = settings,
    .routes = routes,
    .dedup = SB_DEDUP_NONE,
    .read = read_send,
    .accept = accept_send,
    .refuse = refuse_send,
};
