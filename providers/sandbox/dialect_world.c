#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/sandbox/world.h"
#include "worker/io/http.h"

static const struct sb_setting common[] = {
    {"callback_url", "", "receipts of messages that name no URL go there"},
    {"inbound_url", "", "inbound messages go there; empty: callback_url"},
    {NULL, NULL, NULL},
};

/* --- settings --------------------------------------------------------------------------- */

static size_t count(const struct sb_setting *s)
{
    size_t n = 0;

    while (s && s[n].name)
        n++;
    return n;
}

/* The i-th of the dialect's own and then the common ones; NULL at the end. */
static const struct sb_setting *setting_at(const struct sb_dialect *d, size_t i)
{
    size_t own = count(d->settings);

    if (i < own)
        return &d->settings[i];
    return i - own < count(common) ? &common[i - own] : NULL;
}

/* `name` need not end after `len`. Returns the number of settings if there is none. */
static size_t setting_find(const struct sb_dialect *d, const char *name, size_t len)
{
    size_t i = 0;

    for (const struct sb_setting *s; (s = setting_at(d, i)); i++)
        if (strlen(s->name) == len && memcmp(s->name, name, len) == 0)
            break;
    return i;
}

const char *sb_setting(const struct sb_world *w, const char *name)
{
    size_t i = setting_find(w->d, name, strlen(name));

    if (!setting_at(w->d, i)) {
        fprintf(stderr, "dialect %s has no setting \"%s\"\n", w->d->name, name);
        abort();
    }
    return w->values[i];
}

static int set_defaults(struct sb_world *w)
{
    size_t n = count(w->d->settings) + count(common);

    w->values = calloc(n + 1, sizeof(*w->values));
    for (size_t i = 0; w->values && i < n; i++)
        if (!(w->values[i] = strdup(setting_at(w->d, i)->value)))
            return -ENOMEM;
    return w->values ? 0 : -ENOMEM;
}

static int set_one(struct sb_world *w, const char *text, struct err *err)
{
    const char *eq = strchr(text, '=');
    size_t i = eq ? setting_find(w->d, text, (size_t)(eq - text)) : 0;

    if (!eq || !setting_at(w->d, i))
        return err_set(err, -EINVAL,
                       "dialect-set: \"%s\" is not NAME=VALUE with a setting of dialect %s", text,
                       w->d->name);
    char *copy = strdup(eq + 1);
    if (!copy)
        return err_set(err, -ENOMEM, "out of memory");
    free(w->values[i]);
    w->values[i] = copy;
    return 0;
}

/* --- life ------------------------------------------------------------------------------- */

static int world_init(struct sb_world *w, struct err *err)
{
    int rc = http_global_init(err);

    if (rc < 0)
        return rc;
    if (sb_store_new(SIZE_MAX / 4096, &w->store) < 0 || sb_tokens_new(&w->tokens) < 0)
        return err_set(err, -ENOMEM, "out of memory");
    return sb_receipts_new(w, &w->receipts, err);
}

int sb_world_new(struct sandbox *sb, const char *dialect, const char *const *sets, size_t sets_n,
                 struct sb_world **ret_world, struct err *err)
{
    const struct sb_dialect *d = sb_dialect_find(dialect);
    struct sb_world *w = d ? calloc(1, sizeof(*w)) : NULL;
    int rc = 0;

    if (!d)
        return err_set(err, -EINVAL, "no dialect is called \"%s\"; see --help", dialect);
    if (!w)
        return err_set(err, -ENOMEM, "out of memory");
    w->sb = sb;
    w->d = d;
    rc = set_defaults(w);
    for (size_t i = 0; rc == 0 && i < sets_n; i++)
        rc = set_one(w, sets[i], err);
    if (rc == 0)
        rc = world_init(w, err);
    if (rc < 0) {
        sb_world_free(w);
        return rc;
    }
    *ret_world = w;
    return 0;
}

struct sb_world *sb_world_free(struct sb_world *w)
{
    if (!w)
        return NULL;
    sb_receipts_free(w->receipts);
    sb_store_free(w->store);
    sb_tokens_free(w->tokens);
    for (char **v = w->values; v && *v; v++)
        free(*v);
    free(w->values);
    free(w);
    http_global_done();
    return NULL;
}

void sb_world_reset(struct sb_world *w)
{
    sb_store_clear(w->store);
    sb_receipts_clear_stats(w->receipts);
    w->lookups = w->logins = 0;
}

int64_t sb_now_ms(const struct sb_world *w)
{
    (void)w;
    return sb_wall_us() / 1000;
}

json_t *sb_world_stats(const struct sb_world *w)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:o}", "name", w->d->name, "messages",
                     (json_int_t)sb_store_count(w->store), "lookups", (json_int_t)w->lookups,
                     "logins", (json_int_t)w->logins, "receipts", sb_receipts_stats(w->receipts));
}

/* --- help ------------------------------------------------------------------------------- */

static void help_dialect(FILE *out, const struct sb_dialect *d)
{
    fprintf(out, "  %-16s %s\n", d->name, d->help);
    for (const struct sb_setting *s = d->settings; s && s->name; s++)
        fprintf(out, "      %s=%s  %s\n", s->name, s->value, s->help);
}

void sb_world_help(FILE *out)
{
    size_t n = 0;
    const struct sb_magic_row *magic = sb_magic_table(&n);

    fprintf(out, "\nDialects, each with its settings and their defaults:\n");
    for (size_t i = 0; sb_dialect_at(i); i++)
        if (sb_dialect_at(i)->read)
            help_dialect(out, sb_dialect_at(i));
    fprintf(out, "  and all of them:\n");
    for (const struct sb_setting *s = common; s->name; s++)
        fprintf(out, "      %s=%s  %s\n", s->name, s->value, s->help);
    fprintf(out, "\nUnder a dialect the last four digits of a number choose a message's fate:\n");
    for (size_t i = 0; i < n; i++)
        fprintf(out, "  %s  %s\n", magic[i].digits, magic[i].help);
}
