/*
** import_dir.c: rollout_import_dir(folder[, glob]): the files of agents below a folder,
** and what rollout_sources keeps of each. The folder may be one file, for a program that
** looks through folders itself and tells how far it is.
**
** The folders are read in the order of names. Symbolic links are passed over, and what
** is neither a file nor a folder. A file whose size and time are as they were is not
** read. Of a file that has grown only the new end is, if the bytes before it are still
** those of the newest item of its conversation. An error of a file is noted, and ends
** nothing; what the file had written is undone by a savepoint. (In a row of
** blackbox_call there can be none: there an error after the first write of a file is
** one of the call.)
**
** What a file does not say its path may: the conversation and the folder of the work
** (rollout_formats.path), and the time of the file for items without one.
**
** Returns {"files", "read", "bytes", "lines", "items", "new", "bad", "unknown",
** "failed", "errors": [{"path", "reason"}]}; errors has the first 100.
*/
#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* POSIX.1-2008 */
#endif
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#ifdef __APPLE__
#define st_mtim st_mtimespec
#endif

#define MAX_FOLDERS 200 /* folders in folders */

/* A file, whatever its name. */
typedef struct ImportOwn {
  dev_t iDevice;
  ino_t iFile;
} ImportOwn;

typedef struct ImportDir {
  BxCall *pCall;
  BxStmts *pHome;
  const RolloutRules *pRules;
  const char *zGlob; /* NULL: the names of the files that agents write */
  size_t nRoot;      /* bytes of the folder's own path */
  char *zUnknown;    /* the error of a file of no format */
  i64 iNow, nFile, nRead, nByte, nUnknown, nFailed, nListed;
  ImportReport all; /* the sums */
  ImportOwn *aOwn;  /* the files of the databases of this connection */
  i64 nOwn, nOwnAlloc;
  ImportKnown known;
  sqlite3_str *pErrors;
  BxErr *pErr;
} ImportDir;

/* What rollout_sources has of a file. */
typedef struct ImportSource {
  int bSame;    /* as it was when it was read without an error ... */
  int bUnknown; /* ... but that no format knows it */
  char *zFormat, *zId;
  i64 iOffset;
} ImportSource;

/*----------------------------------------------------------------- paths ----*/

/* Whether a name is as a pattern says, which has at most one * or {name}. */
static int isSegment(const char *zPat, size_t nPat, const char *z, size_t n,
    RolloutSlice *aOut) {
  size_t nBefore = 0, nAfter;
  const char *zAfter;
  assert(memchr(zPat, '/', nPat) == 0 && memchr(z, '/', n) == 0);
  while (nBefore < nPat && zPat[nBefore] != '*' && zPat[nBefore] != '{') {
    nBefore++;
  }
  if (nBefore == nPat) return n == nPat && memcmp(zPat, z, n) == 0;
  zAfter = zPat[nBefore] == '*' ? zPat + nBefore : memchr(zPat, '}', nPat);
  if (zAfter == 0) return 0;
  nAfter = (size_t)(zPat + nPat - ++zAfter);
  if (n <= nBefore + nAfter || memcmp(zPat, z, nBefore) != 0 ||
      memcmp(zAfter, z + n - nAfter, nAfter) != 0) {
    return 0;
  }
  if (zPat[nBefore] == '{') {
    char c = zPat[nBefore + 1];
    RolloutSlice *pOut = &aOut[c == 'i'   ? BX_PATH_ID
                               : c == 'a' ? BX_PATH_AGENT
                                          : BX_PATH_CWD];
    pOut->z = z + nBefore;
    pOut->n = (i64)(n - nBefore - nAfter);
  }
  return 1;
}

/* Whether a path ends as one pattern says. What begins with {cwd} takes the rest. */
static int isPath(const char *zPat, size_t nPat, const char *zPath,
    RolloutSlice aOut[BX_PATH_NAMES]) {
  size_t n = strlen(zPath);
  memset(aOut, 0, BX_PATH_NAMES * sizeof(*aOut));
  assert(nPat > 0 || *zPath != 0);
  for (;;) {
    size_t iPat = nPat, i = n;
    while (iPat > 0 && zPat[iPat - 1] != '/') iPat--;
    if (iPat == 0 && nPat == 5 && memcmp(zPat, "{cwd}", 5) == 0) {
      aOut[BX_PATH_CWD].z = zPath;
      aOut[BX_PATH_CWD].n = (i64)n;
      return n > 0;
    }
    while (i > 0 && zPath[i - 1] != '/') i--;
    if (!isSegment(zPat + iPat, nPat - iPat, zPath + i, n - i, aOut)) return 0;
    if (iPat == 0) return 1;
    if (i == 0) return 0;
    nPat = iPat - 1;
    n = i - 1;
  }
}

