/*
** derive.c: what follows from the items of a conversation: turns, rollbacks,
** compactions, usage, messages, and what lists show.
**
**   an append or an import      derives the items that it writes, at once
**   a plain INSERT              leaves them: items from some sequence on are
**                               not derived yet
**   the next call that writes   derives these: all of its own conversation, and
**                               at most CATCH_UP items of others
**   a call that reads           derives them in memory, and writes nothing
**
** Items are derived in their order, each once. So what is stored is always that of
** a beginning of the conversation, and check.c can compare it.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <stdlib.h>
#include <string.h>

void bxRolloutDeriveBegin(
    RolloutDerive *p, BxStmts *pHome, const RolloutHead *pHead, BxErr *pErr) {
  assert(pHead->no >= 0 && pHead->nTurn >= 0);
  p->pHome = pHome;
  p->pErr = pErr;
  p->no = pHead->no;
  p->nTurn = pHead->nTurn;
  p->iUser = pHead->no > 0 ? pHead->iUser : -1;
  p->last.iReview = p->iPrompt = p->iPromptKey = p->iTextFrom = p->iNewest = -1;
  p->bHasPrompt = pHead->no > 0 && pHead->nTurn > 0;
  p->pRules = pErr->rc == SQLITE_OK ? bxRolloutRules(pHome, 0, pErr) : 0;
}

void bxRolloutDeriveEnd(RolloutDerive *p) {
  int i;
  assert(p->nTurnNew <= p->nTurnAlloc && p->nMark <= p->nMarkAlloc);
  for (i = 0; i < BX_KINDS; i++) sqlite3_free(p->azNew[i]);
  bxRolloutTextsFree(p);
  sqlite3_free(p->zPrompt);
  sqlite3_free(p->aTurn);
  sqlite3_free(p->aMark);
  sqlite3_free(p->apFit);
  bxRolloutUsageFree(p);
  bxTreeFree(&p->json.tree);
}

/*--------------------------------------------------------- the readings ----*/

i64 bxRolloutPlacesOf(const RolloutDerive *p, const char *zType,
    char z[ROLLOUT_MAX_NAME + 1], i64 *piEnd) {
  const BxPlaces *pAll = &p->pRules->places;
  i64 iLow = 0, iHigh = pAll->n;
  size_t n = strlen(zType);
  if (n > ROLLOUT_MAX_NAME) n = ROLLOUT_MAX_NAME;
  memcpy(z, zType, n);
  z[n] = 0;
  bxFoldName(z);
  while (iLow < iHigh) {
    i64 i = (iLow + iHigh) / 2;
    if (strcmp(pAll->a[i].az[BX_PLACE_TYPE], z) < 0) {
      iLow = i + 1;
    } else {
      iHigh = i;
    }
  }
  *piEnd = iLow < pAll->n && strcmp(pAll->a[iLow].az[BX_PLACE_TYPE], z) == 0
               ? pAll->a[iLow].iNext
               : iLow;
  assert(iLow <= *piEnd && *piEnd <= pAll->n);
  return iLow;
}

/* Whether items of this type may say something. */
static int isTelling(const RolloutDerive *p, const char *zType) {
  char z[ROLLOUT_MAX_NAME + 1];
  i64 iEnd;
  return bxRolloutPlacesOf(p, zType, z, &iEnd) < iEnd ||
         strcmp(z, "compacted") == 0 || strcmp(z, "eventmsg") == 0;
}

/* Copies a name in the payload as it is compared, or "" if there is none. */
static void readPart(const RolloutDerive *p, const char *zKey,
    char zName[ROLLOUT_MAX_NAME + 1]) {
  const BxTree *pTree = &p->pJson->tree;
  int i = bxTreeMember(pTree, p->pJson->iTop, zKey, 4);
  assert(strlen(zKey) == 4);
  if (bxRolloutWord(pTree, i, zName) > 0) bxFoldName(zName);
}

