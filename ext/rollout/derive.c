/*
** derive.c: what new items of a conversation say: turns, rollbacks, compactions,
** and what lists show.
**
** An append and an import tell the items that they write. Items of plain SQL are
** told by the next call that writes; a call that reads tells them in memory.
*/
#include "rollout.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

void bxRolloutTaleBegin(
    RolloutTale *p, BxStmts *pHome, const RolloutHead *pHead, BxErr *pErr) {
  p->pHome = pHome;
  p->pErr = pErr;
  p->no = pHead->no;
  p->nTurn = pHead->nTurn;
  p->iUser = pHead->no > 0 ? pHead->iUser : -1;
  p->iReview = p->iPrompt = p->iPromptKey = -1;
  p->bHasPrompt = pHead->no > 0 && pHead->nTurn > 0;
  p->pRules = pErr->rc == SQLITE_OK ? bxRolloutRules(pHome, 0, pErr) : 0;
}

void bxRolloutTaleEnd(RolloutTale *p) {
  int i;
  for (i = 0; i < BX_KINDS; i++) sqlite3_free(p->azNew[i]);
  sqlite3_free(p->zPrompt);
  sqlite3_free(p->zLast);
  sqlite3_free(p->aTurn);
  sqlite3_free(p->aMark);
  bxRolloutUsageFree(p);
  bxTreeFree(&p->json.tree);
}

/*--------------------------------------------------------- the readings ----*/

/* Finds the places of a type: iRule and nRule. */
static void findRules(RolloutTale *p, const char *zType) {
  const BxPlaces *pAll = &p->pRules->places;
  i64 n = (i64)strlen(zType), i = 0;
  if (n <= ROLLOUT_MAX_NAME && strcmp(p->zType, zType) == 0) return;
  while (i < pAll->n && !bxSpelled(zType, n, pAll->a[i].az[BX_PLACE_TYPE])) i++;
  p->iRule = i;
  while (i < pAll->n && strcmp(pAll->a[i].az[BX_PLACE_TYPE],
                            pAll->a[p->iRule].az[BX_PLACE_TYPE]) == 0) {
    i++;
  }
  p->nRule = i - p->iRule;
  sqlite3_snprintf((int)sizeof(p->zType), p->zType, "%s", zType);
}

/* Copies a name as it is compared, or "" if it is not a plain one. */
static void readPart(RolloutSpan token, char zName[ROLLOUT_MAX_NAME + 1]) {
  zName[0] = 0;
  if (token.z != 0 && bxRolloutName(token, zName) > 0) bxSpell(zName);
}

/* Tests a reading with the parts that are known of an item: -1 if it does not
** fit, 1 if it does, 0 if the payload must be read. */
static int testParts(const RolloutTale *p, BxTest test) {
  const BxCondition *pTest = p->pRules->places.aCondition + test.i;
  const BxCondition *pEnd = pTest + test.n;
  int eResult = 1;
  for (; pTest < pEnd; pTest++) {
    const char *zName = pTest->cPart == 't'   ? p->zPayloadType
                        : pTest->cPart == 'r' ? p->zRole
                                              : "";
    if (*zName == 0) {
      eResult = 0;
    } else if (pTest->zText ? strcmp(zName, pTest->zText) != 0
                            : !pTest->bThere) {
      return -1;
    }
  }
  return eResult;
}

/* Whether items of this type may say something. */
static int isTelling(RolloutTale *p, const char *zType) {
  findRules(p, zType);
  return p->nRule > 0 || sqlite3_stricmp(zType, "compacted") == 0 ||
         bxSpelled(zType, (i64)strlen(zType), "eventmsg");
}

/*---------------------------------------------------------------- turns ----*/

