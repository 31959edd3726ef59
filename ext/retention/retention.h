/*
** retention.h: what is built on the rules of all domains: the plan and
** the sweep. The rules are rows of retention_rules in sql/core.sql. And what no rule
** and nobody else may remove: holds; and the opposite, an erasure.
*/
#ifndef BX_RETENTION_H
#define BX_RETENTION_H

#include "../core/core.h"
#include "../core/vtable.h"
#include "../core/log.h"
#include "../core/table.h"
#include "../core/install.h"

/* The texts of a rule. From RULE_FROM on they are SQL without parameters. */
enum {
  RULE_RULE,
  RULE_DOMAIN,
  RULE_TABLE,
  RULE_REASON,
  RULE_FROM, /* the due view or the table, with its schema */
  RULE_KEY,  /* unique */
  RULE_ROWS, /* a query: the rows that are due; k, bytes, at, blocked (NULL, or why
             ** the row stays), free (whether that is NULL) */
  RULE_PROBLEM, /* why the rule cannot be applied, or NULL */
  RULE_CHOSEN,  /* after FROM: of RULE_ROWS those that the sweep removes next */
  RULE_TEXTS
};

/* One row of retention_rules. */
typedef struct RetentionRule {
  char *az[RULE_TEXTS];
  const char *zNote; /* see BxDue; NULL: no note */
  int eOwn;    /* the sweep writes the receipt: no trigger does. 2: it names a
                     ** table */
  i64 nAge;    /* milliseconds from its time until a row is due */
  i64 nPicked; /* rows that the sweep removes next */
  i64 nGone, nByte; /* that it has removed */
  int bStuck;       /* its rows stay: it is not tried again */
} RetentionRule;

typedef struct RetentionRules {
  RetentionRule *a;
  i64 n, nAlloc;
} RetentionRules;

/* rule.c */
/* Reads the rules of p's schema, for the time iNow. End with
** bxRetentionFree(). */
void bxRetentionRead(RetentionRules *pRules, BxStmts *p, i64 iNow, BxErr *pErr);
void bxRetentionFree(RetentionRules *pRules);
/* Sets a text of a rule. */
void bxRetentionSet(RetentionRule *pRule, int i, char *zOwned, BxErr *pErr);
/* A query, the template zSelect, of the table "rows": the due rows of all rules that can be
** applied, with the rest of the SELECT of each rule. Both texts are freed. Its columns are
** i (the rule's place), domain, tbl, rule, reason, stuck, k, bytes, at, due, blocked,
** free. */
sqlite3_stmt *bxRetentionRows(const RetentionRules *pRules, BxStmts *p,
    char *zRest, char *zSelect, BxErr *pErr);
/* Lists rules that cannot be applied. */
void bxRetentionCheck(BxStmts *p, BxProblems *pOut);
/* The query of retention_plan(). */
sqlite3_stmt *bxRetentionPlan(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
/* The query of retention_report(). */
sqlite3_stmt *bxRetentionReport(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

/* sweep.c */
/* Removes texts of rows that are gone from the body store, where there is one. */
void bxRetentionStored(BxStmts *p, i64 nLimit, BxErr *pErr);
void bxRetentionSweep(BxCall *p);   /* retention_sweep() */
void bxRetentionConfirm(BxCall *p); /* retention_confirm_clock() */

/* hold.c: what nothing may remove while a case is open */
void bxRetentionHold(BxCall *p);
void bxRetentionRelease(BxCall *p);
/* Lets virtual tables note what a hold keeps that was placed. */
void bxRetentionNoteHeld(BxStmts *p, BxErr *pErr);
/* For the domain: whether every hold of the log keeps what it should, and what to
** do otherwise. */
int bxRetentionIsWhole(BxStmts *p, BxErr *pErr);
void bxRetentionMend(BxStmts *p, BxErr *pErr);
/* Problems: holds that the log and the table of what is held do not share, and
** holds on what is gone. */
void bxRetentionCheckHolds(BxStmts *p, BxProblems *pOut);
/* Refuses that p's schema loses its holds. */
void bxRetentionLeave(BxStmts *p, BxErr *pErr);

/* erase.c: everything of a key goes */
/* The first column of a kind in a list "kind=column," and its length, or NULL. */
const char *bxRetentionColumn(const char *zKinds, const char *zKind, int *pn);
void bxRetentionErase(BxCall *p);
/* Refuses an actor or a reason that is not visible text. */
void bxRetentionVisible(
    BxStmts *p, const char *zActor, const char *zReason, BxErr *pErr);
/* Refuses what is held itself: nothing was zDone, "erased". */
void bxRetentionRefuseHeld(BxStmts *p, const char *zKind, const char *zKey,
    const char *zDone, BxErr *pErr);
/* SQLite overwrites what is deleted, until bxRetentionOverwriteEnd() gets what this has
** returned. */
i64 bxRetentionOverwrite(BxStmts *p, BxErr *pErr);
void bxRetentionOverwriteEnd(BxStmts *p, i64 eBefore);
/* SQL: what cannot run in a transaction, and removes what is left in the file. */
#define BX_ERASED_THEN                                                         \
  "'PRAGMA journal_size_limit = 0; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)'"
/* Reads a JSON object of booleans, whose names are in a list with commas around each. 1:
** unpin, 2: remember. */
int bxRetentionOptions(
    BxStmts *p, sqlite3_value *pVal, const char *zNames, BxErr *pErr);
/* What adapters keep in tables of their own, and whether p's schema has it. */
extern const BxRecords bxRetentionAdapters[];
int bxRetentionHasAdapter(BxStmts *p, BxErr *pErr);
void bxRetentionErased(BxCall *p); /* whether nothing of it is left */
/* Problems: keys that are refused without an erasure, and the other way round. */
void bxRetentionCheckErased(BxStmts *p, BxProblems *pOut);

/* redact.c: keys and passwords in what is stored */
extern const struct BxRows bxRetentionSecrets;
void bxRetentionRedact(BxCall *p);

/* The ids of the conversations that a session is, a row each, as they are now: finalize
** it. NULL if it is no session. */
sqlite3_stmt *bxRetentionConversations(
    BxStmts *p, const char *zKind, const char *zKey, BxErr *pErr);

#endif