/* Tests a reading with these parts: -1 if it does not fit, 1 if it does, 0 if the payload
** must be read. */
static int testParts(const RolloutDerive *p, BxTest test) {
  const BxCondition *pTest = p->pRules->places.aCondition + test.i;
  const BxCondition *pEnd = pTest + test.n;
  int eResult = 1;
  assert(test.i + test.n <= p->pRules->places.nCondition);
  for (; pTest < pEnd; pTest++) {
    const char *zName = pTest->cPart == 't'   ? p->zPayloadType
                        : pTest->cPart == 'r' ? p->zRole
                                              : "";
    if (*zName == 0) {
      eResult = 0;
    } else if (pTest->zText
                   ? *zName != *pTest->zText || strcmp(zName, pTest->zText) != 0
                   : !pTest->bThere) {
      return -1;
    }
  }
  return eResult;
}

void bxRolloutReadItem(
    RolloutDerive *p, const char *zType, const RolloutJson *pJson) {
  i64 iEnd, i = bxRolloutPlacesOf(p, zType, p->zSpelled, &iEnd);
  p->pJson = pJson;
  p->nFit = 0;
  readPart(p, "type", p->zPayloadType);
  readPart(p, "role", p->zRole);
  for (; i < iEnd && p->pErr->rc == SQLITE_OK; i++) {
    const BxPlace *pPlace = &p->pRules->places.a[i], **pp;
    int eFits = testParts(p, pPlace->test);
    /* how lines of text begin is for an import */
    if (eFits < 0 || pPlace->eKind == BX_KIND_LINE ||
        pPlace->eKind == BX_KIND_START ||
        (eFits == 0 &&
            !bxRolloutFits(p->pRules, pPlace->test, pJson, p->pErr))) {
      continue;
    }
    pp = bxArrayAdd(&p->apFit, &p->nFit, &p->nFitAlloc, sizeof(*pp), p->pErr);
    if (pp != 0) *pp = pPlace;
  }
}

/*---------------------------------------------------------------- turns ----*/

/* The hash of the id of a user's message, by which one is known that comes again when
** more of its item is there; 0: it has none. */
static sqlite3_uint64 hashId(const RolloutJson *pJson, const BxPlace *pPlace) {
  const BxTree *pTree = &pJson->tree;
  int i = bxPathFind(pTree, pJson->iTop, pJson->iTop, pPlace->az[BX_PLACE_ID]);
  return i < 0 || BX_TREE_KIND(pTree, i) == 'n'
             ? 0
             : bxHashOf(pTree->z + pTree->a[i].iAt, pTree->a[i].nByte) | 1;
}

/* Reads a message of a user: its text, to sqlite3_free(), its source and its id. */
static char *readUser(RolloutDerive *p, const char *zType,
    const RolloutJson *pJson, sqlite3_uint64 *phId) {
  char z[ROLLOUT_MAX_NAME + 1];
  const char *zPath;
  i64 iEnd, i = bxRolloutPlacesOf(p, zType, z, &iEnd);
  assert(p->pRules != 0);
  for (; i < iEnd; i++) {
    const BxPlace *pPlace = &p->pRules->places.a[i];
    if (pPlace->eKind == BX_KIND_USER &&
        bxRolloutFits(p->pRules, pPlace->test, pJson, p->pErr)) {
      p->last.bEvent = pPlace->eSource == BX_SOURCE_EVENT;
      *phId = hashId(pJson, pPlace);
      return bxRolloutValue(pPlace, pJson, &zPath, p->pErr);
    }
  }
  return 0;
}

/* A message of a user is compared by its hash, as it may be as long as the file. */
static sqlite3_uint64 hashUser(const char *z) {
  return bxHashOf(z ? z : "", z ? (i64)strlen(z) : 0);
}