/* The type and the item with which turn ?2 of conversation ?1 begins, the newest
** review, and whether a rollback follows the turn: if it is an item of its own,
** which is the usual case; and if it may be one that it shares. Both go from the
** newest turn back, which is mostly the one. */
static const char zOwnTurn[] =
    "SELECT d.type, d.id, a.reviewed, EXISTS (SELECT 1 FROM "
    "main.rollout__marks "
    "AS m WHERE m.id BETWEEN d.id AND (?1 << 32) + 4294967295 "
    "AND m.kind = 'rollback') "
    "FROM main.rollout__marks AS t CROSS JOIN main.rollout__data AS d "
    "ON d.id = t.id LEFT JOIN main.rollout__about AS a ON a.no = ?1 "
    "WHERE t.id BETWEEN ?1 << 32 AND (?1 << 32) + 4294967295 "
    "AND t.number = ?2 AND t.kind = 'turn' ORDER BY t.id DESC LIMIT 1";
static const char zLastTurn[] =
    "SELECT (SELECT d.type FROM main.rollout__data AS d WHERE d.id = t.id), "
    "t.id, (SELECT reviewed FROM main.rollout__about AS a WHERE a.no = ?1), "
    "EXISTS (SELECT 1 FROM main.rollout__segments AS s2 JOIN "
    "main.rollout__marks AS m ON m.id BETWEEN (s2.owner << 32) + "
    "max(s2.first, t.id & 4294967295) AND (s2.owner << 32) + s2.last "
    "WHERE s2.rollout = ?1 AND m.kind = 'rollback') "
    "FROM main.rollout__segments AS s CROSS JOIN main.rollout__marks AS t "
    "ON t.id BETWEEN (s.owner << 32) + s.first AND (s.owner << 32) + s.last "
    "AND t.number = ?2 AND t.kind = 'turn' WHERE s.rollout = ?1 "
    "ORDER BY s.first DESC, t.id DESC LIMIT 1";

/* The source of users' messages of a type; -1 if there are two. */
static int sourceOf(RolloutTale *p, const char *zType) {
  int bEvent = -1;
  i64 i;
  findRules(p, zType);
  for (i = p->iRule; i < p->iRule + p->nRule; i++) {
    const BxPlace *pPlace = &p->pRules->places.a[i];
    if (pPlace->eKind != BX_KIND_USER) continue;
    if (bEvent >= 0 && bEvent != (pPlace->eSource == BX_SOURCE_EVENT))
      return -1;
    bEvent = pPlace->eSource == BX_SOURCE_EVENT;
  }
  return bEvent;
}

/* Reads what began the last turn, with one of these queries. Returns whether it
** has found something. */
static int askLast(RolloutTale *p, const char *zSql) {
  sqlite3_stmt *pRow = bxStmt(p->pHome, zSql, p->pErr);
  const char *zType;
  int bFound;
  bxBind(pRow, p->pErr, "ii", p->no, p->nTurn - 1);
  bFound = bxRow(pRow, p->pErr);
  if (bFound) {
    if (p->iReview < 0 && sqlite3_column_type(pRow, 2) != SQLITE_NULL) {
      p->iReview = sqlite3_column_int64(pRow, 2);
    }
    zType = bxColumnText(pRow, 0, p->pErr);
    if (zType != 0 && !sqlite3_column_int(pRow, 3)) {
      p->bLastEvent = sourceOf(p, zType);
      p->iLastKey = sqlite3_column_int64(pRow, 1);
      p->eLast = 1;
    }
  }
  bxDone(pRow, p->pErr);
  return bFound;
}

/* Finds what began the last turn in the database. */
static void findLast(RolloutTale *p) {
  p->eLast = -1;
  if (!askLast(p, zOwnTurn)) askLast(p, zLastTurn);
}

/* What a user says in a payload of a type; NULL if nothing. */
static char *readUser(
    RolloutTale *p, const char *zType, const char *zPayload, i64 nPayload) {
  char *z = 0;
  i64 i;
  findRules(p, zType);
  if (bxTreeRead(&p->json.tree, zPayload, nPayload, 0, 0, p->pErr) == 0) {
    return 0;
  }
  for (i = p->iRule; i < p->iRule + p->nRule; i++) {
    const BxPlace *pPlace = &p->pRules->places.a[i];
    if (pPlace->eKind == BX_KIND_USER &&
        bxRolloutFits(p->pRules, pPlace->test, &p->json, p->pErr)) {
      z = bxRolloutValue(pPlace, &p->json, p->pErr);
      p->bLastEvent = pPlace->eSource == BX_SOURCE_EVENT;
      break;
    }
  }
  return z;
}

