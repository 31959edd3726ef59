/*
** replay.c: passes to fuzz.c the files that it is given, and a sequence of
** changed files that is always the same. (libFuzzer finds new ones.)
**
**   replay COUNT FILE...     COUNT changed inputs for each file
*/
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *aByte, size_t nByte);

#define MAX_BYTES 20000

static uint64_t state = 88172645463325252u;

static size_t dice(size_t n) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return n == 0 ? 0 : (size_t)(state % n);
}

/* Parts of JSON, SQL and arguments. */
static const char *const azPiece[] = {"{", "}", "[", "]", ",", ":", "\"", "\\",
    "\\u0000", "\\ud83d", "\\\"", "null", "true", "-", "1e999", "0", "'", "\n",
    " ", "=", "\xc3", "\xa9", "\x01", "\"type\":\"x\",", "{\"a\":", "[[[[[[",
    "\"metadata\":{", "\"payload\":", "\"id\":1,"};
#define N_PIECE (sizeof(azPiece) / sizeof(azPiece[0]))

/* Changes a[1..n), in a few places. Returns the new length. */
static size_t change(uint8_t *a, size_t n) {
  size_t i, nChange = 1 + dice(4);
  for (i = 0; i < nChange && n > 1; i++) {
    size_t iAt = 1 + dice(n - 1), nLeft = n - iAt;
    const char *zPiece = azPiece[dice(N_PIECE)];
    size_t nPiece = strlen(zPiece), nGone = 1 + dice(nLeft < 9 ? nLeft : 9);
    switch (dice(4)) {
      case 0: a[iAt] = (uint8_t)dice(256); break;
      case 1: a[iAt] ^= (uint8_t)(1 << dice(8)); break;
      case 2:
        if (nGone > nLeft) nGone = nLeft;
        memmove(a + iAt, a + iAt + nGone, nLeft - nGone);
        n -= nGone;
        break;
      default:
        if (n + nPiece > MAX_BYTES) break;
        memmove(a + iAt + nPiece, a + iAt, nLeft);
        memcpy(a + iAt, zPiece, nPiece);
        n += nPiece;
    }
  }
  return n;
}

static size_t readFile(const char *zFile, uint8_t *a) {
  FILE *p = fopen(zFile, "rb");
  size_t n;
  if (p == 0) {
    perror(zFile);
    exit(1);
  }
  n = fread(a, 1, MAX_BYTES, p);
  fclose(p);
  return n;
}

int main(int argc, char **argv) {
  static uint8_t aSeed[MAX_BYTES], aInput[MAX_BYTES];
  int nEach = argc > 1 ? atoi(argv[1]) : 0;
  int iFile, i;
  for (iFile = 2; iFile < argc; iFile++) {
    size_t nSeed = readFile(argv[iFile], aSeed);
    for (i = 0; i <= nEach; i++) {
      size_t n = nSeed;
      uint8_t *aExact; /* so that the sanitizers see its end */
      memcpy(aInput, aSeed, nSeed);
      if (i > 0) n = change(aInput, nSeed);
      aExact = malloc(n + 1);
      if (aExact == 0) return 1;
      memcpy(aExact, aInput, n);
      LLVMFuzzerTestOneInput(aExact, n);
      free(aExact);
    }
    printf("%s: %d inputs\n", argv[iFile], nEach + 1);
  }
  return 0;
}
