/* classify.h - what one attempt proved, judged by phase and not by error code (rule R6).
 *
 * Pure. The one classifier: live results and the sweeper's recovery go through it alike. What
 * is not proven is unknown. */
#ifndef POSTRIDER_CORE_CLASSIFY_H
#define POSTRIDER_CORE_CLASSIFY_H

#include "worker/core/outcome.h"

struct evidence {
    int permits;       /* how often the request was allowed to leave; 0 = surely not sent */
    bool complete;     /* a whole reply: final status, headers ended, body whole */
    int status;        /* HTTP status of that reply, 0 if none */
    bool untrusted;    /* the vendor's certificate did not verify */
    bool lost;         /* the process that made the attempt is gone: nothing is known */
    bool judged;       /* the plugin gave a verdict ... */
    enum outcome word; /* ... this one; a value outside the enum counts as no verdict */
};

enum outcome classify(const struct evidence *e);

#endif
