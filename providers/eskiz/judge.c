/* Eskiz.uz: what a reply proves.
 *
 * Accepted is only the vendor's own "waiting" with an id. Errors are words, sometimes an object of
 * words a field, in three languages and perhaps inside a 200: what they are about decides. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/eskiz/eskiz.h"
#include "providers/kit/json.h"
#include "providers/kit/verdict.h"

/* ---- words ---------------------------------------------------------------------------------- */

struct stem {
    const char *text; /* lower case */
    enum ez_topic topic;
};

/* Beginnings of words, most telling first: money and names before templates before numbers, as
 * "the sender's number" is no bad recipient. */
static const struct stem stems[] = {
    {"баланс", EZ_TOPIC_SETUP},     {"средств", EZ_TOPIC_SETUP},    {"отправител", EZ_TOPIC_SETUP},
    {"никнейм", EZ_TOPIC_SETUP},    {"ник ", EZ_TOPIC_SETUP},       {"для теста", EZ_TOPIC_SETUP},
    {"balans", EZ_TOPIC_SETUP},     {"mablag", EZ_TOPIC_SETUP},     {"yetarli", EZ_TOPIC_SETUP},
    {"natuvchi", EZ_TOPIC_SETUP},   {"nik ", EZ_TOPIC_SETUP},       {"sinov", EZ_TOPIC_SETUP},
    {"balance", EZ_TOPIC_SETUP},    {"funds", EZ_TOPIC_SETUP},      {"nick", EZ_TOPIC_SETUP},
    {"sender", EZ_TOPIC_SETUP},     {"for test", EZ_TOPIC_SETUP},   {"callback", EZ_TOPIC_SETUP},
    {"шаблон", EZ_TOPIC_TEXT},      {"модерац", EZ_TOPIC_TEXT},     {"shablon", EZ_TOPIC_TEXT},
    {"moderatsiya", EZ_TOPIC_TEXT}, {"andoza", EZ_TOPIC_TEXT},      {"template", EZ_TOPIC_TEXT},
    {"moderation", EZ_TOPIC_TEXT},  {"номер", EZ_TOPIC_NUMBER},     {"абонент", EZ_TOPIC_NUMBER},
    {"черн", EZ_TOPIC_NUMBER},      {"чёрн", EZ_TOPIC_NUMBER},      {"raqam", EZ_TOPIC_NUMBER},
    {"qora ro", EZ_TOPIC_NUMBER},   {"abonent", EZ_TOPIC_NUMBER},   {"phone", EZ_TOPIC_NUMBER},
    {"number", EZ_TOPIC_NUMBER},    {"blacklist", EZ_TOPIC_NUMBER}, {"black list", EZ_TOPIC_NUMBER},
};

/* ASCII and Russian capitals become small, in place: each keeps its length in UTF-8. */
static void make_small(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p >= 'A' && *p <= 'Z') {
            *p |= 0x20;
        } else if (p[0] == 0xd0 && p[1] >= 0x90 && p[1] <= 0x9f) { /* А-П */
            p[1] = (unsigned char)(p[1] + 0x20);
        } else if (p[0] == 0xd0 && p[1] >= 0xa0 && p[1] <= 0xaf) { /* Р-Я */
            p[0] = 0xd1;
            p[1] = (unsigned char)(p[1] - 0x20);
        } else if (p[0] == 0xd0 && p[1] == 0x81) { /* Ё */
            p[0] = 0xd1;
            p[1] = 0x91;
        }
    }
}

int ez_topic(const char *words)
{
    char *small = strdup(words);
    int topic = EZ_TOPIC_OTHER;

    if (!small)
        return -ENOMEM;
    make_small(small);
    for (size_t i = 0; i < sizeof(stems) / sizeof(*stems) && topic == EZ_TOPIC_OTHER; i++)
        if (strstr(small, stems[i].text))
            topic = (int)stems[i].topic;
    free(small);
    return topic;
}

/* ---- errors --------------------------------------------------------------------------------- */

struct reading {
    const struct ez_self *self;
    const struct provider_reply *reply;
    struct provider_verdict *v;
    const json_t *body;
};

