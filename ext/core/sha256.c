/*
** sha256.c: SHA-256 (FIPS 180-4), in plain C, and with the instructions that
** many x86-64 processors have for it, which are several times as fast. Which
** of the two it is, the processor tells at run time.
*/
#include "core.h"
SQLITE_EXTENSION_INIT3

#include <stdint.h>
#include <string.h>

/* The first 32 bits of the fractions of the cube roots of 64 primes. */
static const uint32_t aRound[64] = {0x428a2f98, 0x71374491, 0xb5c0fbcf,
    0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
    0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7,
    0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
    0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e,
    0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
    0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c,
    0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee,
    0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2};

static uint32_t rotate(uint32_t x, int n) {
  return (x >> n) | (x << (32 - n));
}

static uint32_t mix(uint32_t x, int a, int b, int c) {
  return rotate(x, a) ^ rotate(x, b) ^ rotate(x, c);
}

/* One block of 64 bytes into the state. */
static void block(uint32_t *aState, const unsigned char *z) {
  uint32_t w[64], s[8], t1, t2;
  int i;
  for (i = 0; i < 16; i++, z += 4) {
    w[i] = (uint32_t)z[0] << 24 | (uint32_t)z[1] << 16 | (uint32_t)z[2] << 8 |
           (uint32_t)z[3];
  }
  for (; i < 64; i++) {
    w[i] = w[i - 16] + w[i - 7] +
           (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
           (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
  }
  memcpy(s, aState, sizeof(s));
  for (i = 0; i < 64; i++) {
    t1 = s[7] + mix(s[4], 6, 11, 25) + ((s[4] & s[5]) ^ (~s[4] & s[6])) +
         aRound[i] + w[i];
    t2 = mix(s[0], 2, 13, 22) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    memmove(&s[1], &s[0], 7 * sizeof(s[0]));
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (i = 0; i < 8; i++) aState[i] += s[i];
}

static void blocks(uint32_t *aState, const unsigned char *z, size_t n) {
  for (; n > 0; n--, z += 64) block(aState, z);
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>

static int askProcessor(void) {
  unsigned int a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b >> 29 & 1)) return 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 19 & 1); /* SSE 4.1 */
}

/* Asked once, as a virtual machine answers slowly; the answer stays the same. */
static int hasInstructions(void) {
  static _Atomic int iKnown; /* 1: no, 2: yes */
  if (iKnown == 0) iKnown = 1 + askProcessor();
  return iKnown == 2;
}

/* The instructions want the eight words of the state as ABEF and CDGH, and four
** words of the message at a time. */
__attribute__((target("sha,sse4.1"))) static void blocksByInstruction(
    uint32_t *aState, const unsigned char *z, size_t n) {
  const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  __m128i abcd = _mm_loadu_si128((const __m128i *)aState);
  __m128i efgh = _mm_loadu_si128((const __m128i *)(aState + 4));
  __m128i cdab = _mm_shuffle_epi32(abcd, 0xb1);
  __m128i hgfe = _mm_shuffle_epi32(efgh, 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, cdab, 0xf0);
  for (; n > 0; n--, z += 64) {
    __m128i abef0 = abef, cdgh0 = cdgh, w[4];
    int i;
    for (i = 0; i < 4; i++) {
      w[i] = _mm_loadu_si128((const __m128i *)(z + 16 * i));
      w[i] = _mm_shuffle_epi8(w[i], order);
    }
    for (i = 0; i < 16; i++) {
      __m128i k = _mm_loadu_si128((const __m128i *)(aRound + 4 * i));
      __m128i now = w[i & 3];
      k = _mm_add_epi32(k, now);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
      if (i < 12) { /* the words of four steps later */
        __m128i last = w[(i + 3) & 3];
        now = _mm_sha256msg1_epu32(now, w[(i + 1) & 3]);
        now = _mm_add_epi32(now, _mm_alignr_epi8(last, w[(i + 2) & 3], 4));
        w[i & 3] = _mm_sha256msg2_epu32(now, last);
      }
    }
    abef = _mm_add_epi32(abef, abef0);
    cdgh = _mm_add_epi32(cdgh, cdgh0);
  }
  cdab = _mm_shuffle_epi32(abef, 0x1b); /* FEBA */
  hgfe = _mm_shuffle_epi32(cdgh, 0xb1); /* DCHG */
  _mm_storeu_si128((__m128i *)aState, _mm_blend_epi16(cdab, hgfe, 0xf0));
  _mm_storeu_si128((__m128i *)(aState + 4), _mm_alignr_epi8(hgfe, cdab, 8));
}
#else
static int hasInstructions(void) {
  return 0;
}
#define blocksByInstruction blocks
#endif

void bxShaInit(BxSha *p) {
  static const uint32_t aFirst[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
      0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(p->aState, aFirst, sizeof(aFirst));
  p->nByte = 0;
  p->bFast = hasInstructions();
}

static void addBlocks(BxSha *p, const unsigned char *z, size_t n) {
  if (p->bFast) {
    blocksByInstruction(p->aState, z, n);
  } else {
    blocks(p->aState, z, n);
  }
}

void bxShaAdd(BxSha *p, const void *pData, size_t n) {
  const unsigned char *z = (const unsigned char *)pData;
  size_t nHeld = (size_t)(p->nByte % 64);
  p->nByte += n;
  if (nHeld > 0) {
    size_t nMore = 64 - nHeld < n ? 64 - nHeld : n;
    memcpy(p->aHeld + nHeld, z, nMore);
    z += nMore;
    n -= nMore;
    if (nHeld + nMore < 64) return;
    addBlocks(p, p->aHeld, 1);
  }
  addBlocks(p, z, n / 64);
  if (n % 64 > 0) memcpy(p->aHeld, z + n / 64 * 64, n % 64);
}

void bxShaHex(BxSha *p, char zOut[65]) {
  static const unsigned char aPad[64] = {0x80};
  unsigned char aBits[8];
  uint64_t nBits = p->nByte * 8;
  int i;
  for (i = 7; i >= 0; i--, nBits >>= 8) aBits[i] = (unsigned char)nBits;
  bxShaAdd(p, aPad, 1 + (size_t)(119 - p->nByte % 64) % 64);
  bxShaAdd(p, aBits, sizeof(aBits));
  for (i = 0; i < 64; i++) {
    zOut[i] = "0123456789abcdef"[p->aState[i / 8] >> (28 - i % 8 * 4) & 15];
  }
  zOut[64] = 0;
}