/* A name in a path, in which %2F stands for a slash and the like. */
static char *decodeName(RolloutSlice name, BxErr *pErr) {
  char *z = bxPrintf(pErr, "%.*s", (int)name.n, name.z), *zOut = z;
  const char *zIn;
  for (zIn = z; zIn != 0 && *zIn; zIn++) {
    unsigned c;
    if (*zIn == '%' && sscanf(zIn + 1, "%2x", &c) == 1 && c >= ' ' && c < 127) {
      *zOut++ = (char)c;
      zIn += 2;
    } else {
      *zOut++ = *zIn;
    }
  }
  assert(zOut - z <= name.n);
  if (z != 0) *zOut = 0;
  return z;
}

int bxImportPath(
    const char *zPatterns, const char *zPath, char **az, BxErr *pErr) {
  RolloutSlice aOut[BX_PATH_NAMES];
  int i;
  if (zPatterns == 0 || zPath == 0) return 0;
  for (;;) {
    size_t n = strcspn(zPatterns, "|");
    if (isPath(zPatterns, n, zPath, aOut)) break;
    if (zPatterns[n] == 0) return 0;
    zPatterns += n + 1;
  }
  for (i = 0; az != 0 && i < BX_PATH_NAMES; i++) {
    if (aOut[i].z != 0) az[i] = decodeName(aOut[i], pErr);
  }
  return 1;
}

void bxImportReadPath(Import *p) {
  const char *zPatterns = p->pFormat ? p->pFormat->az[ROLLOUT_FORMAT_PATH] : 0;
  const char *zName, *zDot;
  if (p->zPath == 0) return;
  assert(p->zPath[0] != 0 && p->azPath[BX_PATH_ID] == 0);
  bxImportPath(zPatterns, p->zPath, p->azPath, p->pErr);
  if (p->zName != 0 || p->pErr->rc != SQLITE_OK) return;
  p->zName = p->azPath[BX_PATH_ID];
  p->zAgent = p->azPath[BX_PATH_AGENT];
  p->azPath[BX_PATH_ID] = p->azPath[BX_PATH_AGENT] = 0;
  if (p->zName != 0) return;
  zName = strrchr(p->zPath, '/');
  zName = zName ? zName + 1 : p->zPath;
  zDot = strchr(zName, '.');
  if (zDot == 0) zDot = zName + strlen(zName);
  if (zDot - zName >= 36) {
    char zId[37];
    if (bxRolloutUuid(zDot - 36, 36, zId))
      p->zName = bxPrintf(p->pErr, "%s", zId);
  }
  if (p->zName == 0) p->zName = bxPrintf(p->pErr, "%s", p->zPath);
}

/*--------------------------------------------------------------- sources ----*/

/* An item whose own bytes end the file, which therefore goes on after it. */
#define SOURCE_END "coalesce(CAST(d.after AS TEXT), '}' || char(10))"

/* Whether a file is compressed, in the way of Codex. */
static int isZipped(const char *zPath) {
  size_t n = strlen(zPath);
  return n > 4 && strcmp(zPath + n - 4, ".zst") == 0;
}

/* Only lines, each an item, are read from where the last one ended. */
static int isTailed(const Import *p) {
  return p->pFormat != 0 && p->zDocument == 0 && !p->bProse &&
         !p->pFormat->bSpans && bxImportItems(p) == 0 && !isZipped(p->zPath);
}

void bxImportNoteSource(Import *p) {
  static const char zRead[] =
      "INSERT INTO main.rollout_sources(path, format, size, offset, id, mtime, "
      "error, cwd) SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, (SELECT a.cwd FROM "
      "main.rollout__heads AS h JOIN main.rollout__about AS a ON a.no = h.no "
      "WHERE h.id = ?5) WHERE 1 ON CONFLICT (path) DO UPDATE SET (format, "
      "size, offset, id, mtime, error, cwd) = (excluded.format, excluded.size, "
      "excluded.offset, excluded.id, excluded.mtime, excluded.error, "
      "excluded.cwd)";
  const ImportSession *pPart = p->pPart   ? p->pPart
                               : p->nPart ? p->apPart[0]
                                          : 0;
  BxErr unknown = {SQLITE_OK, 0};
  assert(p->zPath != 0 && p->nSize >= 0);
  if (p->pErr->rc != SQLITE_OK || pPart == 0) return;
  if (p->pFormat == 0) bxImportUnknown(p->pRules, &unknown);
  bxStmtExec(p->pHome, zRead, p->pErr, "ttiitit", p->zPath,
      bxImportFormatName(p), p->nSize, isTailed(p) ? p->nSize : (i64)0,
      pPart->work.zId, p->iWritten, unknown.zMsg);
  bxErrClear(&unknown);
}

