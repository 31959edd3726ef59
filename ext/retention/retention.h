/*
** retention.h: what works on all domains: the plan and the sweep (rule.c), holds
** (hold.c), erasures (erase.c) and redactions (redact.c).
**
** They go through the descriptions of core/domain.h: BxDue for rules, BxRecords for
** holds and erasures, BxTexts for redactions. The rules are rows of retention_rules
** (sql/core.sql).
*/
#ifndef BX_RETENTION_H
#define BX_RETENTION_H

#include "../core/core.h"
#include "../core/vtable.h"
#include "../core/log.h"
#include "../core/table.h"
#include "../core/install.h"

/*----------------------------------------------------- rule.c: rules ----*/

/* Lists rules that cannot be applied. */
void bxRetentionCheck(BxStmts *p, BxProblems *pOut);
/* The query of retention_plan(). */
sqlite3_stmt *bxRetentionPlan(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* The query of retention_report(). */
sqlite3_stmt *bxRetentionReport(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

/* Removes texts of rows that are gone from the body store, where there is one. */
void bxRetentionStored(BxStmts *p, i64 nLimit, BxErr *pErr);
void bxRetentionSweep(BxCall *p);   /* retention_sweep() */
void bxRetentionConfirm(BxCall *p); /* retention_confirm_clock() */

/* hold.c: what nothing may remove while a case is open */
/* Reads what an act on a key is given: kind, key, owner (if n is 5), actor and reason; of
** kinds such as "agent, event or text". Takes the lock. NULL on error. */
BxStmts *bxRetentionAct(
    BxCall *p, const char *zDomain, const char *zKinds, int n, const char **az);
/* Refuses with a text, which is freed, unless it is NULL. */
void bxRetentionRefuse(BxErr *pErr, char *zOwned);
/* Reads a JSON object of booleans, whose names are words. 1: unpin, 2: remember. */
int bxRetentionOptions(
    BxStmts *p, sqlite3_value *pVal, const char *zNames, BxErr *pErr);
/* The first column of a kind in a list "kind=column," and its length, or NULL. */
const char *bxRetentionColumn(const char *zKinds, const char *zKind, int *pn);
/* The ids of the conversations that a session is, a row each, as they are now: finalize
** it. NULL if it is no session. */
sqlite3_stmt *bxRetentionConversations(
    BxStmts *p, const char *zKind, const char *zKey, BxErr *pErr);
void bxRetentionStep(BxCall *p); /* retention_hold(), retention_release() */
/* Refuses what is held itself: nothing was zDone, "erased". */
void bxRetentionRefuseHeld(BxStmts *p, const char *zKind, const char *zKey,
    const char *zDone, BxErr *pErr);
/* Whether every hold of the log keeps what it should, and what to do otherwise. */
int bxRetentionIsWhole(BxStmts *p, BxErr *pErr);
void bxRetentionMend(BxStmts *p, BxErr *pErr);
/* Problems: holds that the log and the table do not share, or on what is gone. */
void bxRetentionCheckHolds(BxStmts *p, BxProblems *pOut);
/* Refuses that p's schema loses its holds. */
void bxRetentionLeave(BxStmts *p, BxErr *pErr);

/* erase.c: everything of a key goes */
void bxRetentionErase(BxCall *p);
/* SQLite overwrites what is deleted, until bxRetentionOverwriteEnd() gets what this has
** returned. */
i64 bxRetentionOverwrite(BxStmts *p, BxErr *pErr);
void bxRetentionOverwriteEnd(BxStmts *p, i64 eBefore);
/* SQL: what cannot run in a transaction, and removes what is left in the file. */
#define BX_ERASED_THEN                                                         \
  "'PRAGMA journal_size_limit = 0; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)'"
/* What adapters keep in tables of their own, and whether p's schema has it. */
extern const BxRecords bxRetentionAdapters[];
int bxRetentionHasAdapter(BxStmts *p, BxErr *pErr);
void bxRetentionErased(BxCall *p); /* whether nothing of it is left */
/* Problems: keys that are refused without an erasure, and the other way round. */
void bxRetentionCheckErased(BxStmts *p, BxProblems *pOut);

/* redact.c: keys and passwords in what is stored */
extern const struct BxRows bxRetentionSecrets;
void bxRetentionRedact(BxCall *p);

#endif
