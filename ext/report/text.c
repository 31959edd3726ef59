/*
** text.c: how values are written. Nothing that was recorded can become markup, or
** change how the text around it is read.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const char zUnknown[] = "\xef\xbf\xbd"; /* U+FFFD */

const char *bxReportTypeName(ReportType eType) {
  static const char *const az[] = {
      "text", "id", "time", "bytes", "count", "money", "duration"};
  assert(eType >= REPORT_TEXT && eType <= REPORT_DURATION);
  return az[eType];
}

/* The number of bytes of the character at z, of which n are left; 0 if it is not
** well-formed UTF-8. */
static int charBytes(const char *z, i64 n) {
  unsigned char c = (unsigned char)*z;
  int nByte = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
  assert(n > 0);
  if (nByte == 1) return 1;
  return n >= nByte && bxIsUtf8((const unsigned char *)z, nByte) ? nByte : 0;
}

/* Whether a character of three bytes changes the direction of what follows, or
** is a line of its own: U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069. */
static int isDirection(const char *z) {
  const unsigned char *a = (const unsigned char *)z;
  if (a[0] != 0xe2) return 0;
  return (a[1] == 0x80 && (a[2] == 0x8e || a[2] == 0x8f ||
                              (a[2] >= 0xa8 && a[2] <= 0xae))) ||
         (a[1] == 0x81 && a[2] >= 0xa6 && a[2] <= 0xa9);
}

/* Whether a character of two bytes is a control character, or changes the direction:
** U+0080 to U+009F, U+061C. */
static int isControl(const char *z) {
  const unsigned char *a = (const unsigned char *)z;
  return (a[0] == 0xc2 && a[1] < 0xa0) || (a[0] == 0xd8 && a[1] == 0x9c);
}

/* What may not stand in it is also a control character that is no white space. */
char *bxReportPlain(const char *z, i64 n, BxErr *pErr) {
  sqlite3_str *pOut;
  char *zOut;
  i64 i = 0, iFrom = 0;
  assert(n >= 0);
  if (pErr->rc != SQLITE_OK) return 0;
  pOut = sqlite3_str_new(0);
  while (i < n) {
    int nByte = charBytes(z + i, n - i);
    unsigned char c = (unsigned char)z[i];
    if (nByte == 0 || c == 0x7f ||
        (c < 0x20 && (c == 0 || !strchr("\t\n\r", c))) ||
        (nByte == 2 && isControl(z + i)) ||
        (nByte == 3 && isDirection(z + i))) {
      sqlite3_str_append(pOut, z + iFrom, (int)(i - iFrom));
      sqlite3_str_appendall(pOut, zUnknown);
      iFrom = i + (nByte ? nByte : 1);
    }
    i += nByte ? nByte : 1;
  }
  sqlite3_str_append(pOut, z + iFrom, (int)(n - iFrom));
  zOut = bxStrFinish(pOut, pErr);
  return zOut != 0 ? zOut : bxPrintf(pErr, "%s", "");
}

void bxReportFirstLine(char *z, int nMax) {
  int i = 0, n = 0;
  assert(nMax > 0);
  while (z[i] != 0 && z[i] != '\n' && z[i] != '\r' && n < nMax) {
    i++;
    while ((z[i] & 0xc0) == 0x80) i++;
    n++;
  }
  z[i] = 0;
}

/* The JSON stands inside an element of HTML, so that < is an escape in it. */
void bxReportJson(sqlite3_str *pOut, const char *z, i64 n) {
  i64 i = 0, iFrom = 0;
  assert(n >= 0);
  sqlite3_str_appendchar(pOut, 1, '"');
  while (i < n) {
    int nByte = charBytes(z + i, n - i);
    int bOdd = nByte == 1 && ((unsigned char)z[i] < 0x20 || z[i] == 0x7f ||
                                 strchr("\"\\<>&", z[i]) != 0);
    int bLine = nByte == 3 && isDirection(z + i);
    int bControl = nByte == 2 && isControl(z + i);
    if (nByte == 0 || bOdd || bLine || bControl) {
      sqlite3_str_append(pOut, z + iFrom, (int)(i - iFrom));
      if (nByte == 0) {
        sqlite3_str_appendall(pOut, zUnknown);
      } else if (bLine) {
        sqlite3_str_appendf(pOut, "\\u20%02x",
            ((unsigned char)z[i + 1] & 1) << 6 |
                ((unsigned char)z[i + 2] & 63));
      } else if (bControl) {
        sqlite3_str_appendf(pOut, "\\u%04x",
            ((unsigned char)z[i] & 31) << 6 | ((unsigned char)z[i + 1] & 63));
      } else if (z[i] == '"' || z[i] == '\\') {
        sqlite3_str_appendf(pOut, "\\%c", z[i]);
      } else {
        sqlite3_str_appendf(pOut, "\\u%04x", (unsigned char)z[i]);
      }
      iFrom = i + (nByte ? nByte : 1);
    }
    i += nByte ? nByte : 1;
  }
  sqlite3_str_append(pOut, z + iFrom, (int)(n - iFrom));
  sqlite3_str_appendchar(pOut, 1, '"');
}

