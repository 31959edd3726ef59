/*
** append.c: rollout_append(id, items[, now]).
**
** items is a JSON array of items, or one item: an object with type, payload and
** an optional timestamp (ISO 8601 text, or milliseconds). The policy is applied
** to each item. An item that it drops does not use a sequence, and is counted
** in rollout_drops. Either everything is written, or nothing.
**
** A conversation that was imported, or forked from one, keeps everything, and takes
** lines of its own format, too (own.c): what has no payload is one.
**
** A payload is kept byte by byte as it was given, unless rollout.secrets masks it.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

typedef struct Append {
  BxStmts *pHome;
  RolloutWork work;
  RolloutJson json; /* the item */
  RolloutOwn own;
  i64 iNow;
  BxErr *pErr;
} Append;

/*--------------------------------------------------------------- items ----*/

/* How an item of an append is read: as one of Codex. */
static const RolloutFormat appended = {
    .az = {[ROLLOUT_FORMAT_TYPE] = "$.type",
        [ROLLOUT_FORMAT_PAYLOAD] = "$.payload",
        [ROLLOUT_FORMAT_TIME] = "$.timestamp"},
    .bGiven = 1};

/* A value that can be no item, which the error shows. */
static void badItem(Append *p, i64 i, const char *zWhat) {
  RolloutSlice value = bxRolloutSpanOf(&p->json.tree, 0);
  assert(i >= 0 && p->json.tree.n > 0);
  bxFail(p->pErr, SQLITE_CONSTRAINT,
      "InvalidItemError: Invalid item format: item %lld %s, got %.*s; an item "
      "must be a JSON object with a type and a payload",
      i, zWhat, (int)(value.n < 100 ? value.n : 100), value.z);
}

static void badJson(Append *p) {
  bxFail(p->pErr, SQLITE_CONSTRAINT,
      "InvalidItemError: Invalid item format: malformed JSON, or JSON nested "
      "deeper than 960 levels; items must be a JSON array of objects, or one "
      "object");
}

/* Refuses what cannot be an item. */
static void checkAppended(Append *p, i64 i, const RolloutLine *pLine) {
  if (!pLine->bTyped) {
    badItem(p, i,
        "has no type of 1 to 100 bytes, without a NUL or half a surrogate "
        "pair");
  }
  if (pLine->payload.n > ROLLOUT_MAX_PAYLOAD) {
    bxFail(p->pErr, SQLITE_TOOBIG,
        "InvalidItemError: Invalid item format: item %lld has a payload of "
        "%lld bytes, and the limit is %d; store large data elsewhere, and a "
        "reference here",
        i, pLine->payload.n, ROLLOUT_MAX_PAYLOAD);
  }
}

/* Adds an item. Keeps or frees zOwned, in which its payload is. */
static void addAppended(Append *p, const RolloutLine *pLine, char *zOwned) {
  RolloutWork *pWork = &p->work;
  i64 iTime;
  if (p->pErr->rc != SQLITE_OK) {
    sqlite3_free(zOwned);
    return;
  }
  iTime = pLine->iTime < 0 ? p->iNow : pLine->iTime;
  if (pLine->payload.z != 0) {
    bxRolloutDeriveWrite(&pWork->tale, pWork->head.iLast + 1 + pWork->nItem,
        iTime, pLine->zType, &p->json);
  }
  bxRolloutAdd(pWork, iTime, pLine->zType, pLine->payload, zOwned, p->pErr);
}

/* Takes the line of the conversation's own format in p->json. */
static void takeOwn(Append *p, i64 i) {
  RolloutLine line;
  char *z = bxRolloutOwnComplete(
      &p->own, p->pHome, &p->work, &p->json, p->iNow, p->pErr);
  if (z != 0) { /* what was read before, with more members */
    bxTreeRead(&p->json.tree, z, (i64)strlen(z), 0, 0, p->pErr);
    p->json.iTop = 0;
  }
  if (p->pErr->rc == SQLITE_OK) {
    bxRolloutReadLine(p->pHome, &p->own.format, &p->json, &line, p->pErr);
    checkAppended(p, i, &line);
  }
  addAppended(p, &line, z);
}

