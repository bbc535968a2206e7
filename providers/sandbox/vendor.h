/* vendor.h - the simulated vendor: request, fate, delivery, answer. Internal to this folder. */
#ifndef POSTRIDER_SANDBOX_VENDOR_H
#define POSTRIDER_SANDBOX_VENDOR_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "providers/sandbox/server.h"
#include "providers/sandbox/state.h"

/* Serves POST /messages. The phone has the message (the ledger counts it) before the answer
 * is even due: a client that goes away in between undoes nothing. */
enum MHD_Result sb_vendor_serve(struct sb_req *r);
void sb_vendor_done(struct sb_req *r);

#define SB_VENDOR_ID_MAX 96

/* The vendor's id of a delivery, unique across runs of the sandbox; returns its length. */
size_t sb_vendor_id(const struct sandbox *sb, uint64_t vendor_no, char buf[SB_VENDOR_ID_MAX]);

/* ---- what vendor.c shares with dialect_serve.c ---- */

struct sb_now { /* one request's arrival, read once */
    int64_t mono_ms;
    int64_t wall_us;
    double elapsed_s;
};

struct sb_key { /* borrowed text, not always NUL-terminated */
    const char *text;
    size_t len;
};

bool sb_key_is_fine(const struct sb_key *k);
bool sb_to_is_fine(const char *to);
bool sb_ends_with(const char *s, const char *tail); /* false for an empty tail */

/* Returns the monotonic time in ms, exactly. */
double sb_vendor_clocks(struct sb_now *now, const struct sandbox *sb);
void sb_vendor_arrive(struct sb_req *r, int64_t mono_ms);
void sb_vendor_log(const struct sb_req *r, uint64_t number, const struct sb_now *now,
                   struct sb_key key);
void sb_vendor_set_fate(struct sb_req *r, enum sb_reason reason, enum sb_act act, int status);
/* Answers, hangs, resets or closes, as the fate says. */
enum MHD_Result sb_vendor_act(struct sb_req *r);

#endif
