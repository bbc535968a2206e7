/* sign.h - digests, signatures and the encodings around them; over libcrypto. Pure.
 *
 * Comparisons take the same time whatever differs. Base64 is RFC 4648 with padding; `url` is its
 * URL-safe form without. */
#ifndef POSTRIDER_KIT_SIGN_H
#define POSTRIDER_KIT_SIGN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sign_hash { SIGN_MD5, SIGN_SHA1, SIGN_SHA256, SIGN_SHA384, SIGN_SHA512 };
enum { SIGN_MAX = 64 }; /* longest digest */

/* Digest length, 0 on failure (out of memory). */
size_t sign_digest(enum sign_hash hash, const void *data, size_t len, uint8_t out[SIGN_MAX]);
size_t sign_hmac(enum sign_hash hash, const void *key, size_t key_len, const void *data, size_t len,
                 uint8_t out[SIGN_MAX]);

/* Allocated texts, NULL when out of memory. */
char *sign_hex(const uint8_t *data, size_t len);
char *sign_base64(const uint8_t *data, size_t len);
char *sign_base64url(const uint8_t *data, size_t len);
/* Strict decoders; allocated, NUL added beyond *ret_len. NULL: not that encoding, or no memory. */
uint8_t *sign_unbase64(const char *text, size_t len, size_t *ret_len);
uint8_t *sign_unbase64url(const char *text, size_t len, size_t *ret_len);

bool sign_equal(const void *a, size_t a_len, const void *b, size_t b_len);
bool sign_equal_text(const char *a, const char *b); /* either NULL: false */

/* Ed25519 (RFC 8032): a 32-byte public key, a 64-byte signature. */
bool sign_ed25519_ok(const uint8_t key[32], const uint8_t signature[64], const void *data,
                     size_t len);
/* Signs with a 32-byte private key ("seed"); false when out of memory. */
bool sign_ed25519(const uint8_t seed[32], const void *data, size_t len, uint8_t out[64]);
/* RSA PKCS#1 v1.5 under the public key of a PEM certificate or of a PEM public key. */
bool sign_rsa_ok(enum sign_hash hash, const char *pem, const uint8_t *signature,
                 size_t signature_len, const void *data, size_t len);

/* Signs with a PEM private key of RSA: PKCS#1 v1.5 over SHA-256. Allocated; NULL when the key does
 * not parse (encrypted ones do not: nobody is asked). */
uint8_t *sign_rsa_sha256(const char *private_pem, const void *data, size_t len, size_t *ret_len);

/* JSON Web Tokens (RFC 7519). Verifies a compact token under HS256/384/512 only ("none" and
 * public-key algorithms are refused, as is an empty key), nbf and exp, where there, against now
 * with `leeway_s`. Returns its claims (the caller decrefs) or NULL. `_untrusted` decodes the claims
 * without trusting them, to choose a key by. */
json_t *sign_jwt_claims_untrusted(const char *token, size_t len);
json_t *sign_jwt_hs_verify(const char *token, size_t len, const void *key, size_t key_len,
                           int64_t now_s, int64_t leeway_s);
/* Makes tokens: RS256 under a PEM private key, HS256 under a secret. Allocated; NULL when the key
 * does not parse. */
char *sign_jwt_rs256(const json_t *claims, const char *private_pem);
char *sign_jwt_hs256(const json_t *claims, const void *key, size_t key_len);
/* Whether a PEM private key parses and is RSA: for `open`. */
bool sign_rsa_private_ok(const char *private_pem);

#endif