static void putHtml(sqlite3_str *pOut, const char *z) {
  for (; *z; z++) {
    size_t n = strcspn(z, "&<>\"'");
    sqlite3_str_append(pOut, z, (int)n);
    z += n;
    if (*z == 0) return;
    sqlite3_str_appendf(pOut, "&#%d;", *z);
  }
}

#define MD_CHARS 200 /* of a value */

static int isMdWord(char c) {
  return (c & 0x80) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}

/* Appends a text on one line, inside a line, so that it cannot become markup, a link or a
** mention of a person. Only what would be read as one is escaped: an entity stands for
** what sites read beyond Markdown, as no backslash does. */
static void putMarkdown(sqlite3_str *pOut, const char *zAll) {
  const char *z = zAll;
  int n = 0;
  for (; *z && n < MD_CHARS; z++) {
    char c = *z, cBefore = z > zAll ? z[-1] : ' ', cNext = z[1];
    n += (c & 0xc0) != 0x80;
    if (strchr("\n\r\t", c) != 0) {
      sqlite3_str_appendchar(pOut, 1, ' ');
    } else if (c == '|' || (c == '@' && isMdWord(cNext)) ||
               (c == '#' && (isMdWord(cNext) || cNext == 0)) ||
               (c == ':' && strncmp(z, "://", 3) == 0) ||
               (c == '.' && z - zAll > 2 &&
                   sqlite3_strnicmp(z - 3, "www", 3) == 0)) {
      sqlite3_str_appendf(pOut, "&#%d;", c);
    } else if (strchr("\\`*[<~$", c) != 0 ||
               (c == '&' && (isMdWord(cNext) || cNext == '#')) ||
               (c == '_' && !(isMdWord(cBefore) && isMdWord(cNext)))) {
      sqlite3_str_appendf(pOut, "\\%c", c);
    } else {
      sqlite3_str_append(pOut, z, 1);
    }
  }
  while ((*z & 0xc0) == 0x80) sqlite3_str_append(pOut, z++, 1);
  if (*z) sqlite3_str_appendall(pOut, " ...");
}

static void putTime(sqlite3_str *pOut, i64 iTime, int bHtml) {
  char zIso[25];
  if (iTime < 0 || iTime > BX_MAX_TIME) {
    sqlite3_snprintf((int)sizeof(zIso), zIso, "%lld", iTime);
  } else {
    bxIso(iTime, zIso);
  }
  if (bHtml) sqlite3_str_appendf(pOut, "<time datetime=\"%s\">", zIso);
  if (iTime < 0 || iTime > BX_MAX_TIME) {
    sqlite3_str_appendall(pOut, zIso);
  } else {
    sqlite3_str_appendf(pOut, "%.10s %.12s UTC", zIso, zIso + 11);
  }
  if (bHtml) sqlite3_str_appendall(pOut, "</time>");
}

static void putSize(sqlite3_str *pOut, i64 nByte) {
  static const char *const azUnit[] = {"KB", "MB", "GB", "TB"};
  double r = (double)nByte / 1000.0;
  int i = 0;
  for (; r >= 999.95 && i < 3; i++) r /= 1000.0;
  if (nByte < 1000) {
    sqlite3_str_appendf(pOut, "%lld bytes", nByte);
  } else {
    sqlite3_str_appendf(pOut, "%.1f %s", r, azUnit[i]);
  }
}

/* Whether a text is a number that every reader of JSON has exactly. */
static int isJsonNumber(const char *z) {
  const char *zEnd = bxJsonSkipScalar(z, z + strlen(z));
  if (strchr("-0123456789", *z) == 0 || *z == 0) return 0;
  return zEnd != 0 && *zEnd == 0 && strtod(z, 0) <= 9007199254740992.0 &&
         strtod(z, 0) >= -9007199254740992.0;
}