void bxImportUnknown(const RolloutRules *pRules, BxErr *pErr) {
  bxFail(pErr, SQLITE_CONSTRAINT,
      "ValidationError: Invalid rollout file: no format of rollout_formats (as "
      "of %08x) knows it; INSERT one, or give 'unknown' as its format to keep "
      "all lines as they are",
      (unsigned)pRules->hFormat);
}

void bxImportForgetUnknown(Import *p) {
  static const char zIs[] = "SELECT id FROM main.rollout_sources WHERE path ="
                            " ?1 AND format = 'unknown'";
  static const char zForget[] =
      "DELETE FROM main.rollout__heads WHERE id = ?1 AND EXISTS "
      "(SELECT 1 FROM main.rollout__about AS a WHERE a.no = "
      "rollout__heads.no AND a.format = 'unknown')";
  char *zId = bxQueryText(p->pHome, zIs, p->pErr, "t", p->zPath);
  assert(p->zPath != 0 && p->pFormat != 0);
  /* (To prepare this takes as long as to import a line.) */
  if (zId != 0) bxStmtExec(p->pHome, zForget, p->pErr, "t", zId);
  sqlite3_free(zId);
}

/* How files begin that are not text, and what to do with them. */
static const struct {
  const char *zBegin;
  int n;
  const char *zReason;
} aBinary[] = {
    {"SQLite format 3", 16,
        "it is a database of SQLite; ATTACH it, and call "
        "rollout_import_from()"},
    {"\x1f\x8b", 2,
        "it is compressed with gzip; decompress it, and import that"},
    {"\x28\xb5\x2f\xfd", 4,
        "it is compressed with zstd; give it a name that ends with .zst"},
    {"PK\003\004", 4,
        "it is a ZIP archive; unpack it, and import what is in it"},
};

/* Why a file that begins so cannot be read, or NULL. */
static const char *isBinary(const char *z, i64 n) {
  size_t i;
  for (i = 0; i < sizeof(aBinary) / sizeof(*aBinary); i++) {
    if (n >= aBinary[i].n &&
        memcmp(z, aBinary[i].zBegin, (size_t)aBinary[i].n) == 0) {
      return aBinary[i].zReason;
    }
  }
  return 0;
}

/* A format of files that cannot be read as lines, to which a path belongs; or NULL. */
static const RolloutFormat *closedFormat(
    const RolloutRules *p, const char *zPath, BxErr *pErr) {
  i64 i;
  for (i = 0; i < p->nFormat; i++) {
    const RolloutFormat *a = &p->aFormat[i];
    if ((a->bClosed || a->bStored) &&
        bxImportPath(a->az[ROLLOUT_FORMAT_PATH], zPath, 0, pErr)) {
      return a;
    }
  }
  return 0;
}

char *bxImportClosed(const RolloutRules *pRules, const char *zPath,
    const RolloutSlice *pBegin, const char **pzFormat, BxErr *pErr) {
  const RolloutFormat *p = closedFormat(pRules, zPath, pErr);
  const char *zFormat = p ? p->az[ROLLOUT_FORMAT_NAME] : 0;
  const char *zReason = pBegin ? isBinary(pBegin->z, pBegin->n) : 0;
  *pzFormat = zFormat;
  if (p != 0 && p->bStored) {
    return bxPrintf(pErr,
        "it is a database of the format %s; ATTACH it AS theirs, and SELECT "
        "rollout_import_from('%s', 'theirs')",
        zFormat, bxImportProgram(zFormat));
  }
  if (p != 0) {
    return bxPrintf(pErr,
        "it is of the format %s, which is encrypted, or for its own program "
        "alone; nothing of it can be read",
        zFormat);
  }
  return zReason ? bxPrintf(pErr, "%s", zReason) : 0;
}

/* Notes an error of a file, whose format may be NULL, and lists it. */
static void fileFailed(ImportDir *p, const char *zPath, i64 nSize, i64 iTime,
    const char *zFormat, const char *zReason) {
  static const char zFailedFile[] =
      "INSERT INTO main.rollout_sources(path, size, mtime, error, format) "
      "VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (path) DO UPDATE SET (size, "
      "mtime, error, format) = (excluded.size, excluded.mtime, excluded.error, "
      "coalesce(excluded.format, format))";
  if (p->pErr->rc != SQLITE_OK) return;
  assert(zReason != 0 && *zReason != 0);
  if (nSize >= 0) {
    bxStmtExec(p->pHome, zFailedFile, p->pErr, "tiitt", zPath, nSize, iTime,
        zReason, zFormat);
  }
  if (p->nListed++ >= IMPORT_LISTED) return;
  sqlite3_str_appendf(p->pErrors, "%s{\"path\":", p->nListed > 1 ? "," : "");
  bxJsonAppend(p->pErrors, zPath, (int)strlen(zPath));
  sqlite3_str_appendall(p->pErrors, ",\"reason\":");
  bxJsonAppend(p->pErrors, zReason, (int)strlen(zReason));
  sqlite3_str_appendchar(p->pErrors, 1, '}');
}

