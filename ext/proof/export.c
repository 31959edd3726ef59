/*
** export.c: what leaves the database: proof_head(), proof_of(kind, key),
** proof_tile(path), proof_export, proof_bundle(kill_switch) and
** proof_pending.
**
** A proof is a JSON object, which can be checked without the database:
**   kind, n   "row", and its number in the log; its leaf is n - 1
**   hash      of the leaf
**   kept      how many rows are no receipts, up to this one
**   fields    [{name, type, salt, hash}]: what the leaf is made of; with kept null if
**             that has gone. An erased field has no salt, NULL neither salt nor hash
**   path      the hashes from the leaf to the root
**   head      the head to which they lead
** The proof of kind 'head' has "noted", an older head, and a path that shows that
** the log of the head begins with that of the older one.
*/
#include "proof.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*----------------------------------------------------------------- head ----*/

/* What waits: rows without leaves, or receipts whose minute is over; or a head that
** was not noted. Those of whole tiles need no note. Where holds stand, rows that came
** later may need a digest. */
enum { ROWS_WAIT = 1, NOTE_WAITS, HOLDS_STAND };
static i64 waits(BxStmts *pHome, BxErr *pErr) {
  static const char zWaits[] =
      "SELECT CASE WHEN (SELECT max(n) FROM main.blackbox__log) <> size"
      "  OR EXISTS (SELECT 1 FROM main.blackbox__open"
      "   WHERE minute BETWEEN 1 AND ?1) THEN 1"
      " WHEN size % 256 > 0 AND NOT EXISTS (SELECT 1 FROM main.blackbox__leaves"
      "  WHERE leaf = -size) THEN 2 END FROM main.blackbox__tree AS t";
  static const char zHolds[] = "SELECT 3 FROM main.retention__in_force LIMIT 1";
  BxErr err = {SQLITE_OK, 0};
  i64 iWaits = bxQueryInt(pHome, zWaits, pErr, "i", bxNow() / 60000 - 1);
  if (iWaits == 0 && pErr->rc == SQLITE_OK) {
    iWaits = bxQueryInt(pHome, zHolds, &err, "");
    bxErrMoveBut(pErr, &err, "no such table");
  }
  return iWaits;
}

static const char zNote[] =
    "INSERT OR IGNORE INTO main.blackbox__leaves(leaf)"
    " SELECT -size FROM main.blackbox__tree WHERE size % 256 > 0";

/* Whether the head can be read without the lock. */
static int isRefused(const BxErr *pErr) {
  int rc = pErr->rc & 0xff;
  return rc == SQLITE_BUSY || rc == SQLITE_LOCKED || rc == SQLITE_READONLY ||
         rc == SQLITE_AUTH;
}

/* In a transaction the lock comes first, because after a read SQLite would not wait
** for it; it is needed only if something waits. The note alone is one statement and
** needs no savepoint: CREATE TABLE notebook AS SELECT proof_head(). Returns whether a
** savepoint is open, which the caller releases when the head is made. */
static int takeForHead(BxCall *p, BxStmts *pHome) {
  BxErr lock = {SQLITE_OK, 0};
  i64 iWaits;
  int bInside = !sqlite3_get_autocommit(p->bx->db);
  assert(p->pDef->flags & BX_OWN); /* the savepoint is its own */
  if (bInside) bxLock(pHome, &lock);
  if (bInside && sqlite3_get_autocommit(p->bx->db)) bxErrMove(&p->err, &lock);
  iWaits = waits(pHome, &p->err);
  if (iWaits == 0 ||
      (iWaits == HOLDS_STAND &&
          (isRefused(&lock) || (p->pCtx != 0 && bxIsWriting(p->bx))))) {
    bxErrClear(&lock);
    return 0;
  }
  bxErrMove(&p->err, &lock);
  if (iWaits == NOTE_WAITS && p->pCtx != 0 && bxIsWriting(p->bx)) {
    bxStmtExec(pHome, zNote, &p->err, "");
    return 0;
  }
  if (p->pCtx != 0) bxSavepoint(p->bx, p->pDef->zName, &p->err);
  if (p->err.rc != SQLITE_OK) return 0;
  bxLock(pHome, &lock);
  if (isRefused(&lock) && iWaits == HOLDS_STAND) {
    bxErrClear(&lock);
    return p->pCtx != 0;
  }
  bxErrMove(&p->err, &lock);
  bxLogNoteHeld(pHome, BX_HELD_MANY, &p->err);
  bxLogProve(pHome, BX_LOG_MOST, &p->err);
  bxStmtExec(pHome, zNote, &p->err, "");
  return p->pCtx != 0;
}

