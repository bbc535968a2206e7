#include "worker/io/failpoint.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker/core/err.h"

enum action { ACTION_KILL, ACTION_STOP, ACTION_EXIT, ACTION_MAX };

static const char *const actions[ACTION_MAX] = {"kill", "stop", "exit"};

static const char *const points[] = {
    "claim_unsent",     /* the claim is planned, nothing of it was sent */
    "claim_sent",       /* it was handed to the connection; its answer was not read */
    "claim_committed",  /* its answer is here, with rows; none was looked at */
    "call_unstarted",   /* the request is built; libcurl does not know it */
    "call_permitted",   /* the gate said yes; no byte was written */
    "reply_unjudged",   /* the vendor's answer is here; nobody has read it */
    "settle_unsent",    /* the batch of outcomes is ready; nothing of it was sent */
    "settle_sent",      /* it was handed to the connection; its answer was not read */
    "settle_committed", /* its answer is here */
    "release_sent",     /* giving back a lost claim is under way */
    "sweep_unsettled",  /* the rows of a dead claim are read; nothing was decided */
    "receipts_stored",  /* callbacks are committed; no vendor was answered */
    "receipts_applied", /* the look at them is committed; its answer was not read */
    "late_unwritten",   /* late news is read and decided; nothing was sent */
    "ask_unstored",     /* vendors' answers are here; nothing of what follows was sent */
};

bool failpoint_armed;

static const char *armed_at; /* one of `points` */
static enum action armed_action;
static unsigned long left;

static bool find(const char *word, size_t len, const char *const *list, size_t n, size_t *ret)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(list[i]) == len && memcmp(list[i], word, len) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

int failpoint_arm(const char *spec, struct err *err)
{
    const char *name_end, *equals;
    size_t point, action;
    char *end;

    failpoint_armed = false;
    if (!spec || !*spec)
        return 0;
    equals = strchrnul(spec, '=');
    name_end = memchr(spec, ':', (size_t)(equals - spec));
    left = 1;
    if (name_end) {
        errno = 0;
        left = strtoul(name_end + 1, &end, 10);
        if (errno || end != equals || end == name_end + 1 || left == 0)
            return err_set(err, -EINVAL, "POSTRIDER_FAILPOINT: \"%s\" has no count", spec);
    }
    if (!find(spec, (size_t)((name_end ? name_end : equals) - spec), points,
              sizeof(points) / sizeof(*points), &point))
        return err_set(err, -EINVAL, "POSTRIDER_FAILPOINT: \"%s\" names no point", spec);
    if (!*equals || !find(equals + 1, strlen(equals + 1), actions, ACTION_MAX, &action))
        return err_set(err, -EINVAL,
                       "POSTRIDER_FAILPOINT: \"%s\" does not end in kill, stop or exit", spec);
    armed_at = points[point];
    armed_action = (enum action)action;
    failpoint_armed = true;
    return 0;
}

void failpoint_hit(const char *name)
{
    if (strcmp(name, armed_at) != 0 || --left > 0)
        return;
    failpoint_armed = false;
    switch (armed_action) {
    case ACTION_KILL:
        raise(SIGKILL);
        break;
    case ACTION_STOP:
        raise(SIGSTOP);
        break;
    case ACTION_EXIT:
    case ACTION_MAX:
    default:
        _exit(70);
    }
}
