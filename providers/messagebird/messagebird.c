/* MessageBird and Bird: settings and the border. See README.md. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/request.h"
#include "providers/kit/sender.h"
#include "providers/kit/settings.h"
#include "providers/messagebird/messagebird.h"

static void mb_close(void *arg)
{
    struct mb_self *self = arg;

    if (!self)
        return;
    free(self->url);
    free(self->authorization);
    free(self->from);
    settings_list_free(self->secrets);
    json_decref(self->events);
    free(self);
}

/* ---- settings ------------------------------------------------------------------------------- */

static void read_events(struct mb_self *self, struct settings *s)
{
    const json_t *events = settings_json(s, "events");
    const char *name;
    json_t *word;
    uint32_t status;

    if (!events)
        return;
    if (!json_is_object(events)) {
        settings_refuse(s, "events", NULL, "must be an object: event type to status");
        return;
    }
    json_object_foreach ((json_t *)events, name, word)
        if (!mb_status_word(json_string_value(word), &status)) {
            settings_refuse(s, "events",
                            "use in_transit, delivered, undelivered, expired, rejected or ignore",
                            "\"%s\" has no known status", name);
            return;
        }
    self->events = json_deep_copy(events);
    if (!self->events && s->error == 0)
        s->error = -ENOMEM;
}

static void read_bird(struct mb_self *self, struct settings *s)
{
    static const char *const categories[] = {"by_kind", "authentication", "transactional",
                                             "marketing", NULL};
    static const char *const country[] = {"hold", "reject", NULL};
    char *key = settings_text(s, "api_key", NULL);
    const char *host = NULL;

    if (key && strncmp(key, "bk_us1_", 7) == 0)
        host = "https://us1.platform.bird.com";
    else if (key && strncmp(key, "bk_eu1_", 7) == 0)
        host = "https://eu1.platform.bird.com";
    else if (key && !settings_has(s, "url"))
        settings_refuse(s, "api_key", "give the API's address as \"url\"",
                        "does not begin with bk_us1_ or bk_eu1_, so it does not name a region");
    self->url = settings_url(s, "url", host ? host : "https://eu1.platform.bird.com");
    self->category = settings_word(s, "category", categories, 0);
    self->hold_country = settings_word(s, "country_not_enabled", country, 0) == 0;
    self->secrets = settings_list(s, "webhook_secret");
    for (char **p = self->secrets; p && *p; p++)
        if (!mb_bird_secret_ok(*p))
            settings_refuse(s, "webhook_secret", "copy it as it was shown: whsec_...",
                            "is not base64");
    read_events(self, s);
    if (key && asprintf(&self->authorization, "Bearer %s", key) < 0) {
        self->authorization = NULL;
        s->error = s->error ? s->error : -ENOMEM;
    }
    free(key);
}

static void read_rest(struct mb_self *self, struct settings *s)
{
    static const char *const datacoding[] = {"auto", "plain", "unicode", NULL};
    char *key = settings_text(s, "access_key", NULL);

    self->url = settings_url(s, "url", "https://rest.messagebird.com");
    self->datacoding = settings_word(s, "datacoding", datacoding, 0);
    self->secrets = settings_list(s, "signing_key");
    self->ask_delay_ms = settings_int(s, "lookup_delay_s", 60, 0, 3600) * 1000;
    self->absence_proves = settings_bool(s, "absence_proves", false);
    if (key && asprintf(&self->authorization, "AccessKey %s", key) < 0) {
        self->authorization = NULL;
        s->error = s->error ? s->error : -ENOMEM;
    }
    free(key);
}

static int mb_open(const struct provider_host *host, const char *settings_json,
                   struct provider_report *report, void **ret_self)
{
    static const char *const apis[] = {"rest", "bird", NULL};
    struct mb_self *self = calloc(1, sizeof(*self));
    struct settings s;
    int r;