static char *headText(BxLog *pLog, BxErr *pErr) {
  ProofHead head;
  MerkleHash root;
  if (pErr->rc != SQLITE_OK) return 0;
  assert(pLog->zOrigin[0] != 0 && pLog->now.n >= 0);
  root = bxFrontierRoot(&pLog->now);
  memcpy(head.zOrigin, pLog->zOrigin, sizeof(head.zOrigin));
  head.n = pLog->now.n;
  bxBase64(root.a, BX_DIGEST, head.zRoot);
  return bxProofHeadText(&head, pErr);
}

void bxProofHead(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "core", &p->err);
  BxLog log;
  char *zHead;
  int bOpen = 0;
  if (pHome == 0) return;
  if (sqlite3_db_readonly(p->bx->db, pHome->zDb) == 0) {
    bOpen = takeForHead(p, pHome);
  }
  bxLogOpen(&log, pHome, &p->err);
  zHead = headText(&log, &p->err);
  bxRequireKnownFormat(
      p->bx, &p->err); /* not after it, as the leaves may stay */
  if (bOpen) bxRelease(p->bx, &p->err);
  if (zHead != 0) bxReturnText(p, zHead);
}

/*--------------------------------------------------------------- proofs ----*/

static void appendHash(
    sqlite3_str *pOut, const char *zBefore, const unsigned char *a) {
  char zHex[2 * BX_DIGEST + 1];
  bxHex(a, BX_DIGEST, zHex);
  sqlite3_str_appendf(pOut, "%s\"%s\"", zBefore, zHex);
}

/* Ends a text, to sqlite3_free(). */
static char *finishText(sqlite3_str *pOut, BxErr *pErr) {
  if (sqlite3_str_errcode(pOut) == SQLITE_TOOBIG) {
    bxFail(pErr, SQLITE_TOOBIG,
        "TooLargeError: the proofs are longer than a value may be; SELECT line "
        "FROM proof_bundle(kill_switch) returns them row by row");
  }
  return bxStrFinish(pOut, pErr);
}

/* The end of each proof, which becomes the result. */
static void returnProof(
    BxCall *p, BxLog *pLog, sqlite3_str *pOut, const MerklePath *pPath) {
  char *zHead = headText(pLog, &p->err), *zProof;
  int i;
  assert(pPath->n >= 0 && pPath->n <= 128);
  sqlite3_str_appendall(pOut, ",\"path\":[");
  for (i = 0; i < pPath->n; i++) {
    appendHash(pOut, i > 0 ? "," : "", pPath->a[i].a);
  }
  sqlite3_str_appendall(pOut, "],\"head\":");
  if (zHead != 0) bxJsonAppend(pOut, zHead, (int)strlen(zHead));
  sqlite3_str_appendchar(pOut, 1, '}');
  sqlite3_free(zHead);
  zProof = finishText(pOut, &p->err);
  if (zProof != 0) bxReturnJson(p, zProof);
}

