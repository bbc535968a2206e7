/* trial.h - one message through one provider, without a database: what `provider test` does, step
 * by step, and what it learnt.
 *
 * The steps: trial_open, trial_login, trial_build, trial_send, and trial_ask as often as wanted.
 * What is learnt is gathered in `doc`, with all secrets masked. */
#ifndef POSTRIDER_CLI_TRIAL_H
#define POSTRIDER_CLI_TRIAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "providers/provider.h"
#include "worker/core/outcome.h"
#include "worker/engine/plugin.h"

struct config_provider;
struct err;
struct mask;
struct vendor_line;

enum { TRIAL_ID = 37 };

struct trial {
    const struct config_provider *conf;
    struct plugin *plugin;
    struct mask *mask;
    struct vendor_line *line;
    struct provider_msg msg; /* texts borrowed */
    char id[TRIAL_ID];
    struct plugin_grant grant;
    struct plugin_request request;
    bool sent;                  /* a request may have left */
    bool login_bad;             /* of the call under way: the vendor gave no token */
    int64_t began_ms, ended_ms; /* Unix epoch, of the send */
    enum outcome outcome;
    char *vendor_id; /* NULL: none */
    enum provider_finding finding;
    json_t *doc; /* "provider", "plugin", "request", "reply", "outcome", "id", "lookup", … */
};

/* `path` is the configuration's. -EINVAL and the like: the configuration is refused. */
int trial_open(struct trial *t, const char *path, const struct config_provider *conf,
               struct err *err);
void trial_done(struct trial *t);

/* A token, where the vendor wants one. `dry`: without a request, a word in its place. */
int trial_login(struct trial *t, bool dry, struct err *err);

/* The message; `recipient`, `text` and `sender` (may be NULL) are borrowed. -Exxx: refused by the
 * plugin, nothing was sent. */
int trial_build(struct trial *t, const char *recipient, const char *text, const char *sender,
                struct err *err);

/* Sends it. 0 when there was a call, whatever it proved: see outcome. */
int trial_send(struct trial *t, struct err *err);

/* One look-up with all its pages, into finding and doc. -ENODATA: nothing to ask by. */
int trial_ask(struct trial *t, struct err *err);

#endif