/* Reads the text of the message that began the last turn. */
static void readLast(RolloutTale *p) {
  static const char zItem[] =
      "SELECT type, payload FROM main.rollout__data WHERE id = ?1";
  sqlite3_stmt *pRow;
  const char *zType, *zPayload;
  if (p->bRead) return;
  p->bRead = 1;
  if (p->last.z != 0) {
    p->zLast = readUser(p, p->zLastType, p->last.z, p->last.n);
    return;
  }
  pRow = bxStmt(p->pHome, zItem, p->pErr);
  bxBind(pRow, p->pErr, "i", p->iLastKey);
  if (bxRow(pRow, p->pErr)) {
    zType = bxColumnText(pRow, 0, p->pErr);
    zPayload = bxColumnText(pRow, 1, p->pErr);
    if (zType != 0 && zPayload != 0)
      p->zLast = readUser(p, zType, zPayload, sqlite3_column_bytes(pRow, 1));
  }
  bxDone(pRow, p->pErr);
}

/* Whether a message from this source may be the one that began the last turn,
** written again: from another source, or soon after a review began. */
static int mayRepeat(RolloutTale *p, int bEvent, i64 iSequence) {
  if (p->eLast == 0) {
    p->eLast = -1;
    if (p->no > 0 && p->nTurn > 0) findLast(p);
  }
  return p->eLast > 0 && (p->bLastEvent != bEvent ||
                             (p->iReview >= 0 && p->iReview >= iSequence - 20));
}

/* Whether it is. The payload in p->json may change. */
static int isRepeated(
    RolloutTale *p, const char *z, int bEvent, i64 iSequence) {
  if (!mayRepeat(p, bEvent, iSequence)) return 0;
  readLast(p);
  return mayRepeat(p, bEvent, iSequence) &&
         strcmp(z ? z : "", p->zLast ? p->zLast : "") == 0;
}

static void addMark(RolloutMark **pa, i64 *pn, i64 *pnAlloc, i64 iSequence,
    i64 iFirst, BxErr *pErr) {
  RolloutMark *a = bxAdd(pa, pn, pnAlloc, sizeof(*a), pErr);
  if (a == 0) return;
  a->iSequence = iSequence;
  a->iFirst = iFirst;
}

/* Notes the first user message, or the first goal. */
static void prompt(RolloutTale *p, const char *z, i64 iSequence) {
  static const char zHas[] =
      "SELECT prompt_id IS NOT NULL FROM main.rollout__about WHERE no = ?1";
  if (p->bHasPrompt) return;
  p->bHasPrompt = 1;
  if (p->no > 0 && bxAsk(p->pHome, zHas, p->pErr, "i", p->no)) return;
  p->iPrompt = iSequence;
  if (p->bStored) p->iPromptKey = p->iKey;
  if (z != 0) p->zPrompt = bxPrintf(p->pErr, "%s", z);
}

/* A turn begins with a message whose text is zOwned or, if bRead is 0, not
** known. */
static void addTurn(RolloutTale *p, char *zOwned, int bRead, int bEvent,
    RolloutSpan payload, i64 iSequence) {
  addMark(
      &p->aTurn, &p->nTurnNew, &p->nTurnAlloc, iSequence, p->nTurn++, p->pErr);
  sqlite3_free(p->zLast);
  p->zLast = zOwned;
  p->bRead = bRead;
  p->last = payload;
  if (p->bStored) {
    p->last.z = 0;
    p->iLastKey = p->iKey;
  }
  sqlite3_snprintf((int)sizeof(p->zLastType), p->zLastType, "%s", p->zType);
  p->bLastEvent = bEvent;
  p->eLast = 1;
}