static int say(const struct reading *r, enum provider_outcome outcome, enum verdict_mark mark,
               const char *detail)
{
    const struct verdict_row row = {NULL, 0, outcome, mark};

    return verdict_say(r->self->host, r->v, &row, json_text_at(r->body, "status"), detail);
}

static bool ends_in(const char *text, const char *end)
{
    size_t len = strlen(text), end_len = strlen(end);

    return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

/* {"message":{"messages.0.to":["…"]}}: the field says what is wrong. */
static int topic_of_field(const char *field)
{
    if (ends_in(field, ".to") || strcmp(field, "to") == 0 || strcmp(field, "mobile_phone") == 0)
        return EZ_TOPIC_NUMBER;
    return EZ_TOPIC_SETUP;
}

static enum provider_outcome outcome_of(const struct ez_self *self, int topic)
{
    if (topic == EZ_TOPIC_NUMBER || (topic == EZ_TOPIC_TEXT && self->reject_text))
        return PROVIDER_REJECTED;
    return PROVIDER_HELD; /* nothing is lost: the queue waits, and someone is told */
}

static int judge_words(const struct reading *r)
{
    const json_t *message = json_path(r->body, "message");
    const char *words = json_string_value(message), *field;
    json_t *value;
    int topic = words ? ez_topic(words) : EZ_TOPIC_OTHER;

    if (topic < 0)
        return topic;
    json_object_foreach ((json_t *)message, field, value) {
        topic = topic_of_field(field);
        words = json_string_value(json_is_array(value) ? json_array_get(value, 0) : value);
        words = words ? words : field;
        break;
    }
    return say(r, outcome_of(r->self, topic), VERDICT_PLAIN, words);
}

/* ---- success -------------------------------------------------------------------------------- */

/* "waiting", or for a batch ["waiting"]. */
static bool is_waiting(const json_t *status)
{
    size_t n = json_array_size(status);

    if (json_is_string(status))
        return strcmp(json_string_value(status), "waiting") == 0;
    for (size_t i = 0; i < n; i++) {
        const char *word = json_string_value(json_array_get(status, i));

        if (!word || strcmp(word, "waiting") != 0)
            return false;
    }
    return n > 0;
}

static int judge_ok(const struct reading *r)
{
    const struct provider_host *host = r->self->host;
    const char *status = json_text_at(r->body, "status");
    char buf[24];
    const char *id = json_word_at(r->body, "id", buf, sizeof(buf));

    if (id && *id && is_waiting(json_path(r->body, "status"))) {
        host->verdict(r->v, PROVIDER_ACCEPTED);
        return host->verdict_id(r->v, id, strlen(id));
    }
    /* An error inside a 200 is one only without an id: with one it may have been taken. */
    if (!id && status && strcmp(status, "error") == 0)
        return judge_words(r);
    return say(r, PROVIDER_UNKNOWN, VERDICT_PLAIN, "neither \"waiting\" nor an error");
}

/* An error of the vendor's own: JSON with its words. */
static int judge_error(const struct reading *r)
{
    switch (r->reply->status) {
    case 401:
        return say(r, PROVIDER_HELD, VERDICT_LOGIN, json_text_at(r->body, "message"));
    case 400:
    case 402:
    case 403:
    case 422:
        return judge_words(r);
    default:
        return say(r, verdict_of_status(r->reply->status), VERDICT_PLAIN,
                   json_text_at(r->body, "message"));
    }
}

int ez_judge(const void *arg, const struct provider_reply *reply, struct provider_verdict *v)
{
    json_auto_t *body = reply->complete ? json_body(reply->body, reply->body_len) : NULL;
    const struct reading r = {arg, reply, v, body};

    if (!reply->complete)
        return say(&r, PROVIDER_UNKNOWN, VERDICT_PLAIN, "the answer broke off");
    if (reply->status == 200 && body)
        return judge_ok(&r);
    if (json_path(body, "message"))
        return judge_error(&r);
    return say(&r, verdict_of_status(reply->status), VERDICT_PLAIN,
               body ? "not the vendor's form" : "the answer is not JSON");
}
