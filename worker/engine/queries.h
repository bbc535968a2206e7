/* queries.h - every statement a worker sends. What each does stands beside its function in
 * sql/004_claim.sql to sql/011_receipts.sql; here is why and when it is sent. */
#ifndef POSTRIDER_ENGINE_QUERIES_H
#define POSTRIDER_ENGINE_QUERIES_H

/* Once a connection is up: who we are; is this the database we may send from? */
#define QUERY_HELLO       "SELECT * FROM postrider.hello($1, $2::int, $3, $4, $5, $6)"
#define QUERY_CHECK_HOUSE "SELECT * FROM postrider.check_house()"

/* A hundred tokens at a time: a worker knows its token before it claims. */
#define QUERY_TOKENS "SELECT * FROM postrider.tokens($1::int)"

/* R1: the rows leave `pending` in this statement's own commit, before any network use. */
#define QUERY_CLAIM                                                                                \
    "SELECT * FROM postrider.claim($1, $2, $3::int, $4, $5, $6, $7::int, $8, $9, $10)"

/* The two ends. R3: each names id, token and `sending`. */
#define QUERY_SETTLE_SENT "SELECT * FROM postrider.settle_sent($1, $2, $3, $4)"
#define QUERY_SETTLE                                                                               \
    "SELECT * FROM postrider.settle($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, " \
    "$15, $16, $17, $18)"
#define QUERY_CLAIMS_DONE "SELECT postrider.claims_done($1)"

/* R11: a claim whose COMMIT answer was lost is not ours; it goes back unsent. */
#define QUERY_RELEASE "SELECT postrider.release($1, $2)"

/* Sweeping: leases that are over, what is left under one, and its judgement goes to settle. */
#define QUERY_SWEEP_LOOK "SELECT * FROM postrider.sweep_look()"
#define QUERY_SWEEP_ROWS "SELECT * FROM postrider.sweep_rows($1)"

/* R7: late news is read, decided, and written only if nothing moved meanwhile. */
#define QUERY_LATE_READ "SELECT * FROM postrider.late_read($1, $2)"
#define QUERY_LATE_WRITE                                                                           \
    "SELECT postrider.late_write($1::uuid, $2, $3, $4::int, $5, $6, $7::int, $8, $9, $10, $11, "   \
    "$12, $13, $14, $15)"
#define QUERY_WITHDRAW "SELECT postrider.withdraw($1, $2)"

/* Asking: doubts that are due, what follows an answer, and whose a message of the vendor's is. */
#define QUERY_ASK_TAKE  "SELECT * FROM postrider.ask_take($1, $2, $3, $4)"
#define QUERY_ASK_STORE "SELECT postrider.ask_store($1, $2, $3, $4, $5, $6, $7, $8)"
#define QUERY_OWN_ID    "SELECT postrider.own_id($1::uuid, $2, $3)"

/* Receipts: stored before the vendor hears 200, applied afterwards by whichever worker looks. */
#define QUERY_RECEIPTS_STORE                                                                       \
    "SELECT postrider.receipts_store($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "     \
    "$14, "                                                                                        \
    "$15, $16)"
#define QUERY_RECEIPTS_APPLY "SELECT * FROM postrider.receipts_apply($1::int)"
#define QUERY_SUPPRESS       "SELECT postrider.suppress($1, $2, $3, $4)"

/* House-keeping: rules, partitions ahead, counters, a sign of life, the dashboard's figures. */
/* A row for each lane in which messages of a kind may wait: the kind's own first (column 11 false),
 * then those it was in before. */
#define QUERY_KINDS                                                                                \
    "SELECT k.name, l.lane, k.reserved, array_to_string(k.route, E'\\n'), k.on_unknown, "          \
    "k.attempts, k.max_calls, k.backoff_base_ms, k.backoff_cap_ms, k.cross_vendor_resend, "        \
    "k.wake, l.former "                                                                            \
    "FROM postrider.kind AS k JOIN postrider.kind_lanes AS l USING (name) "                        \
    "ORDER BY l.former, l.lane, name"
#define QUERY_PARTITIONS "SELECT postrider.ensure_partitions(7)"
#define QUERY_EXPIRE     "SELECT postrider.expire($1::int)"
#define QUERY_FOLD       "SELECT postrider.fold_counters()"
#define QUERY_HANG_UP    "SELECT postrider.hang_up()"
#define QUERY_BEAT       "SELECT postrider.beat($1, $2, $3)"
#define QUERY_COUNTS     "SELECT kind, state, count FROM postrider.counts"
#define QUERY_LANES      "SELECT array_to_string(kinds, ', '), oldest_due_ms FROM postrider.lanes"
#define QUERY_WORKERS                                                                              \
    "SELECT id, host, pid, version, "                                                              \
    "(extract(epoch FROM clock_timestamp() - seen_at) * 1000)::bigint, "                           \
    "coalesce((stats->>'in_air')::bigint, 0), coalesce((stats->>'draining')::boolean, false) "     \
    "FROM postrider.workers WHERE stopped_at IS NULL AND seen_at > now() - interval '1 hour'"
#define QUERY_HEALTH                                                                               \
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, "                              \
    "coalesce((SELECT sum(n_live_tup) FROM pg_stat_user_tables "                                   \
    "           WHERE schemaname = 'postrider' AND relname LIKE 'message%'), -1)::bigint, "        \
    "coalesce((SELECT sum(n_dead_tup) FROM pg_stat_user_tables "                                   \
    "           WHERE schemaname = 'postrider' AND relname LIKE 'message%'), -1)::bigint, "        \
    "(SELECT (extract(epoch FROM clock_timestamp() - min(xact_start)) * 1000)::bigint "            \
    "   FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), "       \
    "(SELECT pid FROM pg_stat_activity WHERE backend_xmin IS NOT NULL "                            \
    "    AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1)"

#endif
