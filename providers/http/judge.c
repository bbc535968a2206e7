/* What a reply proves. Order: an incomplete reply proves nothing; rules that look into the
 * body; acceptance; bare statuses from the settings; then what HTTP itself says. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "providers/http/http.h"
#include "providers/kit/callback.h"

/* ---- rules ---------------------------------------------------------------------------------- */

struct reading {
    const struct hp_self *self;
    const struct provider_reply *reply;
    struct provider_verdict *verdict;
    json_t *body; /* NULL: not JSON */
};

static bool status_in(const json_t *list, int status)
{
    if (json_is_integer(list))
        return json_integer_value(list) == status;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);

        if (json_is_integer(item) && json_integer_value(item) == status)
            return true;
    }
    return false;
}

/* A list of values means any of them. */
static bool value_matches(const json_t *found, const json_t *wanted)
{
    if (!found)
        return false;
    if (!json_is_array(wanted))
        return json_equal(found, wanted);
    for (size_t i = 0; i < json_array_size(wanted); i++)
        if (json_equal(found, json_array_get(wanted, i)))
            return true;
    return false;
}

bool hp_rule_matches(const json_t *rule, int status, const json_t *body)
{
    const char *pointer;
    json_t *wanted;

    if (!status_in(json_object_get(rule, "status"), status))
        return false;
    json_object_foreach (json_object_get(rule, "match"), pointer, wanted)
        if (!value_matches(hp_pointer_get(body, pointer), wanted))
            return false;
    return true;
}

static bool rule_matches(const struct reading *r, const json_t *rule)
{
    return hp_rule_matches(rule, r->reply->status, r->body);
}

static bool any_rule_matches(const struct reading *r, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_is_object(json_array_get(list, i)) && rule_matches(r, json_array_get(list, i)))
            return true;
    return false;
}

static enum provider_outcome list_outcome(enum hp_list list)
{
    static const enum provider_outcome outcomes[HP_LIST_MAX_] = {
        [HP_OPTED_OUT] = PROVIDER_REJECTED,  [HP_REJECTED] = PROVIDER_REJECTED,
        [HP_THROTTLED] = PROVIDER_THROTTLED, [HP_HELD] = PROVIDER_HELD,
        [HP_NOT_TAKEN] = PROVIDER_REFUSED,
    };

    return outcomes[list];
}

/* ---- words ---------------------------------------------------------------------------------- */

static int say(const struct reading *r, const char *why)
{
    char *text = NULL;
    int n = asprintf(&text, "status %d: %s", r->reply->status, why);
    int result = n < 0 ? -ENOMEM : r->self->host->verdict_detail(r->verdict, text, (size_t)n);

    free(text);
    return result;
}

/* RFC 9457: its title is a sentence about the kind of problem, never about this message. */
static const char *problem_title(const struct reading *r)
{
    const char *type = reply_header(r->reply, "content-type");

    if (!type || strncasecmp(type, "application/problem+json", 24) != 0)
        return NULL;
    return json_string_value(json_object_get(r->body, "title"));
}

/* The vendor's code and words; without words only what we know: the body may repeat the
 * message's text, which belongs into no record. */
static int tell_error(const struct reading *r)
{
    const struct hp_self *self = r->self;
    char digits[24];
    const char *text;
    size_t len;
    int result = 0;

    if (hp_text_at(r->body, self->error, digits, &text, &len))
        result = self->host->verdict_code(r->verdict, text, len);
    if (result < 0)
        return result;
    if (hp_text_at(r->body, self->detail, digits, &text, &len))
        return self->host->verdict_detail(r->verdict, text, len);
    text = problem_title(r);
    return say(r, text ? text : r->body ? "a JSON answer" : "the answer is not JSON");
}

/* ---- verdicts ------------------------------------------------------------------------------- */

static int accept_with(const struct reading *r, const char *id_pointer, bool optional)
{
    const struct provider_host *host = r->self->host;
    char digits[24];
    const char *id;
    size_t len;
    int result = -EINVAL;

    /* Zero and below are how vendors write "none". */
    if (hp_text_at(r->body, id_pointer, digits, &id, &len) && *id != '-' && strcmp(id, "0") != 0)
        result = host->verdict_id(r->verdict, id, len);
    if (result == -ENOMEM)
        return result;
    if (result == 0 || optional) {
        host->verdict(r->verdict, PROVIDER_ACCEPTED);
        return 0;
    }
    host->verdict(r->verdict, PROVIDER_UNKNOWN);
    return say(r, r->body ? "the vendor's id is missing" : "the answer is not JSON");
}