/* Finds in the database what began the last turn, unless a rollback follows it: from
** the newest turn back, which is mostly the one. */
static void findLast(RolloutDerive *p) {
  static const char zLast[] =
      "SELECT d.type, d.payload, (SELECT reviewed FROM main.rollout__about "
      "WHERE no = ?1), EXISTS (SELECT 1 FROM main.rollout__segments AS s2 JOIN "
      "main.rollout__marks AS m ON m.id BETWEEN (s2.owner << 32) + "
      "max(s2.first, t.id & 4294967295) AND (s2.owner << 32) + s2.last "
      "WHERE s2.rollout = ?1 AND m.kind = 'rollback') "
      "FROM main.rollout__segments AS s CROSS JOIN main.rollout__marks AS t "
      "ON t.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last "
      "AND t.number = ?2 AND t.kind = 'turn' "
      "LEFT JOIN main.rollout__items AS d ON d.id = t.id WHERE s.rollout = ?1 "
      "ORDER BY s.first DESC, t.id DESC LIMIT 1";
  sqlite3_stmt *pRow = bxStmt(p->pHome, zLast, p->pErr);
  RolloutJson json = {{0}, 0};
  assert(p->no > 0 && p->nTurn > 0);
  bxBind(pRow, p->pErr, "ii", p->no, p->nTurn - 1);
  if (bxStep(pRow, p->pErr)) {
    const char *zType = bxColumnText(pRow, 0, p->pErr);
    const char *z = bxColumnText(pRow, 1, p->pErr);
    p->last.bAsked = 1;
    if (p->last.iReview < 0 && sqlite3_column_type(pRow, 2) != SQLITE_NULL) {
      p->last.iReview = sqlite3_column_int64(pRow, 2);
    }
    if (zType != 0 && z != 0 && !sqlite3_column_int(pRow, 3) &&
        bxTreeRead(
            &json.tree, z, sqlite3_column_bytes(pRow, 1), 0, 0, p->pErr) != 0) {
      char *zUser = readUser(p, zType, &json, &p->last.hId);
      p->last.hText = hashUser(zUser);
      p->last.eKnown = 1;
      sqlite3_free(zUser);
    }
  }
  bxReset(pRow, p->pErr);
  bxTreeFree(&json.tree);
}

static void addMark(RolloutBoundary **pa, i64 *pn, i64 *pnAlloc, i64 iSequence,
    i64 iFirst, BxErr *pErr) {
  RolloutBoundary *a = bxArrayAdd(pa, pn, pnAlloc, sizeof(*a), pErr);
  assert(iSequence >= 0);
  if (a == 0) return;
  a->iSequence = iSequence;
  a->iFirst = iFirst;
}

/* Bytes that have the first 200 characters of a text, which lists show. */
#define PROMPT_BYTES 804

/* Notes the first user message, or the first goal. */
static void prompt(RolloutDerive *p, const char *z, i64 iSequence) {
  static const char zHas[] =
      "SELECT prompt_id IS NOT NULL FROM main.rollout__about WHERE no = ?1";
  assert(iSequence >= 0);
  if (p->bHasPrompt) return;
  p->bHasPrompt = 1;
  if (p->no > 0 && bxQueryInt(p->pHome, zHas, p->pErr, "i", p->no)) return;
  p->iPrompt = iSequence;
  if (p->bStored) p->iPromptKey = p->iKey;
  if (z != 0) p->zPrompt = bxPrintf(p->pErr, "%.*s", PROMPT_BYTES, z);
}

/* Takes a user's message with this hash, which begins a turn, unless it is the one that
** began the last turn, written again: from another source, soon after a review began, or
** with the id that it had. */
static void tellUser(RolloutDerive *p, const char *z, sqlite3_uint64 hash,
    int bEvent, sqlite3_uint64 hId, i64 iSequence) {
  assert(iSequence >= 0 && p->pRules != 0);
  if (bxRolloutIsPreamble(p->pRules, z)) return;
  if (p->last.eKnown == 0) {
    p->last.eKnown = -1;
    if (p->no > 0 && p->nTurn > 0) findLast(p);
  }
  if (p->last.eKnown > 0 &&
      (p->last.bEvent != bEvent || (hId != 0 && hId == p->last.hId) ||
          (p->last.iReview >= 0 && p->last.iReview >= iSequence - 20)) &&
      hash == p->last.hText) {
    return;
  }
  prompt(p, z, iSequence);
  addMark(
      &p->aTurn, &p->nTurnNew, &p->nTurnAlloc, iSequence, p->nTurn++, p->pErr);
  p->last.hText = hash;
  p->last.hId = hId;
  p->last.bEvent = bEvent;
  p->last.eKnown = 1;
}

/*---------------------------------------------------------------- marks ----*/

