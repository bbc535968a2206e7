/* What Jasmin calls back with: receipts of level 1 (queued at the SMSC) and 2 (from the handset),
 * and, when its router sends people's messages here, those. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "providers/jasmin/jasmin.h"
#include "providers/kit/callback.h"

static const struct {
    const char *word;
    enum provider_status status;
} words[] = {
    {"ESME_ROK", PROVIDER_STATUS_IN_TRANSIT}, {"ACCEPTD", PROVIDER_STATUS_IN_TRANSIT},
    {"ENROUTE", PROVIDER_STATUS_IN_TRANSIT},  {"DELIVRD", PROVIDER_STATUS_DELIVERED},
    {"UNDELIV", PROVIDER_STATUS_UNDELIVERED}, {"DELETED", PROVIDER_STATUS_UNDELIVERED},
    {"UNKNOWN", PROVIDER_STATUS_UNDELIVERED}, {"EXPIRED", PROVIDER_STATUS_EXPIRED},
    {"REJECTD", PROVIDER_STATUS_REJECTED},
};

/* A word Jasmin does not name is kept, and proves nothing. */
static enum provider_status status_of(const char *word)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(word, words[i].word) == 0)
            return words[i].status;
    return strncmp(word, "ESME_", 5) == 0 ? PROVIDER_STATUS_REJECTED : PROVIDER_STATUS_IN_TRANSIT;
}

static int hex_value(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;

    return at ? (int)(at - digits) : -1;
}

/* Four hexadecimal digits; -1 when they are not. */
static long unit_at(const char *hex)
{
    long unit = 0;

    for (int i = 0; i < 4; i++) {
        int v = hex_value(hex[i]);

        if (v < 0)
            return -1;
        unit = unit << 4 | v;
    }
    return unit;
}

static size_t put_utf8(char *to, unsigned long c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 0x3f));
    to[2] = (char)(0x80 | (c >> 6 & 0x3f));
    to[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* UTF-16BE in hexadecimal as UTF-8, for the caller to free; NULL when it is not that. */
static char *text_of_hex(const char *hex)
{
    size_t n = strlen(hex), len = 0;
    char *text = n % 4 == 0 ? malloc(n + 1) : NULL; /* at most 3 bytes for 4 digits */

    for (size_t i = 0; text && i < n; i += 4) {
        long c = unit_at(hex + i);

        if (c >= 0xd800 && c < 0xdc00 && i + 8 <= n) {
            long low = unit_at(hex + i + 4);

            c = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00)
                                              : -1;
            i += 4;
        } else if (c >= 0xd800 && c < 0xe000) {
            c = -1;
        }
        if (c <= 0) {
            free(text);
            return NULL;
        }
        len += put_utf8(text + len, (unsigned long)c);
    }
    if (text)
        text[len] = '\0';
    return text;
}

static int acknowledge(const struct jasmin *self, struct provider_events *out)
{
    static const char ack[] = "ACK/Jasmin"; /* exactly; anything else is called again */

    return self->host->callback_answer(out, 200, "text/plain", ack, strlen(ack));
}

/* A message of a person. Under UCS-2 the readable form is in `binary` alone. */
static int read_inbound(const struct jasmin *self, const struct provider_callback *cb,
                        struct provider_events *out)
{
    const char *coding = callback_param(cb, "coding"), *hex = callback_param(cb, "binary");
    struct provider_inbound m = {
        .from = callback_param(cb, "from"),
        .to = callback_param(cb, "to"),
        .text = callback_param(cb, "content"),
        .id = callback_param(cb, "id"),
    };
    char *text = coding && strcmp(coding, "8") == 0 && hex ? text_of_hex(hex) : NULL;
    int r;

    if (text)
        m.text = text;
    r = m.from && m.text && *m.from ? self->host->inbound(out, &m) : -EBADMSG;
    free(text);
    return r < 0 ? r : acknowledge(self, out);
}

int jasmin_receipt(const struct jasmin *self, const struct provider_callback *cb,
                   struct provider_events *out)
{
    const char *word = callback_param(cb, "message_status"), *id = callback_param(cb, "id");
    const char *err = callback_param(cb, "err");
    struct provider_receipt r = {0};
    int result;

    if (!word)
        return read_inbound(self, cb, out);
    if (!id || !*id || !*word)
        return -EBADMSG;
    r.status = status_of(word);
    r.vendor_id = id;
    if (r.status != PROVIDER_STATUS_DELIVERED && strcmp(word, "ESME_ROK") != 0)
        r.code = word;
    if (r.code && err && strcmp(err, "000") != 0)
        r.detail = err;
    result = self->host->receipt(out, &r);
    return result < 0 ? result : acknowledge(self, out);
}
