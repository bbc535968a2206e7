/* engine.h - one worker: claim, dispatch, settle, sweep, on one event loop.
 *
 * The way of a message: claim.c takes due rows in a committed transaction, dispatch.c calls the
 * vendor and judges, settle.c stores what decide() said, sweep.c feeds the claims of dead workers
 * to the same decide(). Data flows that one way; nothing here waits. */
#ifndef POSTRIDER_ENGINE_ENGINE_H
#define POSTRIDER_ENGINE_ENGINE_H

struct err;

struct engine_options {
    const char *config_path;
    const char *dsn;    /* NULL: the config's, else libpq's environment */
    int schema_version; /* of the migrations this program was built with */
};

/* Runs a worker until a signal ends it: SIGTERM or SIGINT drains, a second one leaves now; SIGHUP
 * reloads. Returns 0 after a clean end, 1 when answers could not be stored or calls were cut off
 * (each was logged), or -EINVAL with *err when the configuration is refused, another -Exxx when
 * it could not start. */
int engine_run(const struct engine_options *options, struct err *err);

#endif