static void tellRollback(RolloutDerive *p, i64 iSequence) {
  static const char zTurn[] =
      "SELECT coalesce((SELECT t.id & 4294967295 FROM main.rollout__segments "
      "AS s CROSS JOIN main.rollout__marks AS t ON t.id BETWEEN "
      "(s.owner << 32) + s.first AND (s.owner << 32) + s.last "
      "AND t.number = ?2 AND t.kind = 'turn' WHERE s.rollout = ?1 "
      "ORDER BY s.first DESC, t.id DESC LIMIT 1), -1)";
  const BxTree *pTree = &p->pJson->tree;
  int iNode = bxRolloutPlace(p->pJson, "$.num_turns|$.numTurns");
  const char *z = iNode < 0 ? "0" : pTree->z + pTree->a[iNode].iAt;
  i64 nBack = strtoll(*z == '"' ? z + 1 : z, 0, 10), i = p->nTurnNew - 1;
  i64 iNumber = nBack < p->nTurn ? p->nTurn - nBack : 0, iFirst;
  if (iNumber >= p->nTurn) return;
  while (i >= 0 && p->aTurn[i].iFirst != iNumber) i--;
  iFirst = i >= 0 ? p->aTurn[i].iSequence
           : p->no > 0
               ? bxQueryInt(p->pHome, zTurn, p->pErr, "ii", p->no, iNumber)
               : -1;
  if (iFirst < 0) return;
  addMark(&p->aMark, &p->nMark, &p->nMarkAlloc, iSequence, iFirst, p->pErr);
  p->nTurn = iNumber;
  p->last.eKnown = -1;
}

static int isArray(const RolloutDerive *p, const char *zPath) {
  int i = bxRolloutPlace(p->pJson, zPath);
  return i >= 0 && BX_TREE_KIND(&p->pJson->tree, i) == '[';
}

/* Takes an item that may be a compaction or a rollback, of this type as it is
** compared. */
static void tellMarks(RolloutDerive *p, i64 iSequence, const char *zSpelled) {
  /* a reading of somebody's own may begin a turn with such an item */
  if (p->nTurnNew > 0 && p->aTurn[p->nTurnNew - 1].iSequence == iSequence) {
    return;
  }
  if (strcmp(zSpelled, "compacted") == 0) {
    if (isArray(p, "$.replacement_history") ||
        isArray(p, "$.replacementHistory")) {
      addMark(&p->aMark, &p->nMark, &p->nMarkAlloc, iSequence, -1, p->pErr);
    }
  } else if (strcmp(zSpelled, "eventmsg") == 0 &&
             strcmp(p->zPayloadType, "threadrolledback") == 0) {
    tellRollback(p, iSequence);
  }
}

/*---------------------------------------------------------------- items ----*/

/* The text of the item that was just told from a place; NULL if there is none. */
static const RolloutText *textFrom(
    const RolloutDerive *p, const BxPlace *pPlace, i64 iSequence) {
  i64 i = p->nText - 1;
  assert(pPlace != 0 && iSequence >= 0);
  while (i >= 0 && p->aText[i].iSequence == iSequence &&
         p->aText[i].pPlace != pPlace) {
    i--;
  }
  return i >= 0 && p->aText[i].iSequence == iSequence ? &p->aText[i] : 0;
}

/* Takes the value at a place. */
static void tellFact(RolloutDerive *p, const BxPlace *pPlace, i64 iSequence) {
  const RolloutText *pTold = textFrom(p, pPlace, iSequence);
  const char *zPath;
  char *zOwned = pTold ? 0 : bxRolloutValue(pPlace, p->pJson, &zPath, p->pErr);
  assert(pPlace->eKind < BX_KINDS);
  switch (pPlace->eKind) {
    case BX_KIND_USER:
      if (p->iUser < 0) p->iUser = iSequence;
      tellUser(p, pTold ? pTold->z : zOwned,
          pTold ? pTold->h : hashUser(zOwned),
          pPlace->eSource == BX_SOURCE_EVENT, hashId(p->pJson, pPlace),
          iSequence);
      break;
    case BX_KIND_GOAL:
      if (p->iUser < 0) p->iUser = iSequence;
      prompt(p, zOwned, iSequence);
      break;
    case BX_KIND_REVIEW:
      p->last.iReview = iSequence;
      p->bReviewed = 1;
      break;
    default:
      if (zOwned != 0 && *zOwned != 0) {
        sqlite3_free(p->azNew[pPlace->eKind]);
        p->azNew[pPlace->eKind] = zOwned;
        return;
      }
  }
  sqlite3_free(zOwned);
}