/* Looks up a file. */
static void findSource(
    ImportDir *p, const char *zPath, i64 nSize, i64 iTime, ImportSource *pOut) {
  static const char zSource[] =
      "SELECT size IS ?2 AND mtime IS ?3 AND (error IS NULL OR error IS ?4), "
      "error IS ?4, format, id, iif(offset <= ?2, offset, 0) "
      "FROM main.rollout_sources WHERE path = ?1";
  sqlite3_stmt *pRow = bxStmt(p->pHome, zSource, p->pErr);
  memset(pOut, 0, sizeof(*pOut));
  assert(nSize >= 0 && iTime >= 0 && p->zUnknown != 0);
  bxBind(pRow, p->pErr, "tiit", zPath, nSize, iTime, p->zUnknown);
  if (bxStep(pRow, p->pErr)) {
    pOut->bSame = sqlite3_column_int(pRow, 0);
    pOut->bUnknown = sqlite3_column_int(pRow, 1);
    pOut->iOffset = sqlite3_column_int64(pRow, 4);
    if (!pOut->bSame && pOut->iOffset > 0) {
      pOut->zFormat = bxColumnCopy(pRow, 2, p->pErr);
      pOut->zId = bxColumnCopy(pRow, 3, p->pErr);
    }
  }
  bxReset(pRow, p->pErr);
}

/*----------------------------------------------------------------- files ----*/

/* Reads until there are n bytes, or no more. Returns their number, or -1. */
static i64 readAllOf(int fd, char *z, i64 iFrom, i64 n) {
  i64 nDone = 0;
  while (nDone < n) {
    ssize_t nRead =
        pread(fd, z + nDone, (size_t)(n - nDone), (off_t)(iFrom + nDone));
    if (nRead < 0 && errno == EINTR) continue;
    if (nRead < 0) return -1;
    if (nRead == 0) break;
    nDone += nRead;
  }
  return nDone;
}

/* Why what is open is not read, or NULL. The path may have become something else since
** it was seen, so that it was opened without waiting for a pipe. */
static const char *whyNotRead(int fd, const char *zPath, i64 iFrom) {
  struct stat info;
  char aBegin[16];
  const char *zReason;
  i64 n;
  if (fstat(fd, &info) != 0) return strerror(errno);
  if (!S_ISREG(info.st_mode)) return "it is no file any more";
  n = iFrom == 0 ? readAllOf(fd, aBegin, 0, sizeof(aBegin)) : 0;
  zReason = isBinary(aBegin, n);
  return zReason != 0 && isZipped(zPath) && aBegin[0] == '\x28' ? 0 : zReason;
}

/* Reads at most n bytes of a file from a position on, to sqlite3_free(). *pn is their
** number. NULL on error; then *pzReason says why, unless memory has run out. */
static char *readBytes(
    const char *zPath, i64 iFrom, i64 *pn, const char **pzReason, BxErr *pErr) {
  char *z = 0;
  i64 n = 0;
  int fd;
  *pzReason = 0;
  assert(iFrom >= 0 && *pn >= 0);
  if (*pn > ROLLOUT_MAX_TEXT) {
    *pzReason = "it has more than 1000000000 bytes to import; divide it";
    return 0;
  }
  fd = open(zPath, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    *pzReason = strerror(errno);
    return 0;
  }
  *pzReason = whyNotRead(fd, zPath, iFrom);
  if (*pzReason == 0) {
    z = bxCheckMem(sqlite3_malloc64((sqlite3_uint64)*pn + 1), pErr);
  }
  if (z != 0) n = readAllOf(fd, z, iFrom, *pn);
  if (n < 0) *pzReason = strerror(errno);
  if (z != 0 && n == 0 && *pn > 0) *pzReason = "it became empty meanwhile";
  close(fd);
  if (z != 0 && *pzReason == 0) {
    z[n] = 0;
    *pn = n;
    return z;
  }
  sqlite3_free(z);
  return 0;
}

/* What a file may become when it is decompressed: text has seldom more than 50 times as
** many bytes, but a file that is made to fill the memory has thousands of times. */
#define UNZIP_TIMES 200
#define UNZIP_BYTES 67108864 /* to which any file may grow */

