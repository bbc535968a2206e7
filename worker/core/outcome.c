#include "worker/core/outcome.h"

#include <stddef.h>
#include <string.h>

static const char *const outcome_names[OUTCOME_MAX_] = {
    [OUTCOME_ACCEPTED] = "accepted",   [OUTCOME_REJECTED] = "rejected",
    [OUTCOME_THROTTLED] = "throttled", [OUTCOME_HELD] = "held",
    [OUTCOME_UNREACHED] = "unreached", [OUTCOME_REFUSED] = "refused",
    [OUTCOME_UNKNOWN] = "unknown",
};

static const char *const state_names[MSG_STATE_MAX_] = {
    [MSG_PENDING] = "pending",   [MSG_SENDING] = "sending",       [MSG_UNKNOWN] = "unknown",
    [MSG_SENT] = "sent",         [MSG_FAILED] = "failed",         [MSG_EXPIRED] = "expired",
    [MSG_CANCELED] = "canceled", [MSG_SUPPRESSED] = "suppressed",
};

static const char *name_of(const char *const *names, unsigned max, unsigned value)
{
    return value < max ? names[value] : NULL;
}

static bool parse(const char *const *names, unsigned max, const char *name, unsigned *ret)
{
    for (unsigned i = 0; i < max; i++) {
        if (strcmp(names[i], name) == 0) {
            *ret = i;
            return true;
        }
    }
    return false;
}

const char *outcome_name(enum outcome outcome)
{
    return name_of(outcome_names, OUTCOME_MAX_, (unsigned)outcome);
}

const char *msg_state_name(enum msg_state state)
{
    return name_of(state_names, MSG_STATE_MAX_, (unsigned)state);
}

bool outcome_parse(const char *name, enum outcome *ret)
{
    unsigned value;

    if (!parse(outcome_names, OUTCOME_MAX_, name, &value))
        return false;
    *ret = (enum outcome)value;
    return true;
}

bool msg_state_parse(const char *name, enum msg_state *ret)
{
    unsigned value;

    if (!parse(state_names, MSG_STATE_MAX_, name, &value))
        return false;
    *ret = (enum msg_state)value;
    return true;
}

bool msg_state_is_final(enum msg_state state)
{
    switch (state) {
    case MSG_SENT:
    case MSG_FAILED:
    case MSG_EXPIRED:
    case MSG_CANCELED:
    case MSG_SUPPRESSED:
        return true;
    case MSG_PENDING:
    case MSG_SENDING:
    case MSG_UNKNOWN:
    case MSG_STATE_MAX_:
        break;
    }
    return false;
}
