#include "providers/sandbox/wheel.h"

#include <string.h>

void sb_wheel_init(struct sb_wheel *w, int64_t now_ms)
{
    memset(w, 0, sizeof(*w));
    w->now_ms = now_ms;
}

static void push(struct sb_timer **head, struct sb_timer *t)
{
    t->next = *head;
    t->link = head;
    if (t->next)
        t->next->link = &t->next;
    *head = t;
}

static void unlink_timer(struct sb_timer *t)
{
    *t->link = t->next;
    if (t->next)
        t->next->link = t->link;
    t->link = NULL;
}

void sb_wheel_add(struct sb_wheel *w, struct sb_timer *t, int64_t due_ms)
{
    t->due_ms = due_ms > w->now_ms ? due_ms : w->now_ms + 1;
    push(&w->slot[t->due_ms % SB_WHEEL_SLOTS], t);
    w->armed++;
}

void sb_wheel_del(struct sb_wheel *w, struct sb_timer *t)
{
    if (!t->link)
        return;
    unlink_timer(t);
    w->armed--;
}

/* Moves what is due out of a slot first: `fire` may then change the slot freely. */
static void collect(struct sb_timer *t, int64_t now_ms, struct sb_timer **due)
{
    while (t) {
        struct sb_timer *next = t->next;
        if (t->due_ms <= now_ms) {
            unlink_timer(t);
            push(due, t);
        }
        t = next;
    }
}

void sb_wheel_expire(struct sb_wheel *w, int64_t now_ms, void (*fire)(struct sb_timer *, void *),
                     void *arg)
{
    struct sb_timer *due = NULL;
    int64_t from = w->now_ms + 1;

    if (now_ms <= w->now_ms)
        return;
    if (now_ms - from >= SB_WHEEL_SLOTS)
        from = now_ms - SB_WHEEL_SLOTS + 1; /* one round sees every slot */
    w->now_ms = now_ms;
    for (int64_t ms = from; ms <= now_ms && w->armed > 0; ms++)
        collect(w->slot[ms % SB_WHEEL_SLOTS], now_ms, &due);
    while (due) {
        struct sb_timer *t = due;
        sb_wheel_del(w, t);
        fire(t, arg);
    }
}