void bxRolloutDeriveWrite(RolloutDerive *p, i64 iSequence, i64 iTime,
    const char *zType, const RolloutJson *pJson) {
  unsigned mTold = 1u << BX_KIND_ASSISTANT | 1u << BX_KIND_TOOL |
                   1u << BX_KIND_CALL | 1u << BX_KIND_RESULT;
  i64 i;
  assert(iSequence >= 0 && iSequence <= ROLLOUT_LAST);
  if (p->pErr->rc != SQLITE_OK) return;
  if (p->bTexts) {
    bxRolloutTell(p, zType, pJson, iSequence, iTime);
  } else {
    bxRolloutReadItem(p, zType, pJson);
  }
  p->iTime = iTime;
  for (i = 0; i < p->nFit && p->pErr->rc == SQLITE_OK; i++) {
    const BxPlace *pPlace = p->apFit[i];
    /* what is said counts once, whatever ways there are to read it */
    if (mTold >> pPlace->eKind & 1) continue;
    if (pPlace->eKind == BX_KIND_USAGE) {
      bxRolloutDeriveUsage(p, pPlace, iSequence);
    } else {
      tellFact(p, pPlace, iSequence);
    }
    mTold |= 1u << pPlace->eKind;
  }
  tellMarks(p, iSequence, p->zSpelled);
  if (p->bTexts) bxRolloutTextsTold(p);
}

/*-------------------------------------------------------------- writing ----*/

void bxRolloutDeriveItem(RolloutDerive *p, BxErr *pErr) {
  static const char zTurn[] =
      "INSERT INTO main.rollout__marks(id, kind, number) "
      "VALUES (?1, 'turn', ?2)";
  static const char zMark[] =
      "INSERT INTO main.rollout__marks(id, kind, number) "
      "VALUES (?1, iif(?2 < 0, 'compaction', 'rollback'), nullif(?2, -1))";
  static const char zPrompt[] =
      "UPDATE main.rollout__about SET prompt_id = ?2, "
      "first_user_message = substr(?3, 1, 200) WHERE no = ?1";
  static const char zNewest[] =
      "UPDATE main.rollout__about SET reviewed = coalesce(?5, reviewed), "
      "cwd = coalesce(?2, cwd), model = coalesce(?3, model), "
      "branch = coalesce(?4, branch) WHERE no = ?1";
  static const char zTitle[] =
      "UPDATE main.rollout__heads SET title = ?2 WHERE no = ?1 AND NOT named";
  char *const *az = p->azNew;
  i64 i;
  assert(p->nTurnOld <= p->nTurnNew && p->nMarkOld <= p->nMark);
  for (i = p->nTurnOld; i < p->nTurnNew; i++) {
    bxStmtExec(p->pHome, zTurn, pErr, "ii",
        bxRolloutKey(p->no, p->aTurn[i].iSequence), p->aTurn[i].iFirst);
  }
  for (i = p->nMarkOld; i < p->nMark; i++) {
    bxStmtExec(p->pHome, zMark, pErr, "ii",
        bxRolloutKey(p->no, p->aMark[i].iSequence), p->aMark[i].iFirst);
  }
  bxRolloutUsagePut(p, pErr); /* with the model that was known before */
  if (p->iPrompt >= 0) {
    bxStmtExec(p->pHome, zPrompt, pErr, "iit", p->no,
        p->iPromptKey >= 0 ? p->iPromptKey : bxRolloutKey(p->no, p->iPrompt),
        p->zPrompt);
  }
  if (az[BX_KIND_TITLE] != 0) {
    bxStmtExec(p->pHome, zTitle, pErr, "it", p->no, az[BX_KIND_TITLE]);
  }
  if (az[BX_KIND_CWD] != 0 || az[BX_KIND_MODEL] != 0 ||
      az[BX_KIND_BRANCH] != 0 || p->bReviewed) {
    bxStmtExec(p->pHome, zNewest, pErr, p->bReviewed ? "ittti" : "ittt", p->no,
        az[BX_KIND_CWD], az[BX_KIND_MODEL], az[BX_KIND_BRANCH],
        p->last.iReview);
  }
}

/*---------------------------------------------------------- stored items ----*/

char *bxRolloutMarks(const RolloutBoundary *a, i64 i, i64 n, BxErr *pErr) {
  sqlite3_str *pOut = sqlite3_str_new(0);
  const char *zBefore = "[";
  assert(i >= 0 && (a != 0 || i >= n));
  for (; i < n; i++, zBefore = ",") {
    sqlite3_str_appendf(
        pOut, "%s[%lld,%lld]", zBefore, a[i].iSequence, a[i].iFirst);
  }
  sqlite3_str_appendall(pOut, *zBefore == '[' ? "[]" : "]");
  return bxStrFinish(pOut, pErr);
}

