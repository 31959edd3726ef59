/*
** text.c: writes values into a page, into Markdown and into JSON.
**
** Invariant: nothing that was recorded can become markup, end a script or a code
** block, or change how the text around it is read.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

const char *bxReportTypeName(ReportType eType) {
  static const char *const az[] = {
      "text", "id", "time", "bytes", "count", "money", "duration"};
  return az[eType];
}

/* Whether a character cannot be seen, ends a line, or changes the direction of what
** follows. */
static int isOddChar(int c) {
  static const int aOdd[][2] = {{-1, 0x1f}, {0x7f, 0x9f}, {0xad, 0xad},
      {0x34f, 0x34f}, {0x61c, 0x61c}, {0x115f, 0x1160}, {0x17b4, 0x17b5},
      {0x180e, 0x180e}, {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e},
      {0x2060, 0x206f}, {0x2800, 0x2800}, {0x3164, 0x3164}, {0xfeff, 0xfeff},
      {0xffa0, 0xffa0}, {0xfff9, 0xfffc}};
  int i = 0;
  while (i < 17 && c > aOdd[i][1]) i++;
  return i < 17 && c >= aOdd[i][0];
}

/* Appends a text in which these characters, and bytes that are not UTF-8, cannot be
** seen: in JSON they are escapes. The JSON stands inside an element of HTML, so that <
** is an escape in it, too. */
static void putVisible(sqlite3_str *pOut, const char *z, i64 n, int bJson) {
  i64 i, iFrom = 0;
  int nByte, c;
  for (i = 0; i < n; i += nByte) {
    const unsigned char *a = (const unsigned char *)z + i;
    c = *a;
    nByte = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (nByte > 1 && (nByte > n - i || !bxIsUtf8(a, nByte))) {
      nByte = 1;
      c = -1;
    } else if (nByte > 1) {
      c = nByte == 2   ? (c & 31) << 6 | (a[1] & 63)
          : nByte == 3 ? (c & 15) << 12 | (a[1] & 63) << 6 | (a[2] & 63)
                       : 0x10000;
    }
    if (bJson ? !isOddChar(c) && (c > '~' || strchr("\"\\<>&", c) == 0)
              : !isOddChar(c) || c == '\t' || c == '\n' || c == '\r') {
      continue;
    }
    sqlite3_str_append(pOut, z + iFrom, (int)(i - iFrom));
    iFrom = i + nByte;
    if (c < 0 || !bJson) {
      sqlite3_str_appendall(pOut, "\xef\xbf\xbd"); /* U+FFFD */
    } else {
      sqlite3_str_appendf(pOut, c == '"' || c == '\\' ? "\\%c" : "\\u%04x", c);
    }
  }
  sqlite3_str_append(pOut, z + iFrom, (int)(n - iFrom));
}

char *bxReportPlain(const char *z, i64 n, BxErr *pErr) {
  sqlite3_str *pOut;
  char *zOut;
  if (pErr->rc != SQLITE_OK) return 0;
  pOut = sqlite3_str_new(0);
  putVisible(pOut, z, n, 0);
  zOut = bxStrFinish(pOut, pErr);
  return zOut != 0 ? zOut : bxPrintf(pErr, "%s", "");
}

void bxReportJson(sqlite3_str *pOut, const char *z, i64 n) {
  sqlite3_str_appendchar(pOut, 1, '"');
  putVisible(pOut, z, n, 1);
  sqlite3_str_appendchar(pOut, 1, '"');
}

void bxReportFirstLine(char *z, int nMax) {
  int i = 0, n = 0;
  while (z[i] != 0 && z[i] != '\n' && z[i] != '\r' && n < nMax) {
    i++;
    while ((z[i] & 0xc0) == 0x80) i++;
    n++;
  }
  z[i] = 0;
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
  int bKnown = iTime >= 0 && iTime <= BX_MAX_TIME;
  char zIso[25];
  if (bKnown) bxIso(iTime, zIso);
  if (!bKnown) sqlite3_snprintf((int)sizeof(zIso), zIso, "%lld", iTime);
  if (bHtml) sqlite3_str_appendf(pOut, "<time datetime=\"%s\">", zIso);
  sqlite3_str_appendf(pOut, bKnown ? "%.10s %.12s UTC" : "%s", zIso, zIso + 11);
  if (bHtml) sqlite3_str_appendall(pOut, "</time>");
}

