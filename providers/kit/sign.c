#include "providers/kit/sign.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

static const EVP_MD *md_of(enum sign_hash hash)
{
    switch (hash) {
    case SIGN_MD5:
        return EVP_md5();
    case SIGN_SHA1:
        return EVP_sha1();
    case SIGN_SHA256:
        return EVP_sha256();
    case SIGN_SHA384:
        return EVP_sha384();
    case SIGN_SHA512:
        return EVP_sha512();
    }
    return NULL;
}

/* libcurl reads the same thread's queue of errors: leave none of ours there. */
static bool answer(bool ok)
{
    ERR_clear_error();
    return ok;
}

size_t sign_digest(enum sign_hash hash, const void *data, size_t len, uint8_t out[SIGN_MAX])
{
    unsigned n = 0;

    return answer(EVP_Digest(data, len, out, &n, md_of(hash), NULL) == 1) ? n : 0;
}

size_t sign_hmac(enum sign_hash hash, const void *key, size_t key_len, const void *data, size_t len,
                 uint8_t out[SIGN_MAX])
{
    unsigned n = 0;

    if (key_len > INT_MAX)
        return 0;
    return answer(HMAC(md_of(hash), key, (int)key_len, data, len, out, &n) != NULL) ? n : 0;
}

bool sign_equal(const void *a, size_t a_len, const void *b, size_t b_len)
{
    return a_len == b_len && CRYPTO_memcmp(a, b, a_len) == 0;
}

bool sign_equal_text(const char *a, const char *b)
{
    return a && b && sign_equal(a, strlen(a), b, strlen(b));
}

/* ---- public keys ---------------------------------------------------------------------------- */

static bool verify(EVP_PKEY *key, const EVP_MD *md, const uint8_t *signature, size_t signature_len,
                   const void *data, size_t len)
{
    EVP_MD_CTX *ctx = key ? EVP_MD_CTX_new() : NULL;
    bool ok = ctx && EVP_DigestVerifyInit(ctx, NULL, md, NULL, key) == 1 &&
              EVP_DigestVerify(ctx, signature, signature_len, data, len) == 1;

    EVP_MD_CTX_free(ctx);
    return answer(ok);
}

bool sign_ed25519_ok(const uint8_t key[32], const uint8_t signature[64], const void *data,
                     size_t len)
{
    EVP_PKEY *public_key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, 32);
    bool ok = verify(public_key, NULL, signature, 64, data, len);

    EVP_PKEY_free(public_key);
    return ok;
}

bool sign_ed25519(const uint8_t seed[32], const void *data, size_t len, uint8_t out[64])
{
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32);
    EVP_MD_CTX *ctx = key ? EVP_MD_CTX_new() : NULL;
    size_t n = 64;
    bool ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, key) == 1 &&
              EVP_DigestSign(ctx, out, &n, data, len) == 1;

    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    return answer(ok);
}

/* An encrypted PEM would make OpenSSL ask on the terminal. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)arg;
    return -1;
}

static BIO *open_pem(const char *pem)
{
    size_t len = strlen(pem);

    return len <= INT_MAX ? BIO_new_mem_buf(pem, (int)len) : NULL;
}

static EVP_PKEY *public_of_pem(const char *pem)
{
    BIO *bio = open_pem(pem);
    X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, no_passphrase, NULL) : NULL;
    EVP_PKEY *key = NULL;

    if (certificate) {
        key = X509_get_pubkey(certificate);
    } else if (bio) {
        BIO_free(bio);
        bio = open_pem(pem);
        key = bio ? PEM_read_bio_PUBKEY(bio, NULL, no_passphrase, NULL) : NULL;
    }
    X509_free(certificate);
    BIO_free(bio);
    return key;
}

bool sign_rsa_ok(enum sign_hash hash, const char *pem, const uint8_t *signature,
                 size_t signature_len, const void *data, size_t len)
{
    EVP_PKEY *key = public_of_pem(pem);
    /* RSA's own padding is PKCS#1 v1.5 unless told otherwise; RSA-PSS keys are another type. */
    bool ok = key && EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA &&
              verify(key, md_of(hash), signature, signature_len, data, len);

    EVP_PKEY_free(key);
    return answer(ok);
}

static EVP_PKEY *private_of_pem(const char *pem)
{
    BIO *bio = open_pem(pem);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;

    BIO_free(bio);
    if (key && EVP_PKEY_get_base_id(key) != EVP_PKEY_RSA) {
        EVP_PKEY_free(key);
        key = NULL;
    }
    answer(true);
    return key;
}

bool sign_rsa_private_ok(const char *private_pem)
{
    EVP_PKEY *key = private_of_pem(private_pem);

    EVP_PKEY_free(key);
    return key != NULL;
}

uint8_t *sign_rsa_sha256(const char *private_pem, const void *data, size_t len, size_t *ret_len)
{
    EVP_PKEY *key = private_of_pem(private_pem);
    EVP_MD_CTX *ctx = key ? EVP_MD_CTX_new() : NULL;
    size_t n = key ? (size_t)EVP_PKEY_get_size(key) : 0;
    uint8_t *signature = n > 0 ? malloc(n) : NULL;
    bool ok = ctx && signature && EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) == 1 &&
              EVP_DigestSign(ctx, signature, &n, data, len) == 1;

    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    if (!answer(ok)) {
        free(signature);
        return NULL;
    }
    *ret_len = n;
    return signature;
}
