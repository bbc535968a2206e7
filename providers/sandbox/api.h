/* api.h - the control API's shared helpers and handlers. Internal to this folder. */
#ifndef POSTRIDER_SANDBOX_API_H
#define POSTRIDER_SANDBOX_API_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "providers/sandbox/server.h"
#include "providers/sandbox/state.h"

/* A query argument, or NULL. Borrowed. */
const char *sb_query(const struct sb_req *r, const char *name);

/* Reads all of `s` as a decimal number below 2^63. */
bool sb_parse_u64(const char *s, uint64_t *ret);

/* Whether two recipients are one number, whatever stands in for the leading '+' (a query
 * string turns it into a space). */
bool sb_same_number(const char *a, const char *b);

/* Answers with `take_json`, which is released; NULL answers 500. */
enum MHD_Result sb_answer_json(struct sb_req *r, int status, json_t *take_json);
enum MHD_Result sb_answer_error(struct sb_req *r, int status, const char *text);

/* All figures of GET /api/stats; new, or NULL when out of memory. */
json_t *sb_stats_json(struct sandbox *sb);

/* One ledger entry; new, or NULL when out of memory. */
json_t *sb_entry_json(const struct sandbox *sb, const struct sb_entry *e);

/* Handlers that live in api_ledger.c and api_knobs.c. */
enum MHD_Result sb_ledger_list_serve(struct sb_req *r);
enum MHD_Result sb_ledger_one_serve(struct sb_req *r);
enum MHD_Result sb_ledger_csv_serve(struct sb_req *r);
enum MHD_Result sb_phone_serve(struct sb_req *r);
int sb_missing_feed(struct sb_req *r, const char *data, size_t len);
enum MHD_Result sb_missing_serve(struct sb_req *r);
void sb_missing_done(struct sb_req *r);
enum MHD_Result sb_knobs_get_serve(struct sb_req *r);
enum MHD_Result sb_knobs_put_serve(struct sb_req *r);

#endif
