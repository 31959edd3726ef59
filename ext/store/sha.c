/*
** sha.c: SHA-256 with the instructions that x86 processors have for it.
**
** libmd computes it in plain C, which takes as long as all the rest of packing. If
** the processor has the instructions, whole blocks are hashed here, and libmd does
** the rest: the end of the data, and all of it on other processors.
**
** The words a to h of the state are in two registers, as the instructions want
** them: (a, b, e, f) and (c, d, g, h), with the first word in the highest place.
*/
#include "store.h"
SQLITE_EXTENSION_INIT3

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>

#define BLOCK 64 /* bytes */

/* The constants of the standard: the first 32 bits of the fractional parts of the
** cube roots of the first 64 primes. */
static const uint32_t aShaRound[64] __attribute__((aligned(16))) = {0x428a2f98,
    0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74,
    0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6,
    0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152,
    0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351,
    0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354,
    0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70,
    0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa,
    0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static int askProcessor(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  if ((c & bit_SSSE3) == 0 || (c & bit_SSE4_1) == 0) return 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA) != 0;
}

/* Whether the processor has the instructions. It is asked once, because that takes
** long in a virtual machine. */
static int hasSha(void) {
  static atomic_int eHas; /* 0: not asked yet, 1: no, 2: yes */
  if (atomic_load(&eHas) == 0) atomic_store(&eHas, 1 + askProcessor());
  return atomic_load(&eHas) == 2;
}

/* Adds whole blocks to a state. */
__attribute__((target("sha,sse4.1,ssse3"))) static void addBlocks(
    uint32_t aState[8], const unsigned char *z, i64 nBlock) {
  const __m128i swap =
      _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  __m128i abef = _mm_set_epi32(
      (int)aState[0], (int)aState[1], (int)aState[4], (int)aState[5]);
  __m128i cdgh = _mm_set_epi32(
      (int)aState[2], (int)aState[3], (int)aState[6], (int)aState[7]);
  for (; nBlock > 0; nBlock--, z += BLOCK) {
    __m128i abefOld = abef, cdghOld = cdgh, w[4];
    int i;
    for (i = 0; i < 4; i++) {
      w[i] = _mm_shuffle_epi8(
          _mm_loadu_si128((const __m128i *)(const void *)(z + 16 * i)), swap);
    }
#pragma GCC unroll 16
    for (i = 0; i < 16; i++) { /* four rounds each */
      __m128i *p = &w[i & 3], last = w[(i + 3) & 3];
      __m128i k = _mm_add_epi32(
          *p, _mm_load_si128((const __m128i *)(const void *)&aShaRound[4 * i]));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
      /* the word of four groups later */
      *p = _mm_sha256msg2_epu32(
          _mm_add_epi32(_mm_sha256msg1_epu32(*p, w[(i + 1) & 3]),
              _mm_alignr_epi8(last, w[(i + 2) & 3], 4)),
          last);
    }
    abef = _mm_add_epi32(abef, abefOld);
    cdgh = _mm_add_epi32(cdgh, cdghOld);
  }
  aState[0] = (uint32_t)_mm_extract_epi32(abef, 3);
  aState[1] = (uint32_t)_mm_extract_epi32(abef, 2);
  aState[4] = (uint32_t)_mm_extract_epi32(abef, 1);
  aState[5] = (uint32_t)_mm_extract_epi32(abef, 0);
  aState[2] = (uint32_t)_mm_extract_epi32(cdgh, 3);
  aState[3] = (uint32_t)_mm_extract_epi32(cdgh, 2);
  aState[6] = (uint32_t)_mm_extract_epi32(cdgh, 1);
  aState[7] = (uint32_t)_mm_extract_epi32(cdgh, 0);
}

/* Hashes the whole blocks of a beginning. Returns their bytes. */
static i64 hashBlocks(SHA2_CTX *p, const unsigned char *z, i64 n) {
  i64 nBlock = n / BLOCK;
  if (nBlock == 0 || !hasSha()) return 0;
  addBlocks(p->state.st32, z, nBlock);
  p->bitcount[0] += (uint64_t)nBlock * BLOCK * 8;
  return nBlock * BLOCK;
}
#else
static i64 hashBlocks(SHA2_CTX *p, const unsigned char *z, i64 n) {
  (void)p, (void)z, (void)n;
  return 0;
}
#endif

void bxShaBegin(SHA2_CTX *p, const unsigned char *z, i64 n) {
  i64 nDone;
  SHA256Init(p);
  nDone = hashBlocks(p, z, n);
  SHA256Update(p, z + nDone, (size_t)(n - nDone));
}