/* Takes a user's message; frees zOwned. */
static void tellUser(RolloutTale *p, char *zOwned, int bEvent,
    RolloutSpan payload, i64 iSequence) {
  if (bxRolloutIsPreamble(p->pRules, zOwned) ||
      isRepeated(p, zOwned, bEvent, iSequence)) {
    sqlite3_free(zOwned);
    return;
  }
  prompt(p, zOwned, iSequence);
  addTurn(p, zOwned, 1, bEvent, payload, iSequence);
}

/* Takes an item that is surely a user's message, if its text need not be known:
** most of them. Returns 0 otherwise, also if a text in it may begin as a
** preamble does: with its first byte, or with an escape. */
static int tellQuickly(RolloutTale *p, const BxPlace *pPlace,
    const RolloutItem *pItem, i64 iSequence) {
  if (pPlace->eKind != BX_KIND_USER || !p->bHasPrompt || p->pJson != &p->json ||
      p->bStored || bxBytesMeet(&pItem->first, &p->pRules->first) ||
      mayRepeat(p, pPlace->eSource == BX_SOURCE_EVENT, iSequence)) {
    return 0;
  }
  if (p->iUser < 0) p->iUser = iSequence;
  addTurn(
      p, 0, 0, pPlace->eSource == BX_SOURCE_EVENT, pItem->payload, iSequence);
  return 1;
}

/*---------------------------------------------------------------- marks ----*/

/* Where the turn with this number begins; -1 if there is none. */
static i64 findTurn(RolloutTale *p, i64 iNumber) {
  static const char zTurn[] =
      "SELECT coalesce((SELECT t.id & 4294967295 FROM main.rollout__segments "
      "AS s CROSS JOIN main.rollout__marks AS t ON t.id BETWEEN "
      "(s.owner << 32) + s.first AND (s.owner << 32) + s.last "
      "AND t.number = ?2 AND t.kind = 'turn' WHERE s.rollout = ?1 "
      "ORDER BY s.first DESC, t.id DESC LIMIT 1), -1)";
  i64 i;
  for (i = p->nTurnNew - 1; i >= 0; i--) {
    if (p->aTurn[i].iFirst == iNumber) return p->aTurn[i].iSequence;
  }
  return p->no > 0 ? bxAsk(p->pHome, zTurn, p->pErr, "ii", p->no, iNumber) : -1;
}

static void tellRollback(
    RolloutTale *p, i64 iSequence, const RolloutItem *pItem) {
  static const char zBack[] =
      "SELECT CAST(coalesce(?1 ->> 'num_turns', ?1 ->> 'numTurns') AS INTEGER)";
  i64 nBack =
      bxAsk(p->pHome, zBack, p->pErr, "b", pItem->payload.z, pItem->payload.n);
  i64 iNumber = nBack < p->nTurn ? p->nTurn - nBack : 0, iFirst;
  if (iNumber >= p->nTurn || p->pErr->rc != SQLITE_OK) return;
  iFirst = findTurn(p, iNumber);
  if (iFirst < 0) return;
  addMark(&p->aMark, &p->nMark, &p->nMarkAlloc, iSequence, iFirst, p->pErr);
  p->nTurn = iNumber;
  p->eLast = -1;
}

/* Reads the payload, once for an item. */
static int seePayload(RolloutTale *p, const RolloutItem *pItem) {
  if (p->pJson != &p->json) return 1;
  if (p->json.tree.z == pItem->payload.z) return 1;
  if (bxTreeRead(&p->json.tree, pItem->payload.z, pItem->payload.n, 0, 0,
          p->pErr) != 0)
    return 1;
  p->json.tree.z = 0;
  return 0; /* damaged, or nested too deeply: it says nothing */
}

static int isArray(RolloutTale *p, const char *zPath) {
  int i = bxRolloutPlace(p->pJson, zPath);
  return i >= 0 && BX_TREE_KIND(&p->pJson->tree, i) == '[';
}