/* Takes the item in p->json: keeps it, or counts it as dropped, as the policy
** says. */
static void takeItem(Append *p, i64 i) {
  char zType[ROLLOUT_MAX_NAME + 1], *zPayloadType = "";
  RolloutSlice none = {0, 0};
  RolloutLine line;
  assert(BX_TREE_KIND(&p->json.tree, 0) == '{');
  assert(i >= 0);
  if (p->own.bOwn && bxTreeMember(&p->json.tree, 0, "payload", 7) < 0) {
    takeOwn(p, i);
    return;
  }
  bxRolloutReadLine(p->pHome, &appended, &p->json, &line, p->pErr);
  if (line.bWhole) { /* it has no payload */
    line.payload = none;
  } else {
    int iType = bxTreeMember(&p->json.tree, p->json.iTop, "type", 4);
    zPayloadType = bxRolloutWord(&p->json.tree, iType, zType) > 0 ? zType : 0;
  }
  checkAppended(p, i, &line);
  if (p->pErr->rc != SQLITE_OK) return;
  if (!p->work.head.bImported &&
      !bxRolloutKeeps(p->pHome, line.zType, zPayloadType, p->pErr)) {
    bxRolloutDrop(
        &p->work, line.zType, zPayloadType, 1, line.payload.n, p->pErr);
    return;
  }
  addAppended(p, &line, 0);
}

/* Reads item i, which begins at z. Returns its end. */
static const char *readOne(Append *p, i64 i, const char *z, const char *zEnd) {
  const char *zNext = bxTreeRead(&p->json.tree, z, zEnd - z, 0, 0, p->pErr);
  assert(z != 0 && z <= zEnd);
  p->json.iTop = 0;
  if (zNext == 0) {
    badJson(p);
    return 0;
  }
  if (BX_TREE_KIND(&p->json.tree, 0) == '{') {
    takeItem(p, i);
  } else {
    badItem(p, i, "is not an object");
  }
  return zNext;
}

/* The text of the argument. */
static const char *readItems(sqlite3_value *pVal, BxErr *pErr) {
  const char *z;
  char cFirst;
  if (pErr->rc != SQLITE_OK) return 0;
  z = bxText(pVal, "items", ROLLOUT_MAX_TEXT, 0, pErr);
  bxErrRename(
      pErr, "ValidationError", "InvalidItemError: Invalid item format: ");
  cFirst = z != 0 ? z[strspn(z, " \t\r\n")] : '[';
  if (cFirst != '[' && cFirst != '{') {
    bxRefuse(pErr,
        "InvalidItemError: Invalid item format: items must be a JSON array of "
        "objects, or one object, got %s",
        pVal);
  }
  return z;
}

/* Reads an array of items, or one item. */
static void readAll(Append *p, const char *z, const char *zEnd) {
  int bArray;
  i64 i;
  assert(z != 0 && z <= zEnd);
  z = bxJsonSkipSpace(z);
  bArray = *z == '[';
  if (bArray) z = bxJsonSkipSpace(z + 1);
  for (i = 0; !(bArray && i == 0 && *z == ']'); i++) {
    z = readOne(p, i, z, zEnd);
    if (p->pErr->rc != SQLITE_OK) return;
    z = bxJsonSkipSpace(z);
    if (!bArray || *z != ',') break;
    z++;
  }
  if (bArray && *z == ']') {
    z = bxJsonSkipSpace(z + 1);
  } else if (bArray) {
    z = 0;
  }
  if (z != zEnd) badJson(p);
}

/* Finds the conversation, which the call before may have left as it is. (A statement that
** has failed may have changed it in the transaction of the host.) */
static void openHead(
    BxStmts *pHome, i64 iNow, RolloutWork *pWork, BxErr *pErr) {
  const RolloutMemory *pMemory;
  const RolloutRules *pRules;
  if (pErr->rc != SQLITE_OK) return;
  bxLock(pHome, pErr); /* now, so that the busy timeout applies */
  pRules = bxRolloutRules(pHome, 0, pErr);
  pMemory = bxRolloutMemory(pHome->bx, pErr);
  if (pRules != 0 && pRules->bIdle && pMemory->newest.bStays &&
      pHome->bx->bClean &&
      memcmp(pMemory->newest.zId, pWork->zId, sizeof(pWork->zId)) == 0 &&
      pMemory->newest.head.iExpire >= iNow) {
    pWork->head = pMemory->newest.head;
  } else {
    bxRolloutOpen(pHome, 0, pWork->zId, iNow, &pWork->head, pErr);
  }
}