    if (!self)
        return -ENOMEM;
    self->host = host;
    if (settings_begin(&s, host, settings_json, report) == 0) {
        self->api = settings_word(&s, "api", apis, 0) == 0 ? MB_REST : MB_BIRD;
        self->from = settings_text(&s, "from", NULL);
        if (self->from && s.error == 0 && sender_kind(self->from) == SENDER_BAD)
            settings_refuse(&s, "from", NULL, SENDER_RULE);
        if (self->api == MB_BIRD)
            read_bird(self, &s);
        else
            read_rest(self, &s);
    }
    r = settings_end(&s);
    if (r < 0) {
        mb_close(self);
        return r;
    }
    *ret_self = self;
    return 0;
}

static void mb_describe(const void *arg, struct provider_caps *ret)
{
    const struct mb_self *self = arg;

    ret->receipts = self->secrets ? PROVIDER_RECEIPTS_SIGNED : PROVIDER_RECEIPTS_UNSIGNED;
    if (self->api == MB_BIRD) {
        ret->dedup = PROVIDER_DEDUP_REPLAY;
        ret->dedup_window_ms = INT64_C(3) * 3600 * 1000;
        ret->number = PROVIDER_NUMBER_PLUS;
        return;
    }
    ret->ask = PROVIDER_ASK_BY_KEY;
    ret->absence_proves = self->absence_proves;
    ret->ask_delay_ms = self->ask_delay_ms;
    ret->number = PROVIDER_NUMBER_DIGITS;
    ret->validity = PROVIDER_VALIDITY_S;
}

/* ---- requests ------------------------------------------------------------------------------- */

int mb_post_json(const struct mb_self *self, struct provider_req *req, const char *path,
                 const char *key, json_t *take)
{
    struct form url = {0};
    int r;

    form_printf(&url, "%s%s", self->url, path);
    if (url.error) {
        json_decref(take);
        return url.error;
    }
    r = request_post_json(self->host, req, url.text, self->authorization, take);
    if (r == 0 && key)
        r = self->host->req_header(req, "Idempotency-Key", key);
    form_done(&url);
    return r;
}

static int mb_build(const void *arg, const struct provider_msg *msg, struct provider_req *req)
{
    const struct mb_self *self = arg;

    if (msg->sender && sender_kind(msg->sender) == SENDER_BAD)
        return -EINVAL;
    return self->api == MB_BIRD ? mb_bird_build(self, msg, req) : mb_rest_build(self, msg, req);
}

static int mb_judge(const void *arg, const struct provider_reply *reply,
                    struct provider_verdict *verdict)
{
    const struct mb_self *self = arg;

    return self->api == MB_BIRD ? mb_bird_judge(self, reply, verdict)
                                : mb_rest_judge(self, reply, verdict);
}

static int mb_ask(const void *arg, const struct provider_question *q, struct provider_req *req)
{
    const struct mb_self *self = arg;

    return self->api == MB_BIRD ? -ENODATA : mb_rest_ask(self, q, req);
}

static int mb_ask_judge(const void *arg, const struct provider_question *q,
                        const struct provider_reply *reply, struct provider_answer *answer)
{
    const struct mb_self *self = arg;

    if (self->api == MB_REST)
        return mb_rest_ask_judge(self, q, reply, answer);
    self->host->answer(answer, PROVIDER_CANNOT_SAY);
    return 0;
}

static int mb_receipt(const void *arg, const struct provider_callback *cb,
                      struct provider_events *out)
{
    const struct mb_self *self = arg;

    return self->api == MB_BIRD ? mb_bird_receipt(self, cb, out) : mb_rest_receipt(self, cb, out);
}

__attribute__((visibility("default"))) const struct provider *provider_entry(void)
{
    static const struct provider provider = {
        .abi_major = 1,
        .abi_minor = 1,
        .size = sizeof(struct provider),
        .name = "messagebird",
        .open = mb_open,
        .close = mb_close,
        .describe = mb_describe,
        .build = mb_build,
        .judge = mb_judge,
        .ask = mb_ask,
        .ask_judge = mb_ask_judge,
        .receipt = mb_receipt,
    };

    return &provider;
}
