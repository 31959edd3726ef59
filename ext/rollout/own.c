/*
** own.c: the own format of a conversation that was imported, or forked from one, if
** an item is a whole line of its file: how such a line is appended, and what an
** export has of it.
**
** Where items name the one that they follow, an agent goes on only from a chain. So
** a message that is appended gets what it lacks: an id, the id of the item before it,
** the name of the session, a time. A message that has them stays as it is given.
**
** The lines that a fork shares name the session from which it was forked. Its export
** names the fork in their place, so that it is a session of its own. When that file
** is imported, stored items are compared as an export has them.
*/
#include "import.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

int bxRolloutOwnRead(RolloutOwn *p, BxStmts *pHome, i64 no, BxErr *pErr) {
  static const char zRead[] =
      "SELECT f.type, f.time, f.item_id, f.item_parent, f.conversation, "
      "f.agent, coalesce(a.source_id, h.id), "
      "iif(a.forked_from IS NULL OR f.apart, NULL, h.id), a.agent, "
      "(SELECT ',' || group_concat(m.type_key) || ',' FROM "
      "main.rollout_histories AS m WHERE m.format = f.format), "
      "f.names = '{}' FROM main.rollout__heads AS h "
      "JOIN main.rollout__about AS a ON a.no = h.no "
      "JOIN main.rollout_formats AS f ON f.format = coalesce(a.format, "
      "(SELECT CASE WHEN " BX_JSON_VALID(
          "d.payload") " THEN d.payload ->> '$.blackbox.format' END "
                       "FROM main.rollout__items AS d WHERE d.id = h.no << "
                       "32)) "
                       "WHERE h.no = ?1 AND f.payload IS NULL AND NOT f.spans "
                       "AND NOT EXISTS ("
                       "SELECT 1 FROM main.blackbox_places AS l WHERE l.format "
                       "= f.format "
                       "AND l.kind = 'line')";
  sqlite3_stmt *pRow = bxStmt(pHome, zRead, pErr);
  int i;
  assert(no >= 0 && !p->bOwn);
  bxBind(pRow, pErr, "i", no);
  if (bxStep(pRow, pErr)) {
    for (i = 0; i < OWN_TEXTS; i++) {
      if (sqlite3_column_type(pRow, i) == SQLITE_NULL) continue;
      p->az[i] = bxColumnCopy(pRow, i, pErr);
    }
    p->bNames = sqlite3_column_int(pRow, OWN_TEXTS);
    p->format.az[ROLLOUT_FORMAT_TYPE] = p->az[OWN_TYPE];
    p->format.az[ROLLOUT_FORMAT_TIME] = p->az[OWN_TIME];
    p->bOwn = pErr->rc == SQLITE_OK;
  }
  bxReset(pRow, pErr);
  return p->bOwn;
}

void bxRolloutOwnFree(RolloutOwn *p) {
  int i;
  for (i = 0; i < OWN_TEXTS; i++) sqlite3_free(p->az[i]);
  sqlite3_free(p->zLast);
  memset(p, 0, sizeof(*p));
}

/* The length of the first of some places, if it is a member of the whole: $.name. */
static int memberOf(const char *z) {
  int n = z != 0 && z[0] == '$' && z[1] == '.' ? (int)strcspn(z + 2, "|") : 0;
  assert(n >= 0);
  return n > 0 && (int)strcspn(z + 2, ".[\"") >= n ? n : 0;
}

/* Appends a member that the object lacks. */
static void addMember(
    sqlite3_str *pOut, const BxTree *pTree, const char *zWhere, const char *z) {
  int n = memberOf(zWhere);
  if (n == 0 || bxTreeMember(pTree, 0, zWhere + 2, n) >= 0) return;
  sqlite3_str_appendf(pOut, ",\"%.*s\":", n, zWhere + 2);
  if (z != 0) {
    bxJsonAppend(pOut, z, (int)strlen(z));
  } else {
    sqlite3_str_appendall(pOut, "null");
  }
}

/* Whether a line is a message, by its type. */
static int isOwnMessage(const RolloutOwn *p, const RolloutJson *pJson) {
  char zType[ROLLOUT_MAX_NAME + 1];
  const char *z = p->az[OWN_MESSAGES];
  size_t n;
  if (z == 0 || bxRolloutWord(&pJson->tree,
                    bxRolloutPlace(pJson, p->az[OWN_TYPE]), zType) == 0) {
    return 0;
  }
  bxFoldName(zType);
  n = strlen(zType);
  for (; z != 0 && z[1] != 0; z = strchr(z + 1, ',')) {
    if (strncmp(z + 1, zType, n) == 0 && z[n + 1] == ',') return 1;
  }
  return 0;
}

/* The members that a message lacks, each after a comma. zNew is its id. */
static char *lacking(const RolloutOwn *p, BxStmts *pHome, const BxTree *pTree,
    const char *zNew, i64 iNow, BxErr *pErr) {
  static const char zIso[] = "SELECT " ROLLOUT_ISO("?1");
  char *const *az = p->az;
  char *zTime = bxQueryText(pHome, zIso, pErr, "i", iNow);
  sqlite3_str *pOut = sqlite3_str_new(0);
  addMember(pOut, pTree, az[OWN_PARENT], p->zLast);
  if (p->bNames) {
    addMember(pOut, pTree, az[OWN_SESSION],
        az[OWN_FORK] ? az[OWN_FORK] : az[OWN_NAME]);
  }
  if (az[OWN_AGENT]) {
    addMember(pOut, pTree, az[OWN_AGENT_AT], az[OWN_AGENT]);
  }
  addMember(pOut, pTree, az[OWN_ID], zNew);
  addMember(pOut, pTree, az[OWN_TIME], zTime);
  sqlite3_free(zTime);
  return bxStrFinish(pOut, pErr);
}