/* That the log begins with that of an older head. */
static void proveHead(BxCall *p, BxLog *pLog) {
  ProofHead old;
  MerklePath path = {0, {{{0}}}};
  sqlite3_str *pOut;
  char *zDiffers, *zOld;
  bxProofHeadRead(p->aArg[1], &old, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  zDiffers = bxProofHeadDiffers(pLog, &old, &p->err);
  if (zDiffers != 0) {
    bxFail(&p->err, SQLITE_CONSTRAINT,
        "ProofError: there is no such proof: %s; SELECT * FROM proof_verify() "
        "lists more",
        zDiffers);
    sqlite3_free(zDiffers);
  }
  if (old.n > 0 && p->err.rc == SQLITE_OK) {
    bxMerkleConsistency(&pLog->tree, old.n, pLog->now.n, &path, &p->err);
  }
  zOld = bxProofHeadText(&old, &p->err);
  if (zOld == 0) return;
  pOut = sqlite3_str_new(p->bx->db);
  sqlite3_str_appendall(pOut, "{\"kind\":\"head\",\"noted\":");
  bxJsonAppend(pOut, zOld, (int)strlen(zOld));
  sqlite3_free(zOld);
  returnProof(p, pLog, pOut, &path);
}

/* Reads a row as its leaf has it. Returns 0 if that has gone: the row was folded, or
** was a pin that has ended. *pHash is what the tree has. */
static int readLeaf(BxLog *pLog, i64 iLeaf, BxLeaf *pLeaf, MerkleHash *pHash,
    sqlite3_str *pShown, BxErr *pErr) {
  assert(iLeaf >= 0 && iLeaf < pLog->now.n);
  pLog->tree.xGet(&pLog->tree, 0, iLeaf, pHash, pErr);
  if (!bxLogLeafOf(pLog->p, iLeaf + 1, pLeaf, pShown, pErr)) return 0;
  if (bxLogIsLeaf(pLog->p, pLeaf, pHash, pErr)) return 1;
  if (pLeaf->ePin == BX_NO_PIN || pLeaf->ePin == BX_PIN_HERE) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: row %lld of the log, or what it pins, is not what "
        "its leaf says, so that there is no proof of it; SELECT * FROM "
        "proof_verify() lists what is wrong",
        iLeaf + 1);
  }
  return 0;
}

/* That a row is in the log; with the values of its fields, or with their hashes. */
static void proveLeaf(BxCall *p, BxLog *pLog, i64 iLeaf, int bValues) {
  BxLeaf leaf;
  MerkleHash hash;
  MerklePath path = {0, {{{0}}}};
  sqlite3_str *pOut = sqlite3_str_new(p->bx->db);
  int i, bThere;
  sqlite3_str_appendf(pOut,
      "{\"kind\":\"row\",\"n\":%lld,\"kept\":%lld,\"fields\":[", iLeaf + 1,
      bxLogKept(pLog->p, iLeaf, &p->err));
  bThere = readLeaf(pLog, iLeaf, &leaf, &hash, bValues ? pOut : 0, &p->err);
  for (i = 0; i < leaf.nField && bThere && !bValues; i++) {
    bxLogFieldJson(pOut, &leaf.aField[i], 0, 0);
  }
  if (!bThere) {
    sqlite3_str_reset(pOut);
    sqlite3_str_appendf(pOut,
        "{\"kind\":\"row\",\"n\":%lld,\"kept\":null,\"fields\":null",
        iLeaf + 1);
  }
  appendHash(pOut, bThere ? "],\"hash\":" : ",\"hash\":", hash.a);
  bxMerkleInclusion(&pLog->tree, iLeaf, pLog->now.n, &path, &p->err);
  returnProof(p, pLog, pOut, &path);
}

/* The row of the log that kind and key name, 0 if there is none with a leaf. */
static i64 rowOf(BxCall *p, BxLog *pLog, const char *zKind) {
  static const char zPin[] =
      "SELECT n FROM main.blackbox__log WHERE subject = ?1"
      " AND kind IN ('pin', 'unpin') AND n = (SELECT max(n)"
      "  FROM main.blackbox__log WHERE subject = ?1 AND kind IN ('pin', "
      "'unpin')) AND kind = 'pin'";
  static const char zRow[] = "SELECT n FROM main.blackbox__log WHERE n = ?1";
  i64 n;
  if (strcmp(zKind, "leaf") == 0) {
    return bxInt(p->aArg[1], "key", 0, BX_LOG_MOST, &p->err) + 1;
  }
  if (strcmp(zKind, "row") == 0 || strcmp(zKind, "values") == 0) {
    n = bxInt(p->aArg[1], "key", 1, BX_LOG_MOST, &p->err);
    return bxQueryInt(pLog->p, zRow, &p->err, "i", n);
  }
  if (strcmp(zKind, "pin") == 0 || strcmp(zKind, "evidence") == 0) {
    const char *zId = bxText(p->aArg[1], "key", 100000, 0, &p->err);
    return bxQueryInt(pLog->p, zPin, &p->err, "t", zId);
  }
  bxRefuse(&p->err,
      "ValidationError: kind must be row, values, pin, leaf or head, got %s",
      p->aArg[0]);
  return 0;
}