/* A value as people read it. */
static void putValue(
    sqlite3_str *pOut, const char *z, ReportType eType, int bHtml) {
  char *zEnd = 0;
  i64 i = z ? (i64)strtoll(z, &zEnd, 10) : 0;
  i64 s = llabs(i / 1000);
  if (z == 0) return;
  if (*z == 0 || *zEnd != 0) eType = REPORT_TEXT; /* no whole number */
  switch (eType) {
    case REPORT_TIME: putTime(pOut, i, bHtml); break;
    case REPORT_BYTES: putSize(pOut, i); break;
    case REPORT_COUNT: sqlite3_str_appendf(pOut, "%,lld", i); break;
    case REPORT_DURATION: /* two units: hours need no milliseconds */
      if (i < 0) sqlite3_str_appendchar(pOut, 1, '-');
      if (s < 60) {
        sqlite3_str_appendf(pOut, "%lld.%03lld s", s, llabs(i % 1000));
      } else if (s < 3600) {
        sqlite3_str_appendf(pOut, "%lld min %lld s", s / 60, s % 60);
      } else if (s < 86400) {
        sqlite3_str_appendf(pOut, "%lld h %lld min", s / 3600, s / 60 % 60);
      } else {
        sqlite3_str_appendf(pOut, "%,lld d %lld h", s / 86400, s / 3600 % 24);
      }
      break;
    default: (bHtml ? putHtml : putMarkdown)(pOut, z);
  }
}

void bxReportPut(sqlite3_str *pOut, const char *z, ...) {
  va_list ap;
  va_start(ap, z);
  while (*z) {
    int n = (int)strcspn(z, "%"), bRaw;
    const char *zText;
    sqlite3_str_append(pOut, z, n);
    z += n;
    if (*z == 0) break;
    switch (z[1]) {
      case 'i': sqlite3_str_appendf(pOut, "%lld", va_arg(ap, i64)); break;
      case 'n': sqlite3_str_appendf(pOut, "%,lld", va_arg(ap, i64)); break;
      case 'b': putSize(pOut, va_arg(ap, i64)); break;
      case 't':
      case 'T': putTime(pOut, va_arg(ap, i64), z[1] == 'T'); break;
      default:
        assert(strchr("shmjvwx", z[1]) != 0);
        zText = va_arg(ap, const char *);
        if (z[1] == 'v' || z[1] == 'w') {
          putValue(pOut, zText, (ReportType)va_arg(ap, int), z[1] == 'v');
          break;
        }
        bRaw = z[1] == 's' || (z[1] == 'x' && va_arg(ap, int) >= REPORT_TIME &&
                                  zText != 0 && isJsonNumber(zText));
        if (zText == 0) {
          if (z[1] == 'j' || z[1] == 'x') sqlite3_str_appendall(pOut, "null");
        } else if (bRaw) {
          sqlite3_str_appendall(pOut, zText);
        } else if (z[1] == 'j' || z[1] == 'x') {
          bxReportJson(pOut, zText, (i64)strlen(zText));
        } else {
          (z[1] == 'h' ? putHtml : putMarkdown)(pOut, zText);
        }
    }
    z += 2;
  }
  va_end(ap);
}

#define BLOCK_LEVEL 3    /* the next ones take longer, and save little */
#define BLOCK_ROOM 12288 /* a multiple of 3 */

/* A block of the page is deflated (RFC 1951, without a header), in base64. A browser
** inflates it with DecompressionStream('deflate-raw'). */
void bxReportBase64(sqlite3_str *pOut, const unsigned char *a, i64 n) {
  char zRoom[1025];
  assert(n >= 0);
  for (; n > 0; n -= 768, a += 768) {
    bxBase64(a, n < 768 ? n : 768, zRoom);
    sqlite3_str_appendall(pOut, zRoom);
  }
}

void bxReportSha256(sqlite3_str *pOut, const char *z, i64 n) {
  unsigned char aHash[BX_DIGEST];
  bxDigestTwo(z, (size_t)n, "", 0, aHash);
  sqlite3_str_appendall(pOut, "sha256-");
  bxReportBase64(pOut, aHash, BX_DIGEST);
}

static void *blockAlloc(void *pArg, unsigned n, unsigned nOne) {
  (void)pArg;
  return sqlite3_malloc64((sqlite3_uint64)n * nOne);
}

static void blockFree(void *pArg, void *p) {
  (void)pArg;
  sqlite3_free(p);
}

void bxReportDeflate(sqlite3_str *pOut, const char *z, i64 n, BxErr *pErr) {
  unsigned char *aRoom = bxZalloc(BLOCK_ROOM, pErr);
  z_stream stream;
  int rc;
  memset(&stream, 0, sizeof(stream));
  stream.zalloc = blockAlloc;
  stream.zfree = blockFree;
  stream.next_in = (unsigned char *)(sqlite3_uint64)z;
  stream.avail_in = (unsigned)n;
  if (aRoom == 0) return;
  rc = deflateInit2(
      &stream, BLOCK_LEVEL, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
  if (rc != Z_OK) bxCheckMem(0, pErr);
  while (rc == Z_OK) {
    stream.next_out = aRoom;
    stream.avail_out = BLOCK_ROOM;
    do {
      rc = deflate(&stream, Z_FINISH);
    } while (rc == Z_OK && stream.avail_out > 0);
    bxReportBase64(pOut, aRoom, BLOCK_ROOM - (i64)stream.avail_out);
  }
  deflateEnd(&stream);
  sqlite3_free(aRoom);
}
