/* vendor.h - the simulated vendor: request, fate, delivery, answer. Internal to this folder. */
#ifndef POSTRIDER_SANDBOX_VENDOR_H
#define POSTRIDER_SANDBOX_VENDOR_H

#include <microhttpd.h>

#include "providers/sandbox/server.h"
#include "providers/sandbox/state.h"

/* Serves POST /messages. The phone has the message (the ledger counts it) before the answer
 * is even due: a client that goes away in between undoes nothing. */
enum MHD_Result sb_vendor_serve(struct sb_req *r);
void sb_vendor_done(struct sb_req *r);

#define SB_VENDOR_ID_MAX 40

/* The vendor's id of a delivery, unique across runs of the sandbox; returns its length. */
size_t sb_vendor_id(const struct sandbox *sb, uint64_t vendor_no, char buf[SB_VENDOR_ID_MAX]);

#endif