void bxProofOf(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "core", &p->err);
  const char *zKind = bxText(p->aArg[0], "kind", 100, 0, &p->err);
  BxLog log;
  i64 n;
  if (p->err.rc != SQLITE_OK) return;
  bxLogOpen(&log, pHome, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  if (strcmp(zKind, "head") == 0) {
    proveHead(p, &log);
    return;
  }
  n = rowOf(p, &log, zKind);
  if (n <= 0 || n > log.now.n) {
    bxRefuse(&p->err,
        "NotFoundError: the log has no leaf for the key %s; SELECT * FROM "
        "blackbox_log lists the rows, and SELECT proof_head() gives a leaf to "
        "each",
        p->aArg[1]);
  }
  if (p->err.rc == SQLITE_OK) {
    proveLeaf(p, &log, n - 1, strcmp(zKind, "values") == 0);
  }
}

/*---------------------------------------------------------------- tiles ----*/

#define ENTRIES (-1)

/* A part of the log: hashes of a level, or the bytes of leaves. */
typedef struct Tile {
  i64 nLevel; /* or ENTRIES */
  i64 iTile;
  i64 nWidth;
} Tile;

/* Reads up to nMost digits. Returns their end, or NULL if there is none. */
static const char *readDigits(const char *z, int nMost, i64 *pn) {
  int i = 0;
  for (*pn = 0; i < nMost && z[i] >= '0' && z[i] <= '9'; i++) {
    *pn = *pn * 10 + z[i] - '0';
  }
  return i > 0 ? z + i : 0;
}

/* Reads tile/<level>/<number> or tile/entries/<number>, and .p/<width> for a part.
** A number is written in groups of three digits, x before all but the last. */
static int readPath(const char *z, Tile *pOut) {
  const char *zEnd;
  i64 n;
  int nGroup = 0;
  pOut->nLevel = ENTRIES;
  pOut->iTile = 0;
  pOut->nWidth = BX_LOG_TILE;
  if (strncmp(z, "tile/", 5) != 0) return 0;
  z += 5;
  if (strncmp(z, "entries/", 8) == 0) {
    z += 8;
  } else {
    z = readDigits(z, 2, &pOut->nLevel);
    if (z == 0 || *z++ != '/') return 0;
  }
  while (nGroup++ < 5) {
    int bMore = *z == 'x';
    z += bMore;
    zEnd = readDigits(z, 3, &n);
    if (zEnd != z + 3) return 0;
    pOut->iTile = pOut->iTile * 1000 + n;
    z = zEnd;
    if (!bMore) break;
    if (*z++ != '/') return 0;
  }
  if (strncmp(z, ".p/", 3) == 0) z = readDigits(z + 3, 3, &pOut->nWidth);
  return z != 0 && *z == 0 && pOut->nWidth > 0 && pOut->nWidth <= BX_LOG_TILE;
}

/* Whether the log has all of a tile. */
static int hasTile(const BxLog *pLog, const Tile *pTile, BxErr *pErr) {
  static const char zLeaf[] =
      "SELECT 1 FROM main.blackbox__leaves WHERE leaf = ?1";
  i64 nLevel = pTile->nLevel < 0 ? 0 : pTile->nLevel;
  i64 iFirst = pTile->iTile * BX_LOG_TILE;
  return nLevel < 5 &&
         iFirst + pTile->nWidth <= pLog->now.n >> (nLevel * BX_LOG_LEVEL) &&
         (nLevel > 0 || bxQueryInt(pLog->p, zLeaf, pErr, "i", iFirst));
}