/* The text of a file that is compressed, to sqlite3_free(). Frees z, of *pn bytes. Its
** frames may say no size, so memory grows with what comes out. */
static char *unzipFile(char *z, i64 *pn, const char **pzReason, BxErr *pErr) {
  ZSTD_inBuffer in = {z, (size_t)*pn, 0};
  ZSTD_outBuffer out = {0, 0, 0};
  ZSTD_DCtx *pUnzip = bxZstdDecompressor(pErr);
  sqlite3_uint64 nMost = UNZIP_TIMES * (sqlite3_uint64)*pn;
  void *pRoom;
  size_t rc = 1;
  assert(z != 0 && *pn >= 0);
  if (nMost < UNZIP_BYTES) nMost = UNZIP_BYTES;
  if (nMost > ROLLOUT_MAX_TEXT) nMost = ROLLOUT_MAX_TEXT;
  while (pUnzip != 0 && pErr->rc == SQLITE_OK && *pzReason == 0 &&
         (rc > 0 || in.pos < in.size)) {
    size_t nIn = in.pos, nOut = out.pos;
    if (out.pos == out.size) {
      sqlite3_uint64 nRoom =
          out.size ? out.size + out.size / 2 : 65536 + 4 * in.size;
      if (nRoom > nMost) nRoom = nMost;
      if (nRoom <= out.size) {
        *pzReason = nMost == ROLLOUT_MAX_TEXT
                        ? "it is compressed, and has more than 1000000000 "
                          "bytes to import; divide it"
                        : "it is compressed, and has more than 67108864 bytes "
                          "and 200 times its own to import; decompress it, "
                          "and import that";
        break;
      }
      pRoom = bxCheckMem(sqlite3_realloc64(out.dst, nRoom + 1), pErr);
      if (pRoom == 0) break;
      out.dst = pRoom;
      out.size = (size_t)nRoom;
    }
    rc = ZSTD_decompressStream(pUnzip, &out, &in);
    if (ZSTD_isError(rc)) {
      if (ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation) {
        bxCheckMem(0, pErr);
      } else {
        *pzReason = "it is compressed, and damaged";
      }
    } else if (rc > 0 && in.pos == nIn && out.pos == nOut) {
      *pzReason = "it is compressed, and cut off";
    }
  }
  ZSTD_freeDCtx(pUnzip);
  sqlite3_free(z);
  if (pErr->rc == SQLITE_OK && *pzReason == 0 && out.dst != 0) {
    *pn = (i64)out.pos;
    ((char *)out.dst)[out.pos] = 0;
    pRoom = sqlite3_realloc64(out.dst, (sqlite3_uint64)out.pos + 1);
    return pRoom != 0 ? pRoom : out.dst;
  }
  sqlite3_free(out.dst);
  return 0;
}

/* Reads what follows the newest item of the file's conversation. Returns NULL if
** that is not what stands there now, and then all of the file must be read. */
static char *readTail(ImportDir *p, const char *zPath, i64 nSize,
    const ImportSource *pSource, i64 *piSkip, i64 *pn) {
  static const char zEnd[] =
      "SELECT d.payload, CAST(" SOURCE_END " AS BLOB) FROM "
      "main.rollout__heads AS h JOIN main.rollout__items AS d ON d.id = (h.no "
      "<< 32) + h.last_sequence WHERE h.id = ?1 AND h.behind IS NULL AND "
      "d.quiet IS NULL AND d.changed IS NULL AND d.payload IS NOT NULL AND "
      "trim(" SOURCE_END ", '} ' || char(13, 10)) = '' AND substr(" SOURCE_END
      ", -1) = char(10)";
  sqlite3_stmt *pRow;
  const char *zReason;
  char *z = 0;
  assert(pSource->iOffset >= 0 && pSource->iOffset <= nSize);
  if (pSource->zId == 0 || pSource->iOffset == 0) return 0;
  pRow = bxStmt(p->pHome, zEnd, p->pErr);
  bxBind(pRow, p->pErr, "t", pSource->zId);
  if (bxStep(pRow, p->pErr)) {
    const char *zItem = sqlite3_column_blob(pRow, 0);
    const char *zAfter = sqlite3_column_blob(pRow, 1);
    i64 nItem = sqlite3_column_bytes(pRow, 0);
    i64 nAfter = sqlite3_column_bytes(pRow, 1), n = nItem + nAfter;
    if (zItem != 0 && zAfter != 0 && n <= pSource->iOffset) {
      *piSkip = n;
      *pn = nSize - pSource->iOffset + n;
      z = readBytes(zPath, pSource->iOffset - n, pn, &zReason, p->pErr);
      if (z != 0 && (*pn <= n || memcmp(z, zItem, (size_t)nItem) != 0 ||
                        memcmp(z + nItem, zAfter, (size_t)nAfter) != 0)) {
        sqlite3_free(z);
        z = 0;
      }
    }
  }
  bxReset(pRow, p->pErr);
  return z;
}

/* Whether an error is one of the file, and not of the call. */
static int isOfFile(const BxErr *pErr) {
  switch (pErr->rc & 0xff) {
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_TOOBIG:
    case SQLITE_MISUSE: return pErr->zMsg != 0;
    default: return 0;
  }
}

