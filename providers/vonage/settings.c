/* Settings of both APIs: which fit together, and what follows from them. */
#include "providers/kit/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/request.h"
#include "providers/kit/sender.h"
#include "providers/vonage/vonage.h"

const char *vonage_sender(const struct vonage *v, const struct provider_msg *msg)
{
    const char *sender = msg->sender ? msg->sender : v->from;

    if (sender_kind(sender) == SENDER_BAD)
        return NULL;
    return sender + (*sender == '+');
}

/* Reports are not at rest.nexmo.com, whatever else is asked there. */
static char *reports_root(const struct vonage *v)
{
    const char *host = strstr(v->url, "://");

    if (host && strncmp(host + 3, "rest", 4) == 0 && strstr(host, ".nexmo.com"))
        return strdup("https://api.nexmo.com");
    return strdup(v->url);
}

static int read_urls(struct vonage *v, struct settings *s)
{
    v->url = settings_url(
        s, "url", v->api == VONAGE_SMS ? "https://rest.nexmo.com" : "https://api.nexmo.com");
    if (s->error)
        return s->error;
    if (settings_has(s, "reports_url"))
        v->reports_url = settings_url(s, "reports_url", NULL);
    else if (!(v->reports_url = reports_root(v)))
        return -ENOMEM;
    return s->error;
}

static int read_pair(struct vonage *v, struct settings *s)
{
    v->api_key = settings_text(s, "api_key", v->auth == VONAGE_AUTH_JWT ? "" : NULL);
    v->api_secret = settings_text(s, "api_secret", v->auth == VONAGE_AUTH_JWT ? "" : NULL);
    if (s->error)
        return s->error;
    if (!v->api_key != !v->api_secret)
        return settings_refuse(s, v->api_key ? "api_secret" : "api_key", NULL,
                               "is missing beside %s", v->api_key ? "api_key" : "api_secret");
    if (!v->api_key)
        return 0;
    v->basic = request_basic(v->api_key, v->api_secret);
    return v->basic ? 0 : -ENOMEM;
}

static int read_application(struct vonage *v, struct settings *s)
{
    if (v->auth != VONAGE_AUTH_JWT)
        return 0;
    v->application_id = settings_text(s, "application_id", NULL);
    v->private_key = settings_lines(s, "private_key", NULL);
    if (s->error)
        return s->error;
    if (!sign_rsa_private_ok(v->private_key))
        return settings_refuse(s, "private_key", "give the PEM text of the application's key",
                               "is not an RSA private key");
    return 0;
}

static int read_access(struct vonage *v, struct settings *s)
{
    static const char *const words[] = {"body", "basic", "jwt", NULL};
    size_t fallback = v->api == VONAGE_SMS                ? VONAGE_AUTH_BODY
                      : settings_has(s, "application_id") ? VONAGE_AUTH_JWT
                                                          : VONAGE_AUTH_BASIC;
    int r;

    v->auth = (enum vonage_auth)settings_word(s, "auth", words, fallback);
    if (s->error)
        return s->error;
    if (v->api == VONAGE_SMS && v->auth == VONAGE_AUTH_JWT)
        return settings_refuse(s, "auth", "body or basic", "the SMS API takes no JWT");
    if (v->api == VONAGE_MESSAGES && v->auth == VONAGE_AUTH_BODY)
        return settings_refuse(s, "auth", "jwt or basic",
                               "the Messages API reads no key from the body");
    r = read_pair(v, s);
    return r == 0 ? read_application(v, s) : r;
}

static int read_signature(struct vonage *v, struct settings *s)
{
    static const char *const words[] = {"md5hash", "md5", "sha1", "sha256", "sha512", NULL};
    static const enum sign_hash hashes[] = {SIGN_MD5, SIGN_MD5, SIGN_SHA1, SIGN_SHA256,
                                            SIGN_SHA512};
    size_t method = 0;

    v->signature_secrets = settings_list(s, "signature_secret");
    if (v->api == VONAGE_SMS)
        method = settings_word(s, "signature_method", words, 0);
    v->md5_hash = method == 0;
    v->signature_hash = hashes[method];
    return s->error;
}

static int read_all(struct vonage *v, struct settings *s)
{
    static const char *const apis[] = {"sms", "messages", NULL};
    int r;

    if (!settings_has(s, "api"))
        return settings_refuse(s, "api", "sms or messages", "is missing");
    v->api = (enum vonage_api)settings_word(s, "api", apis, 0);
    v->from = settings_text(s, "from", "");
    v->lookup_delay_ms = settings_int(s, "lookup_delay_s", 300, 0, 86400) * 1000;
    v->absence_proves = settings_bool(s, "absence_proves", false);
    v->lookup_slice_ms = settings_int(s, "lookup_slice_s", 10, 1, 86400) * 1000;
    r = s->error;
    if (r == 0 && v->from && sender_kind(v->from) == SENDER_BAD)
        r = settings_refuse(s, "from", NULL, SENDER_RULE);
    if (r == 0)
        r = read_urls(v, s);
    if (r == 0)
        r = read_access(v, s);
    if (r == 0)
        r = read_signature(v, s);
    return r;
}

int vonage_read_settings(struct vonage *v, const char *settings_json,
                         struct provider_report *report)
{
    struct settings s;
    int r = settings_begin(&s, v->host, settings_json, report);
    int end;

    if (r == 0)
        r = read_all(v, &s);
    end = settings_end(&s);
    return r == 0 ? end : r;
}