char *bxRolloutOwnComplete(RolloutOwn *p, BxStmts *pHome,
    const RolloutWork *pWork, const RolloutJson *pJson, i64 iNow, BxErr *pErr) {
  static const char zLast[] = "SELECT CASE WHEN " BX_JSON_VALID(
      "d.payload") " THEN d.payload ->> ?2 "
                   "END AS its " ROLLOUT_FROM_ITEMS "AND its IS NOT NULL "
                   "ORDER BY s.rollout DESC, s.first DESC, d.id DESC LIMIT 1";
  const BxTree *pTree = &pJson->tree;
  char zNew[37], zAt[24], *zLacking, *z = 0;
  int iNode;
  assert(BX_TREE_KIND(pTree, 0) == '{' && pJson->iTop == 0);
  if (p->az[OWN_PARENT] == 0 || memberOf(p->az[OWN_ID]) == 0) return 0;
  iNode = bxRolloutPlace(pJson, p->az[OWN_ID]);
  if (isOwnMessage(p, pJson)) {
    if (!p->bLast) {
      p->zLast =
          bxQueryText(pHome, zLast, pErr, "it", pWork->head.no, p->az[OWN_ID]);
    }
    p->bLast = 1;
    sqlite3_snprintf(
        (int)sizeof(zAt), zAt, "%lld", pWork->head.iLast + 1 + pWork->nItem);
    bxImportSessionUuid("item", pWork->zId, zAt, zNew);
    zLacking = lacking(p, pHome, pTree, zNew, iNow, pErr);
    if (zLacking != 0 && *zLacking != 0) {
      z = bxPrintf(pErr, "%.*s%s}", pTree->a[0].nByte - 1,
          pTree->z + pTree->a[0].iAt, zLacking + (pTree->n == 1));
    }
    sqlite3_free(zLacking);
  } else if (iNode < 0) {
    return 0;
  }
  /* the next message follows this item */
  sqlite3_free(p->zLast);
  p->zLast = iNode < 0 ? bxPrintf(pErr, "%s", zNew)
             : BX_TREE_KIND(pTree, iNode) == '"'
                 ? bxTreeString(pTree, iNode, pErr)
                 : 0;
  p->bLast = p->zLast != 0;
  return z;
}

/*---------------------------------------------------------------- export ----*/

static void bindCopy(
    sqlite3_stmt *pStmt, int i, const char *z, int n, BxErr *pErr) {
  assert(i > 0);
  if (pErr->rc != SQLITE_OK) return;
  bxFailDb(pErr, sqlite3_db_handle(pStmt),
      sqlite3_bind_text(pStmt, i, z ? z : "", n, SQLITE_TRANSIENT));
}

static void bindText(
    sqlite3_stmt *pStmt, int i, sqlite3_str *pText, BxErr *pErr) {
  char *z = bxStrFinish(pText, pErr);
  bindCopy(pStmt, i, z, -1, pErr);
  sqlite3_free(z);
}

static void bindJson(sqlite3_stmt *pStmt, int i, const char *z, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  if (z != 0) bxJsonAppend(pOut, z, (int)strlen(z));
  bindText(pStmt, i, pOut, pErr);
}

/* Binds the last member of the first of some places, with the colon behind it, and the
** place, if lines have the name there. */
static void bindKey(
    sqlite3_stmt *pStmt, int i, const char *z, int bNames, BxErr *pErr) {
  sqlite3_str *pKey = sqlite3_str_new(0);
  int n = z != 0 ? (int)strcspn(z, "|") : 0, nKey = 0;
  while (nKey < n && z[n - nKey - 1] != '.') nKey++;
  if (nKey > 0) sqlite3_str_appendf(pKey, "\"%.*s\":", nKey, z + n - nKey);
  bindText(pStmt, i, pKey, pErr);
  if (nKey > 0 && bNames) bindCopy(pStmt, i + 1, z, n, pErr);
}

void bxRolloutOwnBind(
    BxStmts *pHome, i64 no, sqlite3_stmt *pStmt, BxErr *pErr) {
  const int iTypes = 8;
  RolloutOwn own;
  sqlite3_str *pTypes;
  const char *z;
  if (pErr->rc != SQLITE_OK) return;
  memset(&own, 0, sizeof(own));
  bxRolloutOwnRead(&own, pHome, no, pErr);
  bxBind(pStmt, pErr, "i", no);
  z = own.az[OWN_FORK] ? own.az[OWN_SESSION] : 0;
  bindKey(pStmt, 2, z, own.bNames, pErr);
  z = z != 0 ? strchr(z, '|') : 0;
  bindKey(pStmt, 4, z ? z + 1 : 0, own.bNames, pErr);
  bindJson(pStmt, 7, own.az[OWN_FORK], pErr);
  if (own.az[OWN_FORK] != 0) {
    bindCopy(pStmt, 6, own.az[OWN_NAME], -1, pErr);
  }
  if (own.bOwn && sqlite3_bind_parameter_count(pStmt) >= iTypes) {
    pTypes = sqlite3_str_new(0);
    for (z = own.az[OWN_TYPE]; z != 0; z = strchr(z, '|')) {
      if (*z == '|') z++;
      sqlite3_str_appendchar(pTypes, 1, sqlite3_str_length(pTypes) ? ',' : '[');
      bxJsonAppend(pTypes, z, (int)strcspn(z, "|"));
    }
    sqlite3_str_appendchar(pTypes, 1, ']');
    bindText(pStmt, iTypes, pTypes, pErr);
  }
  bxRolloutOwnFree(&own);
}