/* Takes what the call before has noted, if nobody has changed anything since. */
static void recallIdle(const RolloutMemory *pMemory, RolloutWork *pWork) {
  const RolloutNewest *a = &pMemory->newest;
  RolloutDerive *pTale = &pWork->tale;
  int bSame =
      a->head.no == pWork->head.no && a->head.iLast == pWork->head.iLast;
  assert(pTale->last.eKnown == 0 || pWork->head.iBehind >= 0);
  if (!pTale->pRules->bIdle) return;
  pTale->bIdle = 1;
  if (a->bStays || bSame) pTale->iNewest = a->iNewest;
  if (bSame && a->last.bAsked) pTale->last = a->last;
}

/* Notes at the end of a call what the next one need not ask for. */
static void noteIdle(
    RolloutMemory *pMemory, const BxCall *p, const RolloutWork *pWork) {
  const RolloutDerive *pTale = &pWork->tale;
  RolloutNewest *a = &pMemory->newest;
  int bIdle = p->err.rc == SQLITE_OK && p->pCtx != 0 && !pTale->bBusy &&
              !pWork->head.bAnyBehind &&
              (pTale->bIdle || (p->bx->bClean && pWork->nItem > 0));
  i64 i;
  assert(pTale->pHome != 0);
  pMemory->nIdle = bIdle ? sqlite3_total_changes(p->bx->db) : -1;
  memcpy(a->zId, pWork->zId, sizeof(a->zId));
  a->head = pWork->head;
  a->head.iLast += pWork->nItem;
  a->head.nTurn = pTale->nTurn;
  a->head.iUser = pTale->iUser;
  for (i = 0; i < pWork->nItem; i++) {
    i64 iTime = pWork->aItem[i].iTime;
    if (iTime > a->head.iUpdated) a->head.iUpdated = iTime;
  }
  a->iNewest = pTale->iNewest;
  a->bStays = p->bx->bAlone;
  a->last = pTale->last;
}

void bxRolloutAppend(BxCall *p) {
  Append append;
  RolloutWork *pWork = &append.work;
  const char *zItems;
  RolloutMemory *pMemory = 0;
  char *zMasked = 0;
  int nChange;
  i64 n;
  memset(&append, 0, sizeof(append));
  append.pErr = &p->err;
  bxRolloutId(p->aArg[0], pWork->zId, &p->err);
  zItems = readItems(p->aArg[1], &p->err);
  append.iNow = bxTime(bxArg(p, 2), "now", &p->err);
  append.pHome = bxRolloutSchema(p->bx, &p->err);
  openHead(append.pHome, append.iNow, pWork, &p->err);
  bxRolloutRequireOpen(append.pHome, pWork->zId, &p->err);
  if (pWork->head.bImported) {
    bxRolloutOwnRead(&append.own, append.pHome, pWork->head.no, &p->err);
  }
  bxRolloutWorkBegin(pWork, append.pHome, &p->err);
  if (p->err.rc == SQLITE_OK) pMemory = bxRolloutMemory(p->bx, &p->err);
  if (pMemory != 0) recallIdle(pMemory, pWork);
  n = zItems != 0 ? sqlite3_value_bytes(p->aArg[1]) : 0;
  zMasked = bxRolloutMask(append.pHome, &zItems, &n, &p->err);
  if (p->err.rc == SQLITE_OK) readAll(&append, zItems, zItems + n);
  bxRolloutWorkPut(pWork, append.pHome, append.iNow, &p->err);
  if (pWork->head.bAnyBehind) bxRolloutCatchUp(append.pHome, 0, &p->err);
  if (p->err.rc == SQLITE_OK) {
    bxReturnInt(p, pWork->nItem);
    nChange = sqlite3_total_changes(p->bx->db);
    if (nChange != p->bx->nTotal + p->bx->nOwn) { /* a trigger of the host */
      pWork->tale.bBusy = 1;
      p->bx->nForeign++;
    }
    bxFileLimitTend(append.pHome, pWork->nItem, p->pCtx == 0, &p->err);
    pWork->tale.bBusy |= nChange != sqlite3_total_changes(p->bx->db);
  }
  if (pMemory != 0) noteIdle(pMemory, p, pWork);
  bxRolloutExplain(&p->err, "WriteError: Write failed: ");
  bxRolloutWorkEnd(pWork);
  bxRolloutOwnFree(&append.own);
  bxTreeFree(&append.json.tree);
  bxRolloutMaskEnd(append.pHome, zMasked);
}