static int isRollback(RolloutTale *p, const RolloutItem *pItem) {
  char *z;
  int i, bSame;
  if (*p->zPayloadType) return strcmp(p->zPayloadType, "threadrolledback") == 0;
  if (!seePayload(p, pItem)) return 0;
  i = bxRolloutPlace(p->pJson, "$.type");
  if (i < 0 || BX_TREE_KIND(&p->pJson->tree, i) != '"') return 0;
  z = bxPlaceText(&p->pJson->tree, i, p->pErr);
  bSame = z != 0 && bxSpelled(z, (i64)strlen(z), "threadrolledback");
  sqlite3_free(z);
  return bSame;
}

static void tellMarks(RolloutTale *p, i64 iSequence, const char *zType,
    const RolloutItem *pItem) {
  /* a reading of somebody's own may begin a turn with such an item */
  if (p->nTurnNew > 0 && p->aTurn[p->nTurnNew - 1].iSequence == iSequence) {
    return;
  }
  if (sqlite3_stricmp(zType, "compacted") == 0) {
    if (seePayload(p, pItem) && (isArray(p, "$.replacement_history") ||
                                    isArray(p, "$.replacementHistory"))) {
      addMark(&p->aMark, &p->nMark, &p->nMarkAlloc, iSequence, -1, p->pErr);
    }
  } else if (bxSpelled(zType, (i64)strlen(zType), "eventmsg") &&
             isRollback(p, pItem)) {
    tellRollback(p, iSequence, pItem);
  }
}

/*---------------------------------------------------------------- items ----*/