static void putSize(sqlite3_str *pOut, i64 nByte) {
  double r = (double)nByte / 1000.0;
  int i = 0;
  for (; r >= 999.95 && i < 3; i++) r /= 1000.0;
  if (nByte < 1000) {
    sqlite3_str_appendf(pOut, "%lld bytes", nByte);
  } else {
    sqlite3_str_appendf(pOut, "%.1f %cB", r, "KMGT"[i]);
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

static void putQuoted(sqlite3_str *pOut, const char *z) {
  if (z == 0) sqlite3_str_appendall(pOut, "null");
  if (z != 0) bxReportJson(pOut, z, (i64)strlen(z));
}

void bxReportPut(sqlite3_str *pOut, const char *z, ...) {
  va_list ap;
  va_start(ap, z);
  for (; *z; z += 2) {
    int n = (int)strcspn(z, "%");
    const char *zText = "";
    char c;
    i64 i = 0;
    sqlite3_str_append(pOut, z, n);
    z += n;
    if (*z == 0) break;
    c = z[1];
    if (strchr("inbtT", c) == 0) zText = va_arg(ap, const char *);
    if (strchr("inbtTK", c) != 0) i = va_arg(ap, i64);
    if ((i < 0 && c != 'i') || (zText == 0 && strchr("shmvw", c) != 0)) {
      if (c == 'v' || c == 'w') (void)va_arg(ap, int);
      continue;
    }
    switch (c) {
      case 'i': sqlite3_str_appendf(pOut, "%lld", i); break;
      case 'n': sqlite3_str_appendf(pOut, "%,lld", i); break;
      case 'b': putSize(pOut, i); break;
      case 't':
      case 'T': putTime(pOut, i, c == 'T'); break;
      case 's': sqlite3_str_appendall(pOut, zText); break;
      case 'h': putHtml(pOut, zText); break;
      case 'm': putMarkdown(pOut, zText); break;
      case 'v':
      case 'w': putValue(pOut, zText, va_arg(ap, int), c == 'v'); break;
      case 'j': putQuoted(pOut, zText); break;
      case 'x':
        if (va_arg(ap, int) >= REPORT_TIME && zText && isJsonNumber(zText)) {
          sqlite3_str_appendall(pOut, zText);
        } else {
          putQuoted(pOut, zText);
        }
        break;
      case 'K': sqlite3_str_appendf(pOut, ",\"%s\":%lld", zText, i); break;
      default: {
        const char *zValue = va_arg(ap, const char *);
        assert(c == 'k');
        if (zValue != 0) sqlite3_str_appendf(pOut, ",\"%s\":", zText);
        if (zValue != 0) putQuoted(pOut, zValue);
      }
    }
  }
  va_end(ap);
}

void bxReportBase64(sqlite3_str *pOut, const unsigned char *a, i64 n) {
  char zRoom[1025];
  for (; n > 0; n -= 768, a += 768) {
    bxBase64(a, n < 768 ? n : 768, zRoom);
    sqlite3_str_appendall(pOut, zRoom);
  }
}

/* A browser inflates it with DecompressionStream('deflate-raw'): it wants neither the
** header of zlib nor the checksum. */
void bxReportDeflate(sqlite3_str *pOut, const char *z, i64 n, BxErr *pErr) {
  uLongf nOut = compressBound((uLong)n);
  unsigned char *a = bxZalloc(nOut, pErr);
  if (a == 0) return;
  if (compress2(a, &nOut, (const Bytef *)z, (uLong)n, 3) == Z_OK) {
    bxReportBase64(pOut, a + 2, (i64)nOut - 6);
  } else {
    bxCheckMem(0, pErr);
  }
  sqlite3_free(a);
}
