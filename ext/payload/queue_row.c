/*
** queue_row.c: the values of a row of the queue, and their copy while it waits.
**
** Most values are texts. Those of a waiting row are in one allocation with it: each
** allocation of its own would make a call slower.
*/
#include "queue.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

void bxQueueRowFree(Waiting *p) {
  int i;
  if (p == 0) return;
  for (i = 0; i < GIVEN_COUNT; i++) sqlite3_value_free(p->aGiven[i].pVal);
  sqlite3_free(p);
}

void bxQueueGiven(sqlite3_value **aVal, Given *aOut, BxErr *pErr) {
  int i;
  for (i = 0; i < GIVEN_COUNT; i++) {
    Given given = {0, 0, aVal[i]};
    if (sqlite3_value_type(aVal[i]) == SQLITE_TEXT) {
      given.z = (const char *)sqlite3_value_text(aVal[i]);
      given.n = sqlite3_value_bytes(aVal[i]);
      given.pVal = 0;
      if (given.z == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    }
    aOut[i] = given;
  }
}

/* Copies the values to the row, the texts behind it. */
static void keepGiven(Waiting *p, const Given *aGiven, BxErr *pErr) {
  char *z = (char *)&p[1];
  int i;
  for (i = 0; i < GIVEN_COUNT; i++) {
    Given *pOut = &p->aGiven[i];
    if (aGiven[i].z != 0) {
      pOut->z = memcpy(z, aGiven[i].z, (size_t)aGiven[i].n);
      pOut->n = aGiven[i].n;
      z += aGiven[i].n;
    } else {
      pOut->pVal = sqlite3_value_dup(aGiven[i].pVal);
      if (pOut->pVal == 0) bxFail(pErr, SQLITE_NOMEM, "out of memory");
    }
  }
}

Waiting *bxQueueRowNew(sqlite3_value **aVal, i64 iTime, BxErr *pErr) {
  Given aGiven[GIVEN_COUNT];
  Waiting *p = 0;
  i64 nText = 0;
  int i;
  bxQueueGiven(aVal, aGiven, pErr);
  for (i = 0; i < GIVEN_COUNT; i++) nText += aGiven[i].n;
  if (pErr->rc == SQLITE_OK) {
    p = sqlite3_malloc64(sizeof(*p) + (sqlite3_uint64)nText);
  }
  if (p == 0) {
    bxFail(pErr, SQLITE_NOMEM, "out of memory");
    return 0;
  }
  memset(p, 0, sizeof(*p));
  keepGiven(p, aGiven, pErr);
  p->iTime = iTime;
  p->iStaged = bxNow();
  p->nByte = bxBytes(aVal[GIVEN_REQUEST]) + bxBytes(aVal[GIVEN_RESPONSE]);
  if (pErr->rc == SQLITE_OK) return p;
  bxQueueRowFree(p);
  return 0;
}

void bxQueueBind(sqlite3_stmt *pStmt, const Given *aGiven, BxErr *pErr) {
  static const char *const azText[] = {"-b", "--b", "---b", "----b"};
  static const char *const azOther[] = {"-s", "--s", "---s", "----s"};
  int i;
  for (i = 0; i < GIVEN_COUNT; i++) {
    if (aGiven[i].z != 0) {
      bxBind(pStmt, pErr, azText[i], aGiven[i].z, (i64)aGiven[i].n);
    } else {
      bxBind(pStmt, pErr, azOther[i], aGiven[i].pVal);
    }
  }
}