/* Imports the text of a file, from z + iSkip on, or notes why not. */
static void importText(ImportDir *p, const char *zPath, const char *z, i64 n,
    i64 iSkip, const ImportSource *pTail, i64 nSize, i64 iTime) {
  static const char zFileBegin[] = "SAVEPOINT \"a file of blackbox\"";
  static const char zFileUndo[] = "ROLLBACK TO \"a file of blackbox\"";
  static const char zFileKeep[] = "RELEASE \"a file of blackbox\"";
  int bUndo = p->pCall->pCtx != 0;
  int nChange = sqlite3_total_changes(p->pHome->bx->db);
  ImportReport report;
  BxErr err = {SQLITE_OK, 0};
  Import import;
  assert(iSkip >= 0 && iSkip <= n && (iSkip == 0) == (pTail == 0));
  if (bUndo) bxStmtExec(p->pHome, zFileBegin, p->pErr, "");
  if (p->pErr->rc != SQLITE_OK) return;
  memset(&import, 0, sizeof(import));
  bxImportReportBegin(&report);
  import.pErr = &err;
  import.pReport = &report;
  import.pHome = p->pHome;
  import.pRules = p->pRules;
  import.known = p->known;
  import.zPath = zPath;
  import.z = z + iSkip;
  import.zEnd = z + n;
  import.nSize = nSize;
  import.iNow = p->iNow;
  import.iTime = import.iWritten = iTime;
  import.zTail = pTail ? pTail->zId : 0;
  bxImportRead(&import, pTail ? pTail->zFormat : 0, pTail ? pTail->zId : "");
  if (err.rc != SQLITE_OK &&
      (!isOfFile(&err) ||
          (!bUndo && sqlite3_total_changes(p->pHome->bx->db) != nChange))) {
    bxErrMove(p->pErr, &err);
  }
  if (err.rc != SQLITE_OK && bUndo)
    bxStmtExec(p->pHome, zFileUndo, p->pErr, "");
  if (bUndo) bxStmtExec(p->pHome, zFileKeep, p->pErr, "");
  p->known = import.known;
  if (err.rc != SQLITE_OK) {
    int bUnknown = strcmp(err.zMsg, p->zUnknown) == 0;
    assert(isOfFile(&err));
    bxImportKnownFree(&p->known);
    *(bUnknown ? &p->nUnknown : &p->nFailed) += 1;
    fileFailed(p, zPath, nSize, iTime, 0, err.zMsg);
  } else {
    p->all.nLine += report.nLine;
    p->all.nItem += report.nItem;
    p->all.nNew += report.nNew;
    p->all.nBad += report.nBad;
    if (report.nBad > 0) {
      char *zBad = bxPrintf(p->pErr, "%lld bad lines; line %lld: %s",
          report.nBad, report.iBad, report.zBad);
      if (zBad != 0) fileFailed(p, zPath, -1, 0, 0, zBad);
      sqlite3_free(zBad);
    }
  }
  bxErrClear(&err);
  bxImportReportFree(&report);
}

static void addOwn(ImportDir *p, char *zOwned) {
  struct stat info;
  ImportOwn *pNew;
  if (zOwned != 0 && stat(zOwned, &info) == 0) {
    pNew =
        bxArrayAdd(&p->aOwn, &p->nOwn, &p->nOwnAlloc, sizeof(*pNew), p->pErr);
    if (pNew != 0) *pNew = (ImportOwn){info.st_dev, info.st_ino};
  }
  sqlite3_free(zOwned);
}

/* Notes the files of the databases of this connection, with those of WAL mode. To open
** and close one of them would give back the locks that SQLite has on it. */
static void findOwn(ImportDir *p) {
  static const char zFiles[] =
      "SELECT file FROM pragma_database_list WHERE file <> ''";
  sqlite3_stmt *pRow = bxStmt(p->pHome, zFiles, p->pErr);
  while (bxStep(pRow, p->pErr)) {
    const char *zFile = bxColumnText(pRow, 0, p->pErr);
    if (zFile == 0) break;
    addOwn(p, bxPrintf(p->pErr, "%s", zFile));
    addOwn(p, bxPrintf(p->pErr, "%s-shm", zFile));
  }
  bxReset(pRow, p->pErr);
}

static int isOwn(const ImportDir *p, const struct stat *pStat) {
  i64 i;
  for (i = 0; i < p->nOwn; i++) {
    if (p->aOwn[i].iFile == pStat->st_ino &&
        p->aOwn[i].iDevice == pStat->st_dev) {
      return 1;
    }
  }
  return 0;
}

