/*
** show.c: what leaves the database: proof_head(), proof_of(kind, key),
** proof_tile(path) and proof_export.
**
** A proof is a JSON object, which can be checked without the database:
**   kind, number, time, commitment   the leaf
**   leaf                             its number in the log
**   salt, content                    what the commitment is of: the content is
**                                    told by its digest
**   path                             the hashes from the leaf to the root
**   head                             the head to which they lead
** The proof of kind 'head' has "noted", an older head, and a path that shows that
** the log of the head begins with that of the older one.
*/
#include "proof.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/*----------------------------------------------------------------- head ----*/

/* Takes in all that waits. In a transaction the lock comes first, because after
** a read SQLite would not wait for it; it is needed only if something waits. */
static void takeAll(BxCall *p, BxStmts *pHome) {
  BxErr lock = {SQLITE_OK, 0};
  int bInside = !sqlite3_get_autocommit(p->bx->db);
  if (bInside) bxLock(pHome, &lock);
  if (bInside && sqlite3_get_autocommit(p->bx->db)) bxPass(&p->err, &lock);
  if (!bxProofWaits(pHome, &p->err)) {
    bxClear(&lock);
    return;
  }
  bxPass(&p->err, &lock);
  if (p->pCtx != 0) bxSavepoint(p->bx, p->pDef->zName, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  bxLock(pHome, &p->err);
  bxProofTake(pHome, (i64)1 << 47, p->pCtx != 0, &p->err);
  if (p->pCtx != 0) bxRelease(p->bx, &p->err);
}

static char *headText(ProofLog *pLog, BxErr *pErr) {
  ProofHead head;
  if (pErr->rc != SQLITE_OK) return 0;
  bxProofHeadOf(pLog, &head);
  return bxProofHeadText(&head, pErr);
}

void bxProofHead(BxCall *p) {
  BxStmts *pHome = bxHome(p->bx, "proof", &p->err);
  ProofLog log;
  char *zHead;
  if (pHome == 0) return;
  if (sqlite3_db_readonly(p->bx->db, pHome->zDb) == 0 &&
      bxSettingInt(pHome, "proof.enabled", &p->err)) {
    takeAll(p, pHome);
  }
  bxProofOpen(&log, pHome, &p->err);
  zHead = headText(&log, &p->err);
  if (zHead != 0) bxReturnText(p, zHead);
}

/*--------------------------------------------------------------- proofs ----*/

static void appendHash(
    sqlite3_str *pOut, const char *zBefore, const unsigned char *a) {
  char zHex[2 * BX_DIGEST + 1];
  bxHex(a, BX_DIGEST, zHex);
  sqlite3_str_appendf(pOut, "%s\"%s\"", zBefore, zHex);
}

/* The end of each proof, which becomes the result. */
static void returnProof(
    BxCall *p, ProofLog *pLog, sqlite3_str *pOut, const MerklePath *pPath) {
  char *zHead = headText(pLog, &p->err), *zProof;
  int i;
  sqlite3_str_appendall(pOut, ",\"path\":[");
  for (i = 0; i < pPath->n; i++) {
    appendHash(pOut, i > 0 ? "," : "", pPath->a[i].a);
  }
  sqlite3_str_appendall(pOut, "],\"head\":");
  if (zHead != 0) bxAppendJson(pOut, zHead, (int)strlen(zHead));
  sqlite3_str_appendchar(pOut, 1, '}');
  sqlite3_free(zHead);
  zProof = bxFinish(pOut, &p->err);
  if (zProof != 0) bxReturnJson(p, zProof);
}

/* That the log begins with that of an older head. */
static void proveHead(BxCall *p, ProofLog *pLog) {
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
  bxAppendJson(pOut, zOld, (int)strlen(zOld));
  sqlite3_free(zOld);
  returnProof(p, pLog, pOut, &path);
}

/* The thing that kind and key name; 0 if there can be none. */
static i64 thingOf(BxCall *p, BxStmts *pHome, ProofKind eKind) {
  static const char zPin[] = "SELECT pin FROM main.payload_pins WHERE id = ?1";
  i64 iNumber;
  if (eKind == PROOF_EVIDENCE) {
    const char *zId = bxText(p->aArg[1], "key", 100000, 0, &p->err);
    iNumber = bxAsk(pHome, zPin, &p->err, "t", zId);
  } else {
    iNumber = bxInt(p->aArg[1], "key", 1, PROOF_MOST - 1, &p->err);
  }
  return PROOF_THING(iNumber, eKind);
}

/* What opens a leaf, if it is there. */
typedef struct Opening {
  int bOpen;
  unsigned char aContent[BX_DIGEST];
  MerkleHash salt;
} Opening;

static void openLeaf(ProofLog *pLog, i64 iLeaf, const ProofLeaf *pLeaf,
    Opening *pOut, BxErr *pErr) {
  static const char zSalt[] =
      "SELECT salt FROM main.proof_salts WHERE thing = ?1 AND leaf = ?2";
  sqlite3_stmt *pStmt = bxStmt(pLog->p, zSalt, pErr);
  MerkleHash mark;
  bxBind(pStmt, pErr, "ii", pLeaf->iThing, iLeaf);
  pOut->bOpen = bxRow(pStmt, pErr) && bxProofReadHash(pStmt, 0, &pOut->salt);
  bxDone(pStmt, pErr);
  if (!pOut->bOpen) return;
  pOut->bOpen =
      bxProofContent(pLog->p, pLeaf->iThing, pOut->aContent, pErr) > 0;
  if (!pOut->bOpen) return;
  mark = bxProofMark(pOut->salt.a, pOut->aContent);
  if (memcmp(mark.a, pLeaf->mark.a, BX_DIGEST) != 0) {
    bxFail(pErr, SQLITE_CORRUPT_VTAB,
        "CorruptedDataError: %s %lld is not what leaf %lld of the log says, so "
        "that there is no proof of it; SELECT * FROM proof_verify() lists what "
        "is wrong",
        bxProofKindName(PROOF_KIND(pLeaf->iThing)), PROOF_NUMBER(pLeaf->iThing),
        iLeaf);
  }
}

/* That a leaf is in the log, and what it is of. */
static void proveLeaf(BxCall *p, ProofLog *pLog, i64 iLeaf) {
  ProofLeaf leaf;
  Opening opening;
  MerklePath path = {0, {{{0}}}};
  sqlite3_str *pOut;
  bxProofLeaf(pLog, iLeaf, &leaf, &p->err);
  openLeaf(pLog, iLeaf, &leaf, &opening, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  bxMerkleInclusion(&pLog->tree, iLeaf, pLog->now.n, &path, &p->err);
  pOut = sqlite3_str_new(p->bx->db);
  sqlite3_str_appendf(pOut,
      "{\"kind\":\"%s\",\"number\":%lld,\"time\":%lld,\"leaf\":%lld",
      bxProofKindName(PROOF_KIND(leaf.iThing)), PROOF_NUMBER(leaf.iThing),
      leaf.iAt, iLeaf);
  appendHash(pOut, ",\"commitment\":", leaf.mark.a);
  if (opening.bOpen) {
    appendHash(pOut, ",\"salt\":", opening.salt.a);
    appendHash(pOut, ",\"content\":", opening.aContent);
  } else {
    sqlite3_str_appendall(pOut, ",\"salt\":null,\"content\":null");
  }
  returnProof(p, pLog, pOut, &path);
}

/* The leaf of a thing. */
static i64 leafOf(BxCall *p, ProofLog *pLog, const char *zKind) {
  static const char zLeaf[] = "SELECT max(leaf) + 1 FROM main.proof_salts"
                              " WHERE thing = ?1 AND leaf < ?2";
  ProofKind eKind = bxProofKindOf(zKind);
  i64 iThing, iLeaf;
  if (eKind == 0) {
    bxRefuse(&p->err,
        "ValidationError: kind must be pin, evidence, unpin, hold, receipt, "
        "verdict, erasure, leaf or head, got %s",
        p->aArg[0]);
    return 0;
  }
  iThing = thingOf(p, pLog->p, eKind);
  iLeaf = bxAsk(pLog->p, zLeaf, &p->err, "ii", iThing, pLog->now.n) - 1;
  if (iLeaf < 0) {
    bxRefuse(&p->err,
        "NotFoundError: the log has no such thing whose content is there, %s; "
        "SELECT * FROM proof_log lists the leaves, and SELECT proof_head() "
        "takes in what waits",
        p->aArg[1]);
  }
  return iLeaf;
}

void bxProofOf(BxCall *p) {
  BxStmts *pHome = bxHome(p->bx, "proof", &p->err);
  const char *zKind = bxText(p->aArg[0], "kind", 100, 0, &p->err);
  ProofLog log;
  i64 iLeaf;
  if (p->err.rc != SQLITE_OK) return;
  bxProofOpen(&log, pHome, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  if (strcmp(zKind, "head") == 0) {
    proveHead(p, &log);
    return;
  }
  if (strcmp(zKind, "leaf") == 0) {
    iLeaf = bxInt(
        p->aArg[1], "key", 0, log.now.n - 1 > 0 ? log.now.n - 1 : 0, &p->err);
  } else {
    iLeaf = leafOf(p, &log, zKind);
  }
  if (p->err.rc == SQLITE_OK) proveLeaf(p, &log, iLeaf);
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
  pOut->nWidth = PROOF_TILE;
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
  return z != 0 && *z == 0 && pOut->nWidth > 0 && pOut->nWidth <= PROOF_TILE;
}

/* Whether the log has all of a tile. */
static int hasTile(const ProofLog *pLog, const Tile *pTile) {
  i64 nLevel = pTile->nLevel < 0 ? 0 : pTile->nLevel;
  return nLevel < 6 && pTile->iTile * PROOF_TILE + pTile->nWidth <=
                           pLog->now.n >> (nLevel * PROOF_LEVEL);
}

/* Writes one hash or leaf. Returns its end. */
static unsigned char *putOne(ProofLog *pLog, const Tile *pTile, i64 i,
    unsigned char *aOut, BxErr *pErr) {
  MerkleHash hash;
  ProofLeaf leaf;
  if (pTile->nLevel == ENTRIES) {
    bxProofLeaf(pLog, i, &leaf, pErr);
    aOut[0] = 0; /* the length in two bytes */
    aOut[1] = PROOF_ENTRY;
    bxProofEntry(&leaf, aOut + 2);
    return aOut + 2 + PROOF_ENTRY;
  }
  pLog->tree.xGet(
      &pLog->tree, (int)pTile->nLevel * PROOF_LEVEL, i, &hash, pErr);
  memcpy(aOut, hash.a, BX_DIGEST);
  return aOut + BX_DIGEST;
}

static void returnTile(BxCall *p, ProofLog *pLog, const Tile *pTile) {
  unsigned char *a = bxNew(PROOF_TILE * (2 + PROOF_ENTRY), &p->err);
  unsigned char *aEnd = a;
  i64 i;
  for (i = 0; i < pTile->nWidth && p->err.rc == SQLITE_OK; i++) {
    aEnd = putOne(pLog, pTile, pTile->iTile * PROOF_TILE + i, aEnd, &p->err);
  }
  if (p->err.rc == SQLITE_OK && p->pCtx != 0) {
    sqlite3_result_blob(p->pCtx, a, (int)(aEnd - a), SQLITE_TRANSIENT);
  }
  sqlite3_free(a);
}

void bxProofTile(BxCall *p) {
  BxStmts *pHome = bxHome(p->bx, "proof", &p->err);
  const char *zPath = bxText(p->aArg[0], "path", 200, 0, &p->err);
  ProofLog log;
  Tile tile;
  if (p->err.rc != SQLITE_OK) return;
  bxProofOpen(&log, pHome, &p->err);
  if (p->err.rc != SQLITE_OK) return;
  if (strcmp(zPath, "checkpoint") == 0) {
    char *zHead = headText(&log, &p->err);
    if (zHead != 0) bxReturnText(p, zHead);
  } else if (readPath(zPath, &tile) && hasTile(&log, &tile)) {
    returnTile(p, &log, &tile);
  } else {
    bxRefuse(&p->err,
        "NotFoundError: the log has no tile %s; SELECT path FROM proof_export "
        "lists all",
        p->aArg[0]);
  }
}

/* All paths, with what is there. */
sqlite3_stmt *bxProofExport(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zAll[] =
      "WITH RECURSIVE level(l, n) AS ("
      "  SELECT 0, size FROM main.proof_state"
      "  UNION ALL SELECT l + 1, n >> 8 FROM level WHERE n >> 8 > 0),"
      " tile(name, n, i) AS ("
      "  SELECT 'tile/' || l || '/', n, 0 FROM level WHERE n > 0"
      "  UNION ALL SELECT 'tile/entries/', size, 0 FROM main.proof_state"
      "   WHERE size > 0"
      "  UNION ALL SELECT name, n, i + 1 FROM tile WHERE (i + 1) * 256 < n),"
      " file(path) AS (SELECT 'checkpoint' UNION ALL SELECT name ||"
      "  CASE WHEN i < 1000000 THEN '' ELSE printf('x%03d/', i / 1000000) END "
      "||"
      "  CASE WHEN i < 1000 THEN '' ELSE printf('x%03d/', i / 1000 % 1000) END"
      "  || printf('%03d', i % 1000) ||"
      "  CASE WHEN (i + 1) * 256 <= n THEN '' ELSE '.p/' || (n - i * 256) END"
      "  FROM tile)"
      " SELECT path, proof_tile(path) FROM file";
  BxStmts *pHome = bxHome(bx, "proof", pErr);
  (void)apArg;
  return pHome != 0 ? bxPrepare(pHome, zAll, pErr) : 0;
}
