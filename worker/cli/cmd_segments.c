/* postrider segments: what a text costs on the air, and why. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cli/body.h"
#include "worker/cli/cli.h"
#include "worker/cli/options.h"
#include "worker/cli/print.h"
#include "worker/cli/words.h"
#include "worker/core/text.h"

enum { CULPRITS_SHOWN = 20 };

static const struct cli_option options[] = {
    CLI_GROUP_ROW("options"),
    CLI_FLAG_ROW(struct cli_common, json, "json", "JSON for programs"),
    CLI_END,
};

static const struct cli_spec spec = {
    .name = "segments",
    .usage = "[--json] TEXT|-",
    .about =
        "Counts the segments a text is billed for, and names the characters that make it dear:\n"
        "one outside of GSM-7 turns 160 characters a message into 70. \"-\" reads standard\n"
        "input.",
    .options = options,
    .args_min = 1,
    .args_max = 1,
    .missing = "TEXT",
};

/* `at` is the byte behind the character. */
static void print_culprit(const char *text, size_t at, const struct text_culprit *c)
{
    size_t from = at - 1;

    while (((unsigned char)text[from] & 0xc0) == 0x80)
        from--;
    char *one = strndup(text + from, at - from), *clean = one ? words_clean(one) : NULL;

    printf("  character %zu: U+%04X  %s\n", c->at + 1, (unsigned)c->code, clean ? clean : "");
    free(one);
    free(clean);
}

static void print_plain(const char *text, const struct text_measure *m)
{
    struct text_culprits it = TEXT_CULPRITS_OF(text, strlen(text));
    struct text_culprit c;
    size_t n = 0;

    printf("%zu segment%s: %zu characters, %zu units of %s\n", m->segments,
           m->segments == 1 ? "" : "s", m->characters, m->units, text_alphabet_name(m->alphabet));
    if (m->alphabet == TEXT_GSM7)
        return;
    puts("not in GSM-7:");
    while (text_culprits_next(&it, &c)) {
        if (n++ < CULPRITS_SHOWN)
            print_culprit(text, it.offset, &c);
    }
    if (n > CULPRITS_SHOWN)
        printf("  and %zu more\n", n - CULPRITS_SHOWN);
}

static int print_json(const char *text, const struct text_measure *m)
{
    struct text_culprits it = TEXT_CULPRITS_OF(text, strlen(text));
    struct text_culprit c;
    json_t *list = json_array();

    while (list && text_culprits_next(&it, &c))
        json_array_append_new(
            list, json_pack("{s:I, s:I}", "at", (json_int_t)c.at, "code", (json_int_t)c.code));
    return print_json_take(
        json_pack("{s:I, s:s, s:I, s:I, s:o}", "segments", (json_int_t)m->segments, "alphabet",
                  text_alphabet_name(m->alphabet), "characters", (json_int_t)m->characters, "units",
                  (json_int_t)m->units, "culprits", list));
}

int cmd_segments(int argc, char **argv)
{
    struct cli_common args = {0};
    struct text_measure m;
    struct body body;
    char **operands;
    int n, code = cli_parse(&spec, argc, argv, &args, &operands, &n);

    if (code != CLI_GO)
        return code;
    code = body_read("segments", operands[0], &body);
    if (code != EXIT_DONE)
        return code;
    if (text_measure(body.text, strlen(body.text), &m) < 0)
        code = cli_usage("segments", "the text is not UTF-8");
    else if (args.json)
        code = print_json(body.text, &m);
    else
        print_plain(body.text, &m);
    body_done(&body);
    return code;
}
