#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/api.h"
#include "providers/sandbox/world.h"

static json_t *knob_json(const struct sb_knobs *k, const struct sb_knob *knob)
{
    const void *field = (const char *)k + knob->offset;

    switch (knob->kind) {
    case SB_KNOB_INT:
        return json_integer((json_int_t) * (const uint64_t *)field);
    case SB_KNOB_REAL:
        return json_real(*(const double *)field);
    case SB_KNOB_WORD:
        return json_string(sb_knob_word(k, knob));
    case SB_KNOB_DIGITS:
        break;
    }
    return json_string(field);
}

enum MHD_Result sb_knobs_get_serve(struct sb_req *r)
{
    size_t count = 0;
    const struct sb_knob *table = sb_knobs_table(&count);
    json_t *o = json_object();

    for (size_t i = 0; i < count; i++)
        json_object_set_new(o, table[i].name, knob_json(&r->sb->knobs, &table[i]));
    return sb_answer_json(r, 200, o);
}

/* The text form of a value, as the command line would give it; NULL when it has none. */
static char *value_text(const json_t *value)
{
    char *text = NULL;
    int n = -1;

    if (json_is_string(value))
        return strdup(json_string_value(value));
    if (json_is_boolean(value))
        return strdup(json_is_true(value) ? "on" : "off");
    if (json_is_integer(value))
        n = asprintf(&text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        n = asprintf(&text, "%.17g", json_real_value(value));
    return n > 0 ? text : NULL;
}

/* "outage_now_for_s" and "slow_now_for_s": a phase that begins with this request. */
static bool set_phase(struct sb_knobs *k, const char *name, const json_t *value, double now_s,
                      int *ret_rc, struct err *err)
{
    bool outage = strcmp(name, "outage_now_for_s") == 0;

    if (!outage && strcmp(name, "slow_now_for_s") != 0)
        return false;
    double length = json_number_value(value);
    if (!json_is_number(value) || length < 0 || length > 1e9)
        *ret_rc = err_set(err, -EINVAL, "%s must be 0 to 1e9 seconds", name);
    else
        *ret_rc = 0;
    if (*ret_rc == 0) {
        *(outage ? &k->outage_at : &k->slow_from) = now_s;
        *(outage ? &k->outage_for : &k->slow_for) = length;
    }
    return true;
}

static int set_one(struct sb_knobs *k, const char *name, const json_t *value, double now_s,
                   struct err *err)
{
    int rc = 0;

    if (set_phase(k, name, value, now_s, &rc, err))
        return rc;
    const struct sb_knob *knob = sb_knobs_find(name);
    if (!knob)
        return err_set(err, -EINVAL, "no knob is called \"%s\"", name);
    char *text = value_text(value);
    if (!text)
        return err_set(err, -EINVAL, "%s must be a number or a string", name);
    rc = sb_knob_set(k, knob, text, err);
    free(text);
    return rc;
}

/* All or nothing: knobs change together or stay as they are. */
enum MHD_Result sb_knobs_put_serve(struct sb_req *r)
{
    struct sandbox *sb = r->sb;
    struct sb_knobs changed = sb->knobs;
    struct err err = ERR_INIT;
    json_auto_t *o = json_loadb(r->body ? r->body : "", r->len, JSON_REJECT_DUPLICATES, NULL);
    const char *name = NULL;
    json_t *value = NULL;
    bool expire = false;
    int rc = 0;

    if (sb->world && json_is_true(json_object_get(o, "expire_tokens"))) {
        expire = true;
        json_object_del(o, "expire_tokens");
    }
    if (!json_is_object(o))
        return sb_answer_error(r, 400, "the body must be a JSON object of knobs");
    json_object_foreach (o, name, value) {
        rc = set_one(&changed, name, value, sb_elapsed_s(sb), &err);
        if (rc < 0)
            break;
    }
    if (rc == 0)
        rc = sb_knobs_check(&changed, &err);
    if (rc < 0) {
        enum MHD_Result answer = sb_answer_error(r, 400, err_text(&err));
        err_done(&err);
        return answer;
    }
    sb->knobs = changed;
    if (expire)
        sb_tokens_expire(sb->world->tokens, sb_now_ms(sb->world));
    return sb_knobs_get_serve(r);
}