#define CATCH_UP 1000 /* items of other conversations, at most, in one call */

/* From here on the items are those of the conversation itself. */
static void beginOwn(RolloutDerive *p) {
  int i;
  for (i = 0; i < BX_KINDS; i++) {
    sqlite3_free(p->azNew[i]);
    p->azNew[i] = 0;
  }
  bxRolloutUsageFree(p);
  p->aUsage = 0;
  p->nUsage = p->nUsageAlloc = 0;
  bxRolloutTextsFree(p);
  p->last.iReview = -1;
  p->bReviewed = 0;
  p->nTurnOld = p->nTurnNew;
  p->nMarkOld = p->nMark;
}

/* Counts an item with this payload, which is JSON up to zAfter, if that is not NULL. An
** item that is shared is looked at with its owner, if that is there. */
static void tally(RolloutDerive *p, i64 no, const char *z, i64 n, i64 iTime,
    const char *zAfter) {
  static const char zAlone[] =
      "SELECT NOT EXISTS (SELECT 1 FROM main.rollout__heads WHERE no = ?1)";
  RolloutTally *pTally = p->pTally;
  int bOwn = p->iKey >> 32 == no;
  i64 *pBad;
  assert(n >= 0 && iTime >= 0);
  if (bOwn) {
    pTally->nByte += n;
    if (iTime > pTally->iNewest) pTally->iNewest = iTime;
  }
  if (z == 0 || (zAfter != 0 && bxJsonSkipSpace(zAfter) == z + n) ||
      bxIsJson(p->pHome->bx, z, n, p->pErr) || p->pErr->rc != SQLITE_OK ||
      !(bOwn || bxQueryInt(p->pHome, zAlone, p->pErr, "i", p->iKey >> 32))) {
    return;
  }
  pBad = bxArrayAdd(
      &pTally->aBad, &pTally->nBad, &pTally->nBadAlloc, sizeof(*pBad), p->pErr);
  if (pBad != 0) *pBad = p->iKey;
}

void bxRolloutDeriveStored(
    RolloutDerive *p, i64 no, i64 iFirst, i64 iLast, BxErr *pErr) {
  static const char zItems[] =
      "SELECT d.id, d.type, d.payload, d.timestamp "
      "FROM main.rollout__segments AS s "
      "CROSS JOIN main.rollout__items AS d ON d.id BETWEEN (s.owner << 32) + "
      "max(s.first, ?2) AND (s.owner << 32) + min(s.last, ?3) "
      "WHERE s.rollout = ?1 AND s.first <= ?3 AND s.last >= ?2 "
      "ORDER BY s.rollout, s.first, d.id";
  sqlite3_stmt *pRow;
  int bOwn = 0;
  if (p->pRules == 0) return;
  p->bStored = 1;
  pRow = bxStmt(p->pHome, zItems, pErr);
  bxBind(pRow, pErr, "iii", no, p->pTally ? 0 : iFirst,
      p->pTally ? ROLLOUT_LAST : iLast);
  while (bxStep(pRow, pErr)) {
    const char *zType = bxColumnText(pRow, 1, pErr), *z, *zAfter = 0;
    i64 iTime = sqlite3_column_int64(pRow, 3), n;
    int bTells;
    p->iKey = sqlite3_column_int64(pRow, 0);
    bTells = zType != 0 && (p->iKey & ROLLOUT_LAST) >= iFirst &&
             (p->iKey & ROLLOUT_LAST) <= iLast;
    if (bTells && !bOwn && p->iKey >> 32 == no) {
      beginOwn(p);
      bOwn = 1;
    }
    bTells = bTells && isTelling(p, zType);
    if (!bTells && p->pTally == 0) continue;
    z = bxColumnText(pRow, 2, pErr);
    n = sqlite3_column_bytes(pRow, 2);
    /* one that is damaged, or nested too deeply, says nothing */
    if (bTells && z != 0) zAfter = bxTreeRead(&p->json.tree, z, n, 0, 0, pErr);
    if (p->pTally != 0) tally(p, no, z, n, iTime, zAfter);
    if (zAfter != 0) {
      bxRolloutDeriveWrite(p, p->iKey & ROLLOUT_LAST, iTime, zType, &p->json);
    }
  }
  bxReset(pRow, pErr);
  if (!bOwn) beginOwn(p);
}