/* Hashes, or the data of leaves, each after its length in two bytes, which is 0 if the
** data has gone. */
static void returnTile(BxCall *p, BxLog *pLog, const Tile *pTile) {
  unsigned char *a = bxZalloc(BX_LOG_TILE * (2 + BX_LOG_LEAF), &p->err);
  i64 i = pTile->iTile * BX_LOG_TILE, iEnd = i + pTile->nWidth, n = 0;
  assert(pTile->nWidth > 0 && pTile->nWidth <= BX_LOG_TILE);
  assert(pTile->nLevel == ENTRIES || pTile->nLevel >= 0);
  for (; i < iEnd && p->err.rc == SQLITE_OK; i++) {
    MerkleHash hash;
    BxLeaf leaf;
    if (pTile->nLevel != ENTRIES) {
      pLog->tree.xGet(
          &pLog->tree, (int)pTile->nLevel * BX_LOG_LEVEL, i, &hash, &p->err);
      memcpy(a + n, hash.a, BX_DIGEST);
      n += BX_DIGEST;
      continue;
    }
    a[n++] = 0;
    a[n++] = 0;
    if (!readLeaf(pLog, i, &leaf, &hash, 0, &p->err)) continue;
    a[n - 1] = BX_LOG_LEAF;
    bxLogLeafData(i + 1, bxLogKept(pLog->p, i, &p->err), &leaf.fields, a + n);
    n += BX_LOG_LEAF;
  }
  if (p->err.rc == SQLITE_OK && p->pCtx != 0) {
    sqlite3_result_blob(p->pCtx, a, (int)n, SQLITE_TRANSIENT);
  }
  sqlite3_free(a);
}

