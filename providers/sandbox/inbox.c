#include "providers/sandbox/inbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sb_inbox {
    size_t keep, count, next;
    struct sb_text **ring; /* each with its strings behind it in one block */
};

int sb_inbox_new(size_t keep, struct sb_inbox **ret_inbox)
{
    struct sb_inbox *b = calloc(1, sizeof(*b));

    if (!b)
        return -ENOMEM;
    b->keep = keep;
    b->ring = calloc(keep ? keep : 1, sizeof(*b->ring));
    if (!b->ring) {
        free(b);
        return -ENOMEM;
    }
    *ret_inbox = b;
    return 0;
}

void sb_inbox_clear(struct sb_inbox *b)
{
    for (size_t i = 0; i < b->keep; i++) {
        free(b->ring[i]);
        b->ring[i] = NULL;
    }
    b->count = 0;
    b->next = 0;
}

struct sb_inbox *sb_inbox_free(struct sb_inbox *b)
{
    if (!b)
        return NULL;
    sb_inbox_clear(b);
    free(b->ring);
    free(b);
    return NULL;
}

static const char *put(char **at, const char *s)
{
    size_t size = strlen(s) + 1;
    char *copy = memcpy(*at, s, size);

    *at += size;
    return copy;
}

void sb_inbox_add(struct sb_inbox *b, const struct sb_text *t)
{
    if (b->keep == 0)
        return;
    size_t size = strlen(t->to) + strlen(t->key) + strlen(t->lane) + strlen(t->text) + 4;
    struct sb_text *copy = malloc(sizeof(*copy) + size);
    if (!copy)
        return;
    char *at = (char *)(copy + 1);
    copy->at_ms = t->at_ms;
    copy->vendor_no = t->vendor_no;
    copy->to = put(&at, t->to);
    copy->key = put(&at, t->key);
    copy->lane = put(&at, t->lane);
    copy->text = put(&at, t->text);
    free(b->ring[b->next]);
    b->ring[b->next] = copy;
    b->next = (b->next + 1) % b->keep;
    if (b->count < b->keep)
        b->count++;
}

const struct sb_text *sb_inbox_at(const struct sb_inbox *b, size_t i)
{
    if (i >= b->count)
        return NULL;
    return b->ring[(b->next + b->keep - 1 - i) % b->keep];
}
