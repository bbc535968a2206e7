/* json.h - reading a vendor's JSON without trusting its types. Pure; over jansson.
 *
 * Vendors write numbers as strings, ids as numbers, and leave members out. None of these fails on
 * a wrong type: they say NULL, and the caller judges what is proven without it. */
#ifndef POSTRIDER_KIT_JSON_H
#define POSTRIDER_KIT_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The whole body as JSON (object or array), NULL when it is not; depth and duplicates as jansson
 * limits them. The caller decrefs. */
json_t *json_body(const char *body, size_t len);

/* Down a path of member names and array indices, "messages/0/status/id". NULL if any step lacks.
 * Borrowed. */
const json_t *json_path(const json_t *root, const char *path);

/* A string's text; NULL for any other type or path that lacks. Borrowed. */
const char *json_text_at(const json_t *root, const char *path);

/* Text of a string, integer or boolean ("true"), for codes and ids that come as either. Writes to
 * `buf` only when it has to; NULL otherwise. */
const char *json_word_at(const json_t *root, const char *path, char *buf, size_t size);

/* An integer, also one written as a string of digits. False when it is neither. */
bool json_i64_at(const json_t *root, const char *path, int64_t *ret);

/* Serialises for a request, compact, non-ASCII as it is; the caller frees. NULL: out of memory. */
char *json_text(const json_t *value);

#endif
