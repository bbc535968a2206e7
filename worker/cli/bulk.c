#include "worker/cli/bulk.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "worker/cli/cli.h"
#include "worker/cli/connect.h"
#include "worker/cli/print.h"
#include "worker/cli/progress.h"
#include "worker/cli/words.h"
#include "worker/io/pg.h"

enum { BATCH = 500 };

static const struct bulk_answer *meaning(const struct bulk *b, const char *answer)
{
    const struct bulk_answer *a = b->answers;

    while (a->answer && strcmp(a->answer, answer) != 0)
        a++;
    return a;
}

static const char *shown(const struct bulk_answer *a, const char *answer)
{
    return a->shown ? a->shown : answer;
}

int bulk_check_ids(const char *command, char **ids, int n)
{
    for (int i = 0; i < n; i++) {
        if (!words_is_uuid(ids[i]))
            return cli_usage(command, "\"%s\" is no message id", ids[i]);
    }
    return EXIT_DONE;
}

static int one(const struct bulk *b, struct pg_sync *pg, const char *id, json_t *list)
{
    struct pg_params *p = pg_params_new();
    struct pg_result *r = NULL;
    int code;

    pg_add_text(p, id);
    pg_add_text(p, b->reason);
    code = cli_query(b->command, pg, b->one, p, &r);
    if (code == EXIT_DONE) {
        const char *answer = pg_text(r, 0, 0);
        const struct bulk_answer *a = meaning(b, answer);

        if (list)
            json_array_append_new(list, json_pack("{s:s, s:s}", "id", id, "answer", answer));
        else
            printf("%s  %s\n", id, shown(a, answer));
        code = a->good ? EXIT_DONE : EXIT_FAILED;
    }
    pg_result_free(r);
    return code;
}

static int each(const struct bulk *b, struct pg_sync *pg, char **ids, int n)
{
    json_t *list = b->json ? json_array() : NULL;
    int code = EXIT_DONE;

    for (int i = 0; i < n; i++) {
        if (one(b, pg, ids[i], list) != EXIT_DONE)
            code = EXIT_FAILED;
    }
    if (list && print_json_take(list) != EXIT_DONE)
        code = EXIT_FAILED;
    return code;
}

/* ---- in batches ---------------------------------------------------------------------------- */

struct run {
    const struct bulk *bulk;
    struct pg_sync *pg;
    struct progress progress;
    json_t *tally;   /* answer -> how many */
    char after[40];  /* the last id of the batch before */
    char before[40]; /* nothing made later is touched */
    int64_t left;
    bool all_good;
};

static int begin(struct run *run)
{
    const struct bulk *b = run->bulk;
    struct pg_params *p = pg_params_new();
    struct pg_result *r = NULL;
    int code;

    pg_add_text(p, b->kind);
    pg_add_text(p, b->state);
    code = cli_query(b->command, run->pg,
                     "SELECT postrider.uuid7(), (SELECT count FROM postrider.counts "
                     "WHERE kind = $1 AND state = $2::postrider.state), "
                     "EXISTS (SELECT FROM postrider.kind WHERE name = $1)",
                     p, &r);
    if (code == EXIT_DONE && !pg_bool(r, 0, 2)) {
        fprintf(stderr, "postrider %s: unknown kind \"%s\"\n", b->command, b->kind);
        code = EXIT_FAILED;
    } else if (code == EXIT_DONE) {
        int64_t found = pg_i64(r, 0, 1);

        snprintf(run->after, sizeof(run->after), "%s", "00000000-0000-0000-0000-000000000000");
        snprintf(run->before, sizeof(run->before), "%s", pg_text(r, 0, 0));
        run->left = b->limit;
        progress_begin(&run->progress, "messages", found < run->left ? found : run->left);
    }
    pg_result_free(r);
    return code;
}

static void count(struct run *run, const struct pg_result *r)
{
    size_t rows = pg_rows(r);

    for (size_t i = 0; i < rows; i++) {
        const char *answer = pg_text(r, i, 1);
        int64_t n = member_number(run->tally, answer);

        json_object_set_new(run->tally, answer, json_integer(n > 0 ? n + 1 : 1));
        run->all_good = run->all_good && meaning(run->bulk, answer)->good;
    }
    if (rows > 0)
        snprintf(run->after, sizeof(run->after), "%s", pg_text(r, rows - 1, 0));
    run->left -= (int64_t)rows;
    progress_add(&run->progress, (int64_t)rows);
}

/* *ret_more: there may be another batch. */
static int batch(struct run *run, bool *ret_more)
{
    const struct bulk *b = run->bulk;
    int64_t limit = run->left < BATCH ? run->left : BATCH;
    struct pg_params *p = pg_params_new();
    struct pg_result *r = NULL;
    int code;

    pg_add_text(p, b->kind);
    pg_add_text(p, b->state);
    pg_add_text(p, run->after);
    pg_add_i64(p, limit);
    pg_add_text(p, b->reason);
    pg_add_text(p, run->before);
    code = cli_query(b->command, run->pg, b->batch, p, &r);
    if (code == EXIT_DONE) {
        count(run, r);
        *ret_more = (int64_t)pg_rows(r) == limit && run->left > 0;
    }
    pg_result_free(r);
    return code;
}

static int summary(struct run *run)
{
    const char *answer;
    json_t *n;

    if (run->bulk->json)
        return print_json_take(json_pack("{s:I, s:O}", "messages", (json_int_t)run->progress.done,
                                         "answers", run->tally));
    if (run->progress.done == 0)
        puts("no such message");
    json_object_foreach (run->tally, answer, n) {
        printf("%s %s\n", words_number((int64_t)json_integer_value(n)).text,
               shown(meaning(run->bulk, answer), answer));
    }
    return EXIT_DONE;
}

static int all(const struct bulk *b, struct pg_sync *pg)
{
    struct run run = {.bulk = b, .pg = pg, .tally = json_object(), .all_good = true};
    bool more = b->limit > 0;
    int code = run.tally ? begin(&run) : EXIT_FAILED, printed;

    if (code != EXIT_DONE) {
        json_decref(run.tally);
        return code;
    }
    while (more && code == EXIT_DONE)
        code = batch(&run, &more);
    progress_end(&run.progress);
    printed = summary(&run); /* also of what was done before a failure */
    json_decref(run.tally);
    if (code == EXIT_DONE)
        code = printed;
    return code == EXIT_DONE && !run.all_good ? EXIT_FAILED : code;
}

int bulk_run(const struct bulk *b, const struct cli_common *common, char **ids, int n)
{
    struct pg_sync *pg = NULL;
    int code = cli_connect(b->command, common, &pg);

    if (code == EXIT_DONE)
        code = b->kind ? all(b, pg) : each(b, pg, ids, n);
    pg_sync_close(pg);
    return code;
}
