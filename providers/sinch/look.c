/* Logging in at Sinch, and asking: its list of batches filtered by our reference.
 *
 * The filter makes the answer exact, but each entry's reference is compared all the same: a
 * parameter that is ignored would otherwise turn anybody's batch into ours. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "providers/kit/form.h"
#include "providers/kit/json.h"
#include "providers/kit/request.h"
#include "providers/kit/when.h"
#include "providers/sinch/sinch.h"

/* Few, as our reference names few: ten of the longest texts stay within what the worker reads. */
enum { PAGE_SIZE = 10 };

/* Without start_date only the last day is listed. Their clock is not ours. */
static const int64_t before_ms = INT64_C(3600) * 1000;

/* ---- login ---------------------------------------------------------------------------------- */

int sinch_login(const void *arg, int64_t now_ms, struct provider_req *req,
                struct provider_grant *grant)
{
    static const char body[] = "grant_type=client_credentials";
    const struct sinch *self = arg;

    (void)now_ms;
    if (self->api_token) /* nothing to ask for */
        return self->host->grant_token(grant, self->api_token, strlen(self->api_token), 0);
    return request_post(self->host, req, self->token_url, self->basic,
                        "application/x-www-form-urlencoded", body, strlen(body));
}

/* RFC 6749, 5.1 and 5.2. */
int sinch_login_judge(const void *arg, const struct provider_reply *reply,
                      struct provider_grant *grant)
{
    const struct sinch *self = arg;
    json_t *body = json_body(reply->body, reply->body_len);
    const char *token = json_text_at(body, "access_token");
    const char *error = json_text_at(body, "error");
    int64_t seconds = 0;
    int r = 0;

    if (!json_i64_at(body, "expires_in", &seconds) || seconds < 0 || seconds > INT32_MAX)
        seconds = 0; /* until it is refused */
    if (reply->status == 200 && token && *token)
        r = self->host->grant_token(grant, token, strlen(token), seconds * 1000);
    else if (reply->status == 401 || (reply->status == 400 && error))
        self->host->grant_refuse(grant, error, json_text_at(body, "error_description"));
    json_decref(body);
    return r;
}

/* ---- asking --------------------------------------------------------------------------------- */

/* Our cursor: "PAGE SEEN", the page to ask for and how many entries the ones before it held: Sinch
 * may give fewer a page than it was asked for. */
struct place {
    int64_t page, seen;
};

static struct place place_of(const struct provider_question *q)
{
    struct place p = {0, 0};
    char *end = NULL;

    if (!q->cursor)
        return p;
    p.page = strtoll(q->cursor, &end, 10);
    p.seen = strtoll(end, NULL, 10);
    return p;
}

int sinch_ask(const void *arg, const struct provider_question *q, struct provider_req *req)
{
    const struct sinch *self = arg;
    char when[WHEN_SIZE], *bearer = sinch_bearer(self, q->msg);
    struct form url = {0};
    int r;

    form_printf(&url, "%s?", self->batches_url);
    form_add(&url, "client_reference", q->msg->id);
    form_add(&url, "start_date", when_rfc3339(q->from_ms - before_ms, when));
    form_add_i64(&url, "page", place_of(q).page);
    form_add_i64(&url, "page_size", PAGE_SIZE);
    r = url.error ? url.error : bearer ? 0 : -EINVAL;
    if (r == 0)
        r = request_get(self->host, req, url.text, bearer);
    form_done(&url);
    free(bearer);
    return r;
}

/* The id of our batch on this page, NULL when it is not there. */
static const char *find(const json_t *batches, const char *reference)
{
    const json_t *entry;
    size_t i;

    json_array_foreach (batches, i, entry) {
        const char *theirs = json_text_at(entry, "client_reference");
        const char *id = json_text_at(entry, "id");

        if (theirs && strcmp(theirs, reference) == 0 && id && *id)
            return id;
    }
    return NULL;
}

static int cannot_say(const struct sinch *self, int status, const json_t *body,
                      struct provider_answer *answer)
{
    const char *code = json_text_at(body, "code");

    if (status == 401 && !self->api_token)
        self->host->answer_login(answer);
    else
        self->host->answer(answer, PROVIDER_CANNOT_SAY);
    return code ? self->host->answer_code(answer, code, strlen(code)) : 0;
}

/* Not on this page: there is another, the list is at its end, or it contradicts itself. */
static int not_here(const struct sinch *self, const struct provider_question *q, size_t entries,
                    int64_t count, struct provider_answer *answer)
{
    struct place at = place_of(q);
    struct form cursor = {0};
    int r;

    at.seen += (int64_t)entries;
    if (at.seen >= count) {
        self->host->answer(answer, PROVIDER_NEVER_SEEN);
        return 0;
    }
    if (entries == 0) {
        self->host->answer(answer, PROVIDER_CANNOT_SAY);
        return 0;
    }
    form_printf(&cursor, "%" PRId64 " %" PRId64, at.page + 1, at.seen);
    r = cursor.error ? cursor.error : self->host->answer_more(answer, cursor.text, cursor.len);
    form_done(&cursor);
    return r;
}

int sinch_ask_judge(const void *arg, const struct provider_question *q,
                    const struct provider_reply *reply, struct provider_answer *answer)
{
    const struct sinch *self = arg;
    json_t *body = json_body(reply->body, reply->body_len);
    const json_t *batches = json_path(body, "batches");
    const char *id = find(batches, q->msg->id);
    int64_t count = 0;
    int r;

    if (reply->status != 200 || !json_is_array(batches) || !json_i64_at(body, "count", &count)) {
        r = cannot_say(self, reply->status, body, answer);
    } else if (id) {
        self->host->answer(answer, PROVIDER_HAS_IT);
        r = self->host->answer_id(answer, id, strlen(id));
    } else {
        r = not_here(self, q, json_array_size(batches), count, answer);
    }
    json_decref(body);
    return r;
}