/* Takes a value that a reading has found; frees it. */
static void tellFact(RolloutTale *p, const BxPlace *pPlace, char *zOwned,
    RolloutSpan payload, i64 iSequence) {
  switch (pPlace->eKind) {
    case BX_KIND_USER:
      if (p->iUser < 0) p->iUser = iSequence;
      tellUser(
          p, zOwned, pPlace->eSource == BX_SOURCE_EVENT, payload, iSequence);
      return;
    case BX_KIND_GOAL:
      if (p->iUser < 0) p->iUser = iSequence;
      prompt(p, zOwned, iSequence);
      break;
    case BX_KIND_REVIEW:
      p->iReview = iSequence;
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

void bxRolloutTell(RolloutTale *p, i64 iSequence, const char *zType,
    const RolloutItem *pItem, RolloutJson *pJson) {
  unsigned mTold = 1u << BX_KIND_LINE | 1u << BX_KIND_START;
  i64 i, iRule, nRule;
  if (p->pErr->rc != SQLITE_OK || pItem->payload.z == 0) return;
  p->json.tree.z = 0;
  p->pJson = pJson != 0 ? pJson : &p->json;
  findRules(p, zType);
  p->zPayloadType[0] = p->zRole[0] = 0;
  if (!pItem->bOdd) {
    readPart(pItem->payloadType, p->zPayloadType);
    readPart(pItem->role, p->zRole);
  }
  iRule = p->iRule;
  nRule = p->nRule;
  for (i = iRule; i < iRule + nRule && p->pErr->rc == SQLITE_OK; i++) {
    const BxPlace *pPlace = &p->pRules->places.a[i];
    int eFits = testParts(p, pPlace->test);
    /* what is said counts once, whatever ways there are to read it; how lines of
    ** text begin is for an import */
    if (eFits < 0 || mTold >> pPlace->eKind & 1) continue;
    if ((eFits == 0 || !tellQuickly(p, pPlace, pItem, iSequence))) {
      if (!seePayload(p, pItem) ||
          !bxRolloutFits(p->pRules, pPlace->test, p->pJson, p->pErr)) {
        continue;
      }
      if (pPlace->eKind == BX_KIND_USAGE) {
        bxRolloutTellUsage(p, pPlace, iSequence);
      } else {
        tellFact(p, pPlace, bxRolloutValue(pPlace, p->pJson, p->pErr),
            pItem->payload, iSequence);
      }
    }
    mTold |= 1u << pPlace->eKind;
  }
  tellMarks(p, iSequence, zType, pItem);
}

/*-------------------------------------------------------------- writing ----*/

static void putAbout(RolloutTale *p, BxErr *pErr) {
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
  if (p->iPrompt >= 0) {
    bxDo(p->pHome, zPrompt, pErr, "iit", p->no,
        p->iPromptKey >= 0 ? p->iPromptKey : bxRolloutKey(p->no, p->iPrompt),
        p->zPrompt);
  }
  if (az[BX_KIND_TITLE] != 0) {
    bxDo(p->pHome, zTitle, pErr, "it", p->no, az[BX_KIND_TITLE]);
  }
  if (az[BX_KIND_CWD] != 0 || az[BX_KIND_MODEL] != 0 ||
      az[BX_KIND_BRANCH] != 0 || p->bReviewed) {
    bxDo(p->pHome, zNewest, pErr, p->bReviewed ? "ittti" : "ittt", p->no,
        az[BX_KIND_CWD], az[BX_KIND_MODEL], az[BX_KIND_BRANCH], p->iReview);
  }
}

void bxRolloutTalePut(RolloutTale *p, BxErr *pErr) {
  static const char zTurn[] =
      "INSERT INTO main.rollout__marks(id, kind, number) "
      "VALUES (?1, 'turn', ?2)";
  static const char zMark[] =
      "INSERT INTO main.rollout__marks(id, kind, number) "
      "VALUES (?1, iif(?2 < 0, 'compaction', 'rollback'), nullif(?2, -1))";
  i64 i;
  for (i = p->nTurnOld; i < p->nTurnNew; i++) {
    bxDo(p->pHome, zTurn, pErr, "ii",
        bxRolloutKey(p->no, p->aTurn[i].iSequence), p->aTurn[i].iFirst);
  }
  for (i = p->nMarkOld; i < p->nMark; i++) {
    bxDo(p->pHome, zMark, pErr, "ii",
        bxRolloutKey(p->no, p->aMark[i].iSequence), p->aMark[i].iFirst);
  }
  bxRolloutUsagePut(p, pErr); /* with the model that was known before */
  putAbout(p, pErr);
}

/*---------------------------------------------------------- stored items ----*/

#define CATCH_UP 1000 /* items of other conversations, at most, in one call */

/* From here on the items are those of the conversation itself. */
static void beginOwn(RolloutTale *p) {
  int i;
  for (i = 0; i < BX_KINDS; i++) {
    sqlite3_free(p->azNew[i]);
    p->azNew[i] = 0;
  }
  bxRolloutUsageFree(p);
  p->aUsage = 0;
  p->nUsage = p->nUsageAlloc = 0;
  p->iReview = -1;
  p->bReviewed = 0;
  p->nTurnOld = p->nTurnNew;
  p->nMarkOld = p->nMark;
}

void bxRolloutTellStored(
    RolloutTale *p, i64 no, i64 iFirst, i64 iLast, BxErr *pErr) {
  static const char zItems[] =
      "SELECT d.id, d.type, d.payload FROM main.rollout__segments AS s "
      "CROSS JOIN main.rollout__data AS d ON d.id BETWEEN (s.owner << 32) + "
      "max(s.first, ?2) AND (s.owner << 32) + min(s.last, ?3) "
      "WHERE s.rollout = ?1 AND s.first <= ?3 AND s.last >= ?2 "
      "ORDER BY s.rollout, s.first, d.id";
  sqlite3_stmt *pRow;
  int bOwn = 0;
  if (p->pRules == 0) return;
  p->bStored = 1;
  pRow = bxStmt(p->pHome, zItems, pErr);
  bxBind(pRow, pErr, "iii", no, iFirst, iLast);
  while (bxRow(pRow, pErr)) {
    RolloutItem item;
    const char *zType = bxColumnText(pRow, 1, pErr);
    p->iKey = sqlite3_column_int64(pRow, 0);
    if (!bOwn && p->iKey >> 32 == no) {
      beginOwn(p);
      bOwn = 1;
    }
    if (zType == 0 || !isTelling(p, zType)) continue;
    memset(&item, 0, sizeof(item));
    item.payload.z = bxColumnText(pRow, 2, pErr);
    item.payload.n = sqlite3_column_bytes(pRow, 2);
    bxRolloutTell(p, p->iKey & ROLLOUT_LAST, zType, &item, 0);
  }
  bxDone(pRow, pErr);
  if (!bOwn) beginOwn(p);
}

void bxRolloutTellPending(
    RolloutTale *p, BxStmts *pHome, const RolloutHead *pHead, BxErr *pErr) {
  bxRolloutTaleBegin(p, pHome, pHead, pErr);
  if (pHead->no == 0 || pHead->iBehind < 0) return;
  bxRolloutTellStored(p, pHead->no, pHead->iBehind, pHead->iLast, pErr);
}

void bxRolloutPutAbout(BxStmts *pHome, i64 no, BxErr *pErr) {
  static const char zMeta[] = ROLLOUT_PUT_META;
  static const char zPrompt[] =
      "UPDATE main.rollout__about SET first_user_message = " ROLLOUT_PROMPT(
          "prompt_id") " WHERE no = ?1 AND prompt_id IS NOT NULL "
                       "AND first_user_message IS NULL";
  bxDo(pHome, zMeta, pErr, "i", no);
  bxDo(pHome, zPrompt, pErr, "i", no);
}

/* Derives at most nMax items of a conversation. */
static void derive(BxStmts *pHome, RolloutHead *pHead, i64 nMax, BxErr *pErr) {
  static const char zDone[] =
      "UPDATE main.rollout__heads SET turns = ?2, user_sequence = "
      "coalesce(user_sequence, nullif(?3, -1)), behind = nullif(?4, -1) "
      "WHERE no = ?1";
  RolloutTale tale;
  i64 iTo = pHead->iLast;
  memset(&tale, 0, sizeof(tale));
  if (iTo - pHead->iBehind >= nMax) iTo = pHead->iBehind + nMax - 1;
  bxRolloutTaleBegin(&tale, pHome, pHead, pErr);
  bxRolloutTellStored(&tale, pHead->no, pHead->iBehind, iTo, pErr);
  bxDo(pHome, zDone, pErr, "iiii", pHead->no, tale.nTurn, tale.iUser,
      iTo < pHead->iLast ? iTo + 1 : -1);
  bxRolloutPutAbout(pHome, pHead->no, pErr);
  bxRolloutTalePut(&tale, pErr);
  bxRolloutSearchPut(pHome, tale.pRules, pHead->no, pHead->iBehind, iTo, pErr);
  pHead->nTurn = tale.nTurn;
  pHead->iUser = tale.iUser;
  pHead->iBehind = iTo < pHead->iLast ? iTo + 1 : -1;
  bxRolloutTaleEnd(&tale);
}

void bxRolloutCatchUp(BxStmts *pHome, RolloutHead *pHead, BxErr *pErr) {
  static const char zNext[] =
      "SELECT coalesce((SELECT no FROM main.rollout__heads "
      "WHERE behind IS NOT NULL ORDER BY behind LIMIT 1), 0)";
  static const char zId[] = "SELECT id FROM main.rollout__heads WHERE no = ?1";
  i64 nLeft = CATCH_UP, no;
  if (pErr->rc != SQLITE_OK) return;
  if (pHead != 0 && pHead->no > 0 && !pHead->bAnyBehind) return;
  if (pHead != 0 && pHead->no > 0 && pHead->iBehind >= 0) {
    derive(pHome, pHead, ROLLOUT_LAST + 1, pErr);
  }
  while (nLeft > 0 && (no = bxAsk(pHome, zNext, pErr, "")) > 0) {
    char *z = bxAskText(pHome, zId, pErr, "i", no);
    RolloutHead head;
    if (z != 0 && bxRolloutFind(pHome, 0, z, &head, pErr)) {
      i64 n = head.iLast - head.iBehind + 2; /* one for the conversation */
      nLeft -= n;
      derive(pHome, &head, nLeft + n, pErr);
    }
    sqlite3_free(z);
    if (pErr->rc != SQLITE_OK) return;
  }
}