static int judge_as(const struct reading *r, enum provider_outcome outcome)
{
    r->self->host->verdict(r->verdict, outcome);
    return tell_error(r);
}

/* What a status proves when the settings do not say (ARCHITECTURE.md, R6). 401 to 407 mean
 * that the set-up is wrong: they hold the provider instead of failing message by message.
 * A 422 of a de-duplicating vendor may mean that the key was used before, so an earlier try
 * may have been taken; 409, that it is being worked on; gateways write 502 to 504 after the
 * vendor took a message. 521, 523, 525 and 526 are a proxy that never reached the vendor. */
static enum provider_outcome status_outcome(const struct hp_self *self, int status)
{
    switch (status) {
    case 429:
        return PROVIDER_THROTTLED;
    case 401:
    case 402:
    case 403:
    case 404:
    case 405:
    case 407:
    case 426:
        return PROVIDER_HELD;
    case 425:
    case 501:
    case 505:
    case 511:
    case 521:
    case 523:
    case 525:
    case 526:
        return PROVIDER_REFUSED;
    case 408:
    case 409:
        return PROVIDER_UNKNOWN;
    case 422:
        return self->dedup_window_ms > 0 ? PROVIDER_UNKNOWN : PROVIDER_REJECTED;
    default:
        return status >= 400 && status < 500 ? PROVIDER_REJECTED : PROVIDER_UNKNOWN;
    }
}

static bool about_key(const struct reading *r)
{
    static const char *const members[] = {"type", "title", "detail"};

    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const char *text = json_string_value(json_object_get(r->body, members[i]));

        if (text && strcasestr(text, "idempoten"))
            return true;
    }
    return false;
}

/* draft-ietf-httpapi-idempotency-key-header: with a problem document the vendor says whether the
 * key was the trouble. A key it misses (400) is our set-up; one it saw under another body (422)
 * means that an earlier try may have been taken; a 422 about anything else is about the message.
 * 409 stays unknown: an earlier try is being worked on, and the same key is tried again. */
static enum provider_outcome problem_outcome(const struct reading *r, enum provider_outcome plain)
{
    bool keyed = r->self->dedup_window_ms > 0 || r->self->key_header;

    if (!keyed || !problem_title(r))
        return plain;
    if (r->reply->status == 400)
        return about_key(r) ? PROVIDER_HELD : plain;
    if (r->reply->status == 422)
        return about_key(r) ? PROVIDER_UNKNOWN : PROVIDER_REJECTED;
    return plain;
}

static int judge_by_list(const struct reading *r, enum hp_list list)
{
    if (list == HP_OPTED_OUT)
        r->self->host->verdict_opt_out(r->verdict);
    return judge_as(r, list_outcome(list));
}

static int judge_read(const struct reading *r)
{
    const struct hp_self *self = r->self;

    for (int i = 0; i < HP_LIST_MAX_; i++)
        if (any_rule_matches(r, self->lists[i]))
            return judge_by_list(r, (enum hp_list)i);
    if (self->duplicate && rule_matches(r, self->duplicate)) {
        self->host->verdict_duplicate(r->verdict);
        return accept_with(r, json_string_value(json_object_get(self->duplicate, "id")), true);
    }
    if (rule_matches(r, self->accepted))
        return accept_with(r, self->id, self->id_optional);
    for (int i = 0; i < HP_LIST_MAX_; i++)
        if (status_in(self->lists[i], r->reply->status))
            return judge_by_list(r, (enum hp_list)i);
    return judge_as(r, problem_outcome(r, status_outcome(self, r->reply->status)));
}

int hp_judge(const struct hp_self *self, const struct provider_reply *reply,
             struct provider_verdict *verdict)
{
    struct reading r = {.self = self, .reply = reply, .verdict = verdict};
    int result;

    if (!reply->complete || reply->status < 200) {
        self->host->verdict(verdict, PROVIDER_UNKNOWN);
        return say(&r, "the answer broke off");
    }
    r.body = hp_read_json(reply->body, reply->body_len);
    result = judge_read(&r);
    json_decref(r.body);
    return result;
}
