#include "worker/cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "worker/cli/words.h"
#include "worker/io/clock.h"

enum { BAR_WIDTH = 30, REDRAW_MS = 100, LINE_MS = 3000 };

void progress_begin(struct progress *p, const char *what, int64_t total)
{
    int64_t now = clock_boot_ms();

    *p = (struct progress){.what = what,
                           .total = total,
                           .began_ms = now,
                           .shown_ms = now,
                           .terminal = isatty(STDERR_FILENO) == 1};
}

static void print_bar(double share)
{
    char bar[BAR_WIDTH + 1];

    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', (size_t)(share * BAR_WIDTH));
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] ", bar);
}

static void show(struct progress *p, int64_t now)
{
    int64_t took = now > p->began_ms ? now - p->began_ms : 1;
    double rate = (double)p->done * 1000.0 / (double)took;
    double share = p->total > 0 ? (double)p->done / (double)p->total : 0;

    if (share > 1)
        share = 1; /* more came while we worked */
    if (p->terminal)
        print_bar(share);
    fprintf(stderr, "%s", words_number(p->done).text);
    if (p->total > 0)
        fprintf(stderr, " of %s", words_number(p->total).text);
    fprintf(stderr, " %s", p->what);
    if (p->total > 0)
        fprintf(stderr, ", %.0f %%", share * 100);
    fprintf(stderr, ", %s/s", words_number((int64_t)rate).text);
    if (rate > 0 && p->total > p->done) {
        double left_ms = (double)(p->total - p->done) / rate * 1000.0;

        fprintf(stderr, ", %s left", words_duration((int64_t)left_ms).text);
    }
    if (!p->terminal)
        fputc('\n', stderr);
    fflush(stderr);
    p->shown = true;
    p->shown_ms = now;
}

void progress_add(struct progress *p, int64_t n)
{
    int64_t now = clock_boot_ms();

    p->done += n;
    if (now - p->shown_ms >= (p->terminal ? REDRAW_MS : LINE_MS))
        show(p, now);
}

void progress_end(struct progress *p)
{
    if (!p->shown)
        return;
    show(p, clock_boot_ms());
    if (p->terminal)
        fputc('\n', stderr);
}
