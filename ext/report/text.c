/*
** text.c: how values are written. Nothing that was recorded can become markup, or
** change how the text around it is read.
*/
#include "report.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

static const char zUnknown[] = "\xef\xbf\xbd"; /* U+FFFD */

const char *bxReportTypeName(ReportType eType) {
  static const char *const az[] = {
      "text", "id", "time", "bytes", "count", "money", "duration"};
  return az[eType];
}

/* The number of bytes of the character at z, of which n are left; 0 if it is not
** well-formed UTF-8. */
static int charBytes(const char *z, i64 n) {
  unsigned char c = (unsigned char)*z;
  int nByte = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
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

/* Whether a byte may not stand in a text that people read: a control character
** that is no white space. */
static int isControl(char c) {
  return ((unsigned char)c < 0x20 && strchr("\t\n\r", c) == 0) || c == 0 ||
         c == 0x7f;
}

char *bxReportPlain(const char *z, i64 n, BxErr *pErr) {
  sqlite3_str *pOut;
  char *zOut;
  i64 i = 0, iFrom = 0;
  if (pErr->rc != SQLITE_OK) return 0;
  pOut = sqlite3_str_new(0);
  while (i < n) {
    int nByte = charBytes(z + i, n - i);
    if (nByte == 0 || (nByte == 1 && isControl(z[i])) ||
        (nByte == 2 && memcmp(z + i, "\xd8\x9c", 2) == 0) ||
        (nByte == 3 && isDirection(z + i))) {
      sqlite3_str_append(pOut, z + iFrom, (int)(i - iFrom));
      sqlite3_str_appendall(pOut, zUnknown);
      iFrom = i + (nByte ? nByte : 1);
    }
    i += nByte ? nByte : 1;
  }
  sqlite3_str_append(pOut, z + iFrom, (int)(n - iFrom));
  zOut = bxFinish(pOut, pErr);
  return zOut != 0 ? zOut : bxPrintf(pErr, "%s", "");
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

/* The JSON stands inside an element of HTML, so that < is an escape in it. */
void bxReportJson(sqlite3_str *pOut, const char *z, i64 n) {
  i64 i = 0, iFrom = 0;
  sqlite3_str_appendchar(pOut, 1, '"');
  while (i < n) {
    int nByte = charBytes(z + i, n - i);
    int bOdd = nByte == 1 && ((unsigned char)z[i] < 0x20 || z[i] == 0x7f ||
                                 strchr("\"\\<>&", z[i]) != 0);
    int bLine = nByte == 3 && isDirection(z + i);
    if (nByte == 0 || bOdd || bLine) {
      sqlite3_str_append(pOut, z + iFrom, (int)(i - iFrom));
      if (nByte == 0) {
        sqlite3_str_appendall(pOut, zUnknown);
      } else if (bLine) {
        sqlite3_str_appendf(pOut, "\\u20%02x",
            ((unsigned char)z[i + 1] & 1) << 6 |
                ((unsigned char)z[i + 2] & 63));
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

void bxReportEscape(sqlite3_str *pOut, const char *z) {
  size_t n;
  for (; *z; z++) {
    n = strcspn(z, "&<>\"'");
    sqlite3_str_append(pOut, z, (int)n);
    z += n;
    if (*z == 0) return;
    sqlite3_str_appendf(pOut, "&#%d;", *z);
  }
}

void bxReportTime(sqlite3_str *pOut, i64 iTime, int bIso) {
  char zIso[25];
  if (iTime < 0 || iTime > BX_MAX_TIME) {
    sqlite3_str_appendf(pOut, "%lld", iTime);
    return;
  }
  bxIso(iTime, zIso);
  if (bIso) {
    sqlite3_str_appendall(pOut, zIso);
  } else {
    sqlite3_str_appendf(pOut, "%.10s %.12s UTC", zIso, zIso + 11);
  }
}

/* Two units: who reads hours does not look for milliseconds. */
void bxReportDuration(sqlite3_str *pOut, i64 iMs) {
  i64 s = llabs(iMs / 1000);
  if (iMs < 0) sqlite3_str_appendchar(pOut, 1, '-');
  if (s < 60) {
    sqlite3_str_appendf(pOut, "%lld.%03lld s", s, llabs(iMs % 1000));
  } else if (s < 3600) {
    sqlite3_str_appendf(pOut, "%lld min %lld s", s / 60, s % 60);
  } else if (s < 86400) {
    sqlite3_str_appendf(pOut, "%lld h %lld min", s / 3600, s / 60 % 60);
  } else {
    sqlite3_str_appendf(pOut, "%,lld d %lld h", s / 86400, s / 3600 % 24);
  }
}

void bxReportSize(sqlite3_str *pOut, i64 nByte) {
  static const char *const azUnit[] = {"KB", "MB", "GB", "TB"};
  double r = (double)nByte / 1000.0;
  int i = 0;
  if (nByte < 1000) {
    sqlite3_str_appendf(pOut, "%lld bytes", nByte);
    return;
  }
  for (; r >= 999.95 && i < 3; i++) r /= 1000.0;
  sqlite3_str_appendf(pOut, "%.1f %s", r, azUnit[i]);
}