/* Imports a file, if it is not as it was. */
static void importFile(
    ImportDir *p, const char *zPath, const struct stat *pStat) {
  i64 nSize = (i64)pStat->st_size, n = nSize, iSkip = 0;
  i64 iTime =
      (i64)pStat->st_mtim.tv_sec * 1000 + pStat->st_mtim.tv_nsec / 1000000;
  const char *zReason = 0;
  ImportSource source;
  char *z;
  char *zClosed;
  const char *zFormat;
  p->nFile++;
  if (iTime < 0) iTime = 0;
  if (iTime > BX_MAX_TIME) iTime = BX_MAX_TIME;
  if (isOwn(p, pStat)) {
    p->nFailed++;
    fileFailed(p, zPath, nSize, iTime, 0, "a database of this connection");
    return;
  }
  zClosed = bxImportClosed(p->pRules, zPath, 0, &zFormat, p->pErr);
  if (zClosed != 0) { /* it may be large, and is not opened */
    p->nFailed++;
    fileFailed(p, zPath, nSize, iTime, zFormat, zClosed);
    sqlite3_free(zClosed);
    return;
  }
  findSource(p, zPath, nSize, iTime, &source);
  if (source.bSame) {
    p->nUnknown += source.bUnknown;
  } else if (p->pErr->rc == SQLITE_OK) {
    z = readTail(p, zPath, nSize, &source, &iSkip, &n);
    if (z == 0 && p->pErr->rc == SQLITE_OK) {
      iSkip = 0;
      n = nSize;
      z = readBytes(zPath, 0, &n, &zReason, p->pErr);
      nSize = z ? n : nSize;
      if (z != 0 && isZipped(zPath)) {
        z = unzipFile(z, &n, &zReason, p->pErr);
      }
    }
    if (z != 0) {
      p->nRead++;
      p->nByte += n - iSkip;
      importText(p, zPath, z, n, iSkip, iSkip > 0 ? &source : 0, nSize, iTime);
    } else if (p->pErr->rc == SQLITE_OK) {
      p->nFailed++;
      fileFailed(p, zPath, nSize, iTime, 0, zReason);
    }
    sqlite3_free(z);
  }
  sqlite3_free(source.zFormat);
  sqlite3_free(source.zId);
}

/*--------------------------------------------------------------- folders ----*/

static int isSessionFile(const ImportDir *p, const char *zPath) {
  const char *zName = strrchr(zPath, '/') + 1;
  assert(strlen(zPath) >= p->nRoot);
  if (p->zGlob != 0) {
    return sqlite3_strglob(
               p->zGlob, strchr(p->zGlob, '/') ? zPath + p->nRoot : zName) == 0;
  }
  return sqlite3_strglob("*.jsonl", zName) == 0 ||
         sqlite3_strglob("*.json", zName) == 0 ||
         sqlite3_strglob("*.jsonl.zst", zName) == 0 ||
         strcmp(zName, ".aider.chat.history.md") == 0 ||
         closedFormat(p->pRules, zPath, p->pErr) != 0;
}

static int comparePaths(const void *p1, const void *p2) {
  return strcmp(*(char *const *)p1, *(char *const *)p2);
}

static void readFolder(ImportDir *p, const char *zFolder, int nDepth);

/* Lists what could not be looked at. U+FFFD stands for what is not UTF-8 in its path. */
static void entryFailed(ImportDir *p, const char *zPath, const char *zReason) {
  i64 n;
  char *zValid = bxImportValid(zPath, (i64)strlen(zPath), &n, p->pErr);
  p->nFailed++;
  if (zValid != 0) fileFailed(p, zValid, -1, 0, 0, zReason);
  sqlite3_free(zValid);
}

/* Imports a file, or those of a folder. */
static void readEntry(ImportDir *p, const char *zPath, int nDepth) {
  struct stat info;
  if (p->pErr->rc != SQLITE_OK) return;
  if (lstat(zPath, &info) != 0) {
    if (errno != ENOENT) entryFailed(p, zPath, strerror(errno));
  } else if (S_ISDIR(info.st_mode) && nDepth >= MAX_FOLDERS) {
    entryFailed(p, zPath, "it is in more than 200 folders; import it alone");
  } else if (S_ISDIR(info.st_mode)) {
    readFolder(p, zPath, nDepth + 1);
  } else if (S_ISREG(info.st_mode) && isSessionFile(p, zPath)) {
    if (bxIsUtf8((const unsigned char *)zPath, (int)strlen(zPath))) {
      importFile(p, zPath, &info);
      return;
    }
    p->nFile++;
    entryFailed(p, zPath, "a file whose name is not UTF-8; rename it");
  }
}