void bxProofTile(BxCall *p) {
  BxStmts *pHome = bxDomainSchema(p->bx, "core", &p->err);
  const char *zPath = bxText(p->aArg[0], "path", 200, 0, &p->err);
  BxLog log;
  Tile tile;
  if (p->err.rc != SQLITE_OK) return;
  bxLogOpen(&log, pHome, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  if (strcmp(zPath, "checkpoint") == 0) {
    char *zHead = headText(&log, &p->err);
    if (zHead != 0) bxReturnText(p, zHead);
  } else if (readPath(zPath, &tile) && hasTile(&log, &tile, &p->err)) {
    returnTile(p, &log, &tile);
  } else if (p->err.rc == SQLITE_OK) {
    bxRefuse(&p->err,
        "NotFoundError: the log has no tile %s; SELECT path FROM proof_export "
        "lists all",
        p->aArg[0]);
  }
}

/* All paths, with what is there. Tiles whose leaves were folded are not. */
sqlite3_stmt *bxProofExport(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zAll[] =
      "WITH RECURSIVE level(l, n) AS ("
      "  SELECT 0, size FROM main.blackbox__tree"
      "  UNION ALL SELECT l + 1, n >> 8 FROM level WHERE n >> 8 > 0),"
      " tile(name, n, i) AS ("
      "  SELECT 'tile/' || l || '/', n, 0 FROM level WHERE n > 0"
      "  UNION ALL SELECT 'tile/entries/', size, 0 FROM main.blackbox__tree"
      "   WHERE size > 0"
      "  UNION ALL SELECT name, n, i + 1 FROM tile WHERE (i + 1) * 256 < n),"
      " file(path) AS (SELECT 'checkpoint' UNION ALL SELECT name ||"
      "  CASE WHEN i < 1000000 THEN '' ELSE printf('x%03d/', i / 1000000) END "
      "||  CASE WHEN i < 1000 THEN '' ELSE printf('x%03d/', i / 1000 % 1000) "
      "END  || printf('%03d', i % 1000) ||  CASE WHEN (i + 1) * 256 <= n THEN "
      "'' ELSE '.p/' || (n - i * 256) END  FROM tile WHERE name NOT IN "
      "('tile/0/', 'tile/entries/') OR EXISTS (SELECT 1    FROM "
      "main.blackbox__leaves WHERE leaf = i * 256)) SELECT path, "
      "proof_tile(path) FROM file";
  BxStmts *pHome = bxDomainSchema(bx, "core", pErr);
  (void)apArg;
  return pHome != 0 ? bxPrepare(pHome, zAll, pErr) : 0;
}

/*--------------------------------------------------------------- bundle ----*/

/* What the log has of a kill switch: rows that name it, holds on what it took, and the
** erasures of their fields, each with the record that says by whom and why. */
#define BUNDLE                                                                 \
  "WITH of(n, agent_id, event_id) AS MATERIALIZED (SELECT n, agent_id,"        \
  "  event_id FROM main.blackbox__log WHERE kill_switch_event_id = ?1),"       \
  " most(n) AS (SELECT n FROM of UNION SELECT n FROM main.blackbox__log"       \
  "  WHERE kind IN ('hold', 'release') AND domain = 'retention' AND subject"   \
  "  IN (SELECT 'kill_switch:' || ?1 UNION SELECT 'agent:' || agent_id FROM"   \
  "   of UNION SELECT 'event:' || event_id FROM of)),"                         \
  " erasure(n) AS (SELECT l.n FROM most AS m JOIN main.blackbox__log AS l"     \
  "  ON l.subject = 'row:' || m.n WHERE l.kind = 'erasure' AND"                \
  "  l.domain = 'core'),"                                                      \
  " every(n) AS MATERIALIZED (SELECT n FROM most UNION SELECT n FROM erasure"  \
  "  UNION SELECT (SELECT n FROM main.blackbox__log WHERE n > e.n AND"         \
  "   kind = 'erasure' AND domain = 'retention' ORDER BY n LIMIT 1)"           \
  "  FROM erasure AS e),"                                                      \
  " proven(n) AS (SELECT n FROM every, main.blackbox__tree WHERE n <= size),"  \
  " unproven(n, id) AS (SELECT p.n, p.id FROM main.event_payloads AS e"        \
  "  JOIN main.payload__pins AS p ON p.id = e.id"                              \
  "  WHERE e.kill_switch_event_id = ?1 AND p.n NOT IN (SELECT n FROM proven))"

sqlite3_stmt *bxProofBundle(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zAny[] =
      BUNDLE " SELECT 1 FROM every UNION ALL SELECT 1 FROM unproven LIMIT 1";
  static const char zLines[] =
      BUNDLE " SELECT json_object('kind', 'bundle', 'version', 1,"
             "  'kill_switch', ?1, 'rows', (SELECT count(*) FROM proven),"
             "  'unproven', (SELECT count(*) FROM unproven),"
             "  'head', proof_tile('checkpoint'))"
             " UNION ALL SELECT proof_of('values', n) FROM proven"
             " UNION ALL SELECT json_object('kind', 'unproven', 'n', n,"
             "  'id', id) FROM unproven";
  BxStmts *pHome = bxDomainSchema(bx, "payload", pErr);
  const char *zKey = bxText(apArg[0], "kill_switch", 100000, 0, pErr);
  sqlite3_stmt *pLines;
  if (pErr->rc != SQLITE_OK) return 0;
  if (bxQueryInt(pHome, zAny, pErr, "t", zKey) == 0) {
    bxRefuse(pErr,
        "NotFoundError: the log has no kill switch %s; SELECT DISTINCT "
        "kill_switch_event_id FROM blackbox_log lists all",
        apArg[0]);
  }
  pLines = bxPrepare(pHome, zLines, pErr);
  bxBind(pLines, pErr, "t", zKey);
  return pLines;
}

/* All lines as one text. */
void bxProofBundleText(BxCall *p) {
  sqlite3_stmt *pLines = bxProofBundle(p->bx, p->aArg, &p->err);
  sqlite3_str *pOut = sqlite3_str_new(p->bx->db);
  char *zAll;
  while (bxStep(pLines, &p->err)) {
    const char *z = bxColumnText(pLines, 0, &p->err);
    if (z != 0) sqlite3_str_appendf(pOut, "%s\n", z);
  }
  sqlite3_finalize(pLines);
  zAll = finishText(pOut, &p->err);
  if (zAll != 0) bxReturnText(p, zAll);
}

sqlite3_stmt *bxProofPending(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zPending[] =
      "SELECT coalesce(kind, 'removal'), sum(count), min(n) FROM ("
      " SELECT kind, 1 AS count, n FROM main.blackbox__log"
      "  WHERE n > (SELECT size FROM main.blackbox__tree)"
      " UNION ALL SELECT NULL, 1, NULL FROM main.blackbox__open"
      "  WHERE minute BETWEEN 1 AND CAST(unixepoch() / 60 AS INTEGER) - 1)"
      " GROUP BY 1";
  BxStmts *pHome = bxDomainSchema(bx, "core", pErr);
  (void)apArg;
  return pHome != 0 ? bxPrepare(pHome, zPending, pErr) : 0;
}