void bxRolloutDerivePending(
    RolloutDerive *p, BxStmts *pHome, const RolloutHead *pHead, BxErr *pErr) {
  bxRolloutDeriveBegin(p, pHome, pHead, pErr);
  if (pHead->no == 0 || pHead->iBehind < 0) return;
  bxRolloutDeriveStored(p, pHead->no, pHead->iBehind, pHead->iLast, pErr);
}

void bxRolloutPutAbout(BxStmts *pHome, i64 no, BxErr *pErr) {
  static const char zMeta[] = ROLLOUT_PUT_META;
  static const char zPrompt[] =
      "UPDATE main.rollout__about SET first_user_message = " ROLLOUT_PROMPT(
          "prompt_id") " WHERE no = ?1 AND prompt_id IS NOT NULL "
                       "AND first_user_message IS NULL";
  bxStmtExec(pHome, zMeta, pErr, "i", no);
  bxStmtExec(pHome, zPrompt, pErr, "i", no);
}

/* Derives at most nMax items of a conversation. */
static void derive(BxStmts *pHome, RolloutHead *pHead, i64 nMax, BxErr *pErr) {
  static const char zDone[] =
      "UPDATE main.rollout__heads SET turns = ?2, user_sequence = coalesce("
      "nullif(?3, -1), iif(user_sequence >= nullif(?4, -1), user_sequence, "
      "NULL)), behind = nullif(?4, -1) WHERE no = ?1";
  RolloutDerive tale;
  i64 iTo = pHead->iLast;
  assert(pHead->no > 0 && nMax > 0);
  assert(pHead->iBehind >= 0); /* so that something waits */
  memset(&tale, 0, sizeof(tale));
  tale.bTexts = 1;
  if (iTo - pHead->iBehind >= nMax) iTo = pHead->iBehind + nMax - 1;
  bxRolloutDeriveBegin(&tale, pHome, pHead, pErr);
  bxRolloutDeriveStored(&tale, pHead->no, pHead->iBehind, iTo, pErr);
  bxStmtExec(pHome, zDone, pErr, "iiii", pHead->no, tale.nTurn, tale.iUser,
      iTo < pHead->iLast ? iTo + 1 : -1);
  bxRolloutPutAbout(pHome, pHead->no, pErr);
  bxRolloutDeriveItem(&tale, pErr);
  bxRolloutTextsPut(&tale, pErr);
  bxRolloutPackSome(&tale, pHead->iBehind, iTo, pErr);
  pHead->nTurn = tale.nTurn;
  pHead->iUser = tale.iUser;
  pHead->iBehind = iTo < pHead->iLast ? iTo + 1 : -1;
  bxRolloutDeriveEnd(&tale);
}

void bxRolloutCatchUp(BxStmts *pHome, RolloutHead *pHead, BxErr *pErr) {
  static const char zNext[] =
      "SELECT id FROM main.rollout__heads WHERE behind IS NOT NULL "
      "ORDER BY behind LIMIT 1";
  i64 nLeft = CATCH_UP;
  char *z;
  if (pErr->rc != SQLITE_OK) return;
  if (pHead != 0 && pHead->no > 0 && !pHead->bAnyBehind) return;
  if (pHead != 0 && pHead->no > 0 && pHead->iBehind >= 0) {
    derive(pHome, pHead, ROLLOUT_LAST + 1, pErr);
  }
  while (nLeft > 0 && (z = bxQueryText(pHome, zNext, pErr, "")) != 0) {
    RolloutHead head;
    if (bxRolloutFind(pHome, 0, z, &head, pErr)) {
      /* one for the conversation; what is damaged may be any number */
      i64 n = (i64)((sqlite3_uint64)head.iLast - (sqlite3_uint64)head.iBehind);
      derive(pHome, &head, nLeft, pErr);
      nLeft -= n >= -1 && n < CATCH_UP ? n + 2 : CATCH_UP;
    }
    sqlite3_free(z);
    if (pErr->rc != SQLITE_OK) return;
  }
}