static void readFolder(ImportDir *p, const char *zFolder, int nDepth) {
  DIR *pDir = opendir(zFolder);
  struct dirent *pEntry;
  char **az = 0;
  i64 n = 0, nAlloc = 0, i;
  assert(nDepth >= 0 && nDepth <= MAX_FOLDERS);
  if (pDir == 0) {
    entryFailed(p, zFolder, strerror(errno));
    return;
  }
  while (p->pErr->rc == SQLITE_OK && (pEntry = readdir(pDir)) != 0) {
    const char *zName = pEntry->d_name;
    char **pz;
    if (strcmp(zName, ".") == 0 || strcmp(zName, "..") == 0) continue;
    pz = bxArrayAdd(&az, &n, &nAlloc, sizeof(*pz), p->pErr);
    if (pz != 0) *pz = bxPrintf(p->pErr, "%s/%s", zFolder, zName);
  }
  closedir(pDir);
  if (p->pErr->rc == SQLITE_OK && n > 0) {
    qsort(az, (size_t)n, sizeof(*az), comparePaths);
  }
  for (i = 0; i < n; i++) {
    readEntry(p, az[i], nDepth);
    sqlite3_free(az[i]);
  }
  sqlite3_free(az);
}

/* The path of a folder or a file without symbolic links, so that it is always the same.
** ~ is that of the user. free() it. */
static char *folderPath(const char *zFolder, struct stat *pInfo, BxErr *pErr) {
  const char *zHome = getenv("HOME");
  char *zPath =
      zHome != 0 && zFolder[0] == '~' && (zFolder[1] == '/' || zFolder[1] == 0)
          ? bxPrintf(pErr, "%s%s", zHome, zFolder + 1)
          : bxPrintf(pErr, "%s", zFolder);
  char *zReal = zPath ? realpath(zPath, 0) : 0;
  if (pErr->rc == SQLITE_OK &&
      (zReal == 0 || stat(zReal, pInfo) != 0 ||
          (!S_ISDIR(pInfo->st_mode) && !S_ISREG(pInfo->st_mode)))) {
    bxFail(pErr, SQLITE_CANTOPEN,
        "ValidationError: %Q is not a folder or file that can be read; give "
        "the folder in which an agent keeps its sessions, such as "
        "'~/.claude/projects'",
        zFolder);
  }
  sqlite3_free(zPath);
  return zReal;
}

void bxRolloutImportDir(BxCall *pCall) {
  ImportDir dir, *p = &dir;
  const char *zFolder;
  BxErr unknown = {SQLITE_OK, 0};
  char *zReal, *zErrors;
  struct stat info;
  memset(p, 0, sizeof(*p));
  p->pCall = pCall;
  p->pErr = &pCall->err;
  zFolder = bxText(pCall->aArg[0], "folder", 4096, 0, p->pErr);
  p->zGlob = bxText(bxArg(pCall, 1), "glob", 1000, 1, p->pErr);
  p->pHome = bxRolloutSchema(pCall->bx, p->pErr);
  if (p->pErr->rc != SQLITE_OK) return;
  bxLock(p->pHome, p->pErr);
  p->pRules = bxRolloutRules(p->pHome, 1, p->pErr);
  if (p->pRules == 0) return;
  p->iNow = bxNow();
  zReal = folderPath(zFolder, &info, p->pErr);
  bxImportUnknown(p->pRules, &unknown);
  p->zUnknown = bxCheckMem(unknown.zMsg, p->pErr);
  p->pErrors = sqlite3_str_new(0);
  if (p->pErr->rc == SQLITE_OK) {
    findOwn(p);
    if (S_ISDIR(info.st_mode)) {
      p->nRoot = strlen(zReal) + 1;
      readFolder(p, zReal, 0);
    } else {
      p->nRoot = (size_t)(strrchr(zReal, '/') + 1 - zReal);
      readEntry(p, zReal, 0);
    }
  }
  free(zReal);
  bxFileLimitTend(p->pHome, p->all.nNew, pCall->pCtx == 0, p->pErr);
  bxRolloutExplain(p->pErr, "WriteError: Write failed: ");
  bxImportKnownFree(&p->known);
  sqlite3_free(p->aOwn);
  zErrors = bxStrFinish(p->pErrors, p->pErr);
  if (p->pErr->rc == SQLITE_OK) {
    bxReturnJson(
        pCall, sqlite3_mprintf(
                   "{\"files\":%lld,\"read\":%lld,\"bytes\":%lld,"
                   "\"lines\":%lld,\"items\":%lld,\"new\":%lld,\"bad\":%lld,"
                   "\"unknown\":%lld,\"failed\":%lld,\"errors\":[%s]}",
                   p->nFile, p->nRead, p->nByte, p->all.nLine, p->all.nItem,
                   p->all.nNew, p->all.nBad, p->nUnknown, p->nFailed,
                   zErrors ? zErrors : ""));
  }
  sqlite3_free(zErrors);
  bxErrClear(&unknown);
}
