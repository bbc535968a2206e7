/* mix.h - well spread 64-bit numbers from weak ones.
 *
 * Pure. The finaliser is the one of splitmix64 (Steele, Lea, Flood: "Fast splittable
 * pseudorandom number generators", 2014). Not for secrets. */
#ifndef POSTRIDER_SANDBOX_MIX_H
#define POSTRIDER_SANDBOX_MIX_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t sb_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Hash of any bytes; equal bytes give equal hashes on one machine. */
static inline uint64_t sb_hash(const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t h = sb_mix(len);

    for (; len >= sizeof(uint64_t); p += sizeof(uint64_t), len -= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, p, sizeof(word));
        h = sb_mix(h ^ word);
    }
    if (len > 0) {
        uint64_t word = 0;
        memcpy(&word, p, len);
        h = sb_mix(h ^ word);
    }
    return h;
}

#endif
