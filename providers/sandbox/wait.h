/* wait.h - long polls: an answer that comes when something has been delivered. */
#ifndef POSTRIDER_SANDBOX_WAIT_H
#define POSTRIDER_SANDBOX_WAIT_H

#include "providers/sandbox/server.h"
#include "providers/sandbox/state.h"

/* Serves GET /api/wait; `sb_wait_done` belongs to the same route. */
enum MHD_Result sb_wait_serve(struct sb_req *r);
void sb_wait_done(struct sb_req *r);

/* Wakes the polls that are satisfied now. Called for each request while anybody waits; `e` is
 * what it concerned, or NULL. */
void sb_wait_check(struct sandbox *sb, const struct sb_entry *e);

#endif
