/*
** guard.c: guards on the tables of the domains that refuse keys that were erased.
** They exist only while something was erased, because they cost a write some time.
**
** A trigger of this kind is named <domain>_made_erased.
*/
#include "retention.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

typedef struct Guard {
  const char *zDomain;
  const char *zName;
  const char *zText; /* after the name */
} Guard;

#define REFUSED(kind, column)                                                  \
  "EXISTS (SELECT 1 FROM retention__refused\n"                                 \
  "              WHERE kind = '" kind "' AND \"key\" = NEW." column ")"
#define RAISE_ERASED(what)                                                     \
  "\nBEGIN\n  SELECT RAISE(ABORT, 'ErasedError: " what " was erased, and "     \
  "writes under it are refused for retention.refuse_days; use another one, "   \
  "or wait until the time in retention_erasures');\nEND"

static const Guard aGuard[] = {
    {"payload", "payload_made_erased",
        "\nBEFORE INSERT ON event_payloads\nWHEN " REFUSED(
            "agent", "agent_id") "\n  OR " REFUSED("event",
            "event_id") "\n  OR " REFUSED("kill_switch", "kill_switch_event_id")
            RAISE_ERASED("what had this agent, event or kill switch")},
    {"rollout", "rollout_made_erased",
        "\nBEFORE INSERT ON rollout_heads\nWHEN " REFUSED("rollout", "id")
            RAISE_ERASED("the conversation with this id")},
    {"cache", "cache_made_erased",
        "\nBEFORE INSERT ON cache_sessions\nWHEN " REFUSED(
            "session", "session_id") RAISE_ERASED("the session with this id")},
};
#define COUNT_GUARDS (sizeof(aGuard) / sizeof(aGuard[0]))

static int refusesKeys(BxStmts *p, BxErr *pErr) {
  return bxNumber(p, "SELECT EXISTS (SELECT 1 FROM main.retention__erased)",
             pErr) != 0;
}

/* Whether a guard is there, or correctly not there. */
static int isRight(BxStmts *p, const Guard *pGuard, int bWanted, BxErr *pErr) {
  if (!bxCarries(p->bx, p->zDb, pGuard->zDomain, pErr)) return 1;
  return (int)bxAskOnce(p,
      "SELECT (SELECT sql FROM main.sqlite_schema WHERE type = 'trigger' "
      "AND name = ?1) IS CASE WHEN ?3 THEN 'CREATE TRIGGER ' || ?1 || ?2 END",
      pErr, "tti", pGuard->zName, pGuard->zText, (i64)bWanted);
}

static void makeRight(
    BxStmts *p, const Guard *pGuard, int bWanted, BxErr *pErr) {
  bxExecPlain(p->bx,
      bxPrintf(pErr, "DROP TRIGGER IF EXISTS \"%w\".%s", p->zDb, pGuard->zName),
      pErr);
  if (!bWanted) return;
  bxExecPlain(p->bx,
      bxPrintf(pErr, "CREATE TRIGGER \"%w\".%s%s", p->zDb, pGuard->zName,
          pGuard->zText),
      pErr);
}

static void guardKeys(BxStmts *p, BxErr *pErr) {
  int bWanted = refusesKeys(p, pErr);
  size_t i;
  for (i = 0; i < COUNT_GUARDS && pErr->rc == SQLITE_OK; i++) {
    if (!isRight(p, &aGuard[i], bWanted, pErr)) {
      makeRight(p, &aGuard[i], bWanted, pErr);
    }
  }
}

void bxRetentionMendGuards(BxStmts *p, BxErr *pErr) {
  guardKeys(p, pErr);
}

int bxRetentionIsGuarded(BxStmts *p, BxErr *pErr) {
  int bWanted = refusesKeys(p, pErr);
  size_t i;
  for (i = 0; i < COUNT_GUARDS && pErr->rc == SQLITE_OK; i++) {
    if (!isRight(p, &aGuard[i], bWanted, pErr)) return 0;
  }
  return 1;
}

void bxRetentionCheckGuards(BxStmts *p, BxProblems *pOut) {
  BxErr err = {SQLITE_OK, 0};
  int bWanted = refusesKeys(p, &err);
  size_t i;
  for (i = 0; i < COUNT_GUARDS && err.rc == SQLITE_OK; i++) {
    if (!isRight(p, &aGuard[i], bWanted, &err)) {
      bxProblem(pOut, aGuard[i].zName,
          bWanted
              ? "trigger is missing or changed, so that what was erased can "
                "come back; run blackbox_install()"
              : "trigger is not needed any more; run blackbox_install()");
    }
  }
  bxUnchecked(pOut, "retention__erased", &err);
}

void bxRetentionNoteHeld(BxStmts *p, BxErr *pErr) {
  const BxModule *pModule;
  for (pModule = p->bx->aModule; pModule->zName != 0; pModule++) {
    sqlite3_stmt *pStmt =
        pModule->xHeld ? bxVtabNames(p, pModule->zName, pErr) : 0;
    while (pStmt != 0 && bxRow(pStmt, pErr)) {
      const char *zName = bxColumnText(pStmt, 0, pErr);
      BxVtab *pVtab =
          zName ? bxVtabIn(p->bx, pModule->zName, p->zDb, zName, pErr) : 0;
      if (pVtab != 0) pModule->xHeld(pVtab, pErr);
    }
    sqlite3_finalize(pStmt);
  }
}
