/*
** evidence.h: what the files of the evidence buffer share.
**
**   state.c     the buffer's settings and counters, read
**   approve.c   what an approved action keeps, as SQL
**   overflow.c  the second tier of a buffer in temp
**   store.c     rows written and read, settings
**   check.c     what blackbox_check() finds beside the view of the SQL
**   act.c       the functions that prune, clear, flush and count
**   export.c    the recording as JSON: to save, to replay
**   buffer.c    the virtual table's methods, and nothing else
**
** Each calls those above it and none below.
**
** A row lies in one of three places: in the memory of a buffer in temp, in
** the overflow tables of a file (written there from temp), or in the file of
** a buffer that is no temporary one.
*/
#ifndef BX_EVIDENCE_H
#define BX_EVIDENCE_H

#include "../core/core.h"

extern const char bxSqlEvidenceBuffer[]; /* sql/evidence_buffer.sql */

#define EV_MODULE "evidence_buffer"
#define EV_COLUMNS                                                             \
  "id,timestamp,action,screenshot,size_bytes,pruned,pinned,storage,value"

#define EV_MEMORY 0
#define EV_OVERFLOW 1
#define EV_FILE 2

/* Bytes counted for a row beside its action and screenshot. */
#define EV_ROW_BYTES 100

typedef struct EvBuffer {
  BxVtab base;
  int bTemp;  /* in schema temp: memory first, overflow possible */
  int bDisk;  /* its schema has a file */
  int bKnown; /* its version was looked at */
} EvBuffer;

/* The one row of the state table. */
typedef struct EvState {
  i64 nMax;          /* max_size_bytes */
  i64 nFree;         /* screenshots that are not pinned */
  i64 nKeep;         /* how many of them may stay; -1: any number */
  double rThreshold; /* prune_threshold */
  i64 nBytes;        /* of all rows, both tiers */
  i64 nPinned;       /* of those, bytes of pinned rows */
  i64 nMemory;       /* of those, bytes in memory */
  i64 nAction;       /* rows */
  i64 nScreenshot;   /* rows with a screenshot */
  i64 nOverflow;     /* rows in the overflow */
  i64 iLast;         /* highest rid given */
  int bRated;        /* rows are rated by confidence */
  char *zOverflow;   /* schema of the overflow; NULL for none */
  char *zOwner;      /* key of this buffer's rows there */
  char *zClaim;      /* shows that they are still this buffer's */
} EvState;

/* The parameters of CREATE VIRTUAL TABLE; -1 and NULL where not given. */
typedef struct EvParam {
  char zMax[40], zThreshold[40], zPolicy[40], zShots[40];
  char zOverflow[200], zResume[100];
} EvParam;

/*----------------------------------------------------------- state.c ----*/

/* The tables are there. Reads nothing, as a read in a transaction must not come
** before the first write. */
void bxEvExpectTables(EvBuffer *p, BxErr *pErr);
/* They are of a version that this module knows. */
void bxEvExpectVersion(EvBuffer *p, i64 iVersion, BxErr *pErr);
/* Reads the state table's row, and sees that its version is one to know. */
void bxEvLoadState(EvBuffer *p, EvState *pState, BxErr *pErr);
/* The second part alone, for readers; looks once. */
void bxEvExpectKnown(EvBuffer *p, BxErr *pErr);
/* Frees the texts; the numbers stay. */
void bxEvFreeState(EvState *pState);
/* A number of bytes or rows. One that cannot be is damage, which blackbox_check()
** tells; it must not overflow a sum. */
i64 bxEvSizeColumn(sqlite3_stmt *pStmt, int iCol);

/*----------------------------------------------------------- store.c ----*/

/* Writes the first state row from the parameters. */
void bxEvFirstState(EvBuffer *p, const EvParam *pParam, BxErr *pErr);
/* One setting, by name: "max_screenshots", 20. */
void bxEvSet(EvBuffer *p, const char *zName, sqlite3_value *pVal, BxErr *pErr);

/* A row as a statement gives it. NULL: not given, or not changed. */
typedef struct EvRow {
  sqlite3_value *pId, *pTimestamp, *pAction, *pScreenshot, *pPinned;
  int bReplace;    /* an existing id is updated */
  int bHasPicture; /* pScreenshot was given, as NULL or a blob */
} EvRow;

/* Returns the rid of the new (or replaced) row. */
i64 bxEvStore(EvBuffer *p, EvRow *pRow, BxErr *pErr);
void bxEvChange(EvBuffer *p, i64 iRow, EvRow *pRow, BxErr *pErr);
void bxEvDelete(EvBuffer *p, i64 iRow, BxErr *pErr);
/*
** Prepares zHere; with an overflow zBoth, where ?2 is the owner and "over."
** marks the overflow's schema.
*/
sqlite3_stmt *bxEvPrepareTiers(
    EvBuffer *p, const char *zHere, const char *zBoth, BxErr *pErr);
/* Statements that read the action or the screenshot of row ?1. */
sqlite3_stmt *bxEvReadAction(EvBuffer *p, BxErr *pErr);
sqlite3_stmt *bxEvReadScreenshot(EvBuffer *p, BxErr *pErr);
/*
** All rows as a FROM term with columns rid, id, timestamp, pinned, pruned,
** place, action: both tiers. An action that is gone is NULL. Free the text with
** sqlite3_free().
*/
char *bxEvActions(EvBuffer *p, BxErr *pErr);
/* One command of the buffer's own view: prune, hold, clear. */
void bxEvDo(EvBuffer *p, const char *zVerb, const char *zRule, i64 nAmount,
    i64 iRow, BxErr *pErr);
/* Whether n bytes begin, after white space, as a JSON object does. */
int bxEvIsObject(const char *z, int n);

/*-------------------------------------------------------- overflow.c ----*/

/* Prepares SQL in which "over." marks the overflow's schema. */
sqlite3_stmt *bxEvPrepareOver(
    EvBuffer *p, const EvState *pState, const char *zTemplate, BxErr *pErr);
/* Prepares SQL made with bxEvActions(). */
sqlite3_stmt *bxEvPrepareActions(EvBuffer *p, const char *zSql, BxErr *pErr);
/* Sees that schema zDb can take rows, and registers an owner. */
void bxEvOverflowOpen(
    EvBuffer *p, const char *zDb, const char *zResume, BxErr *pErr);
/* Moves the oldest rows from memory until it holds nGoal bytes or less. */
i64 bxEvOverflowMove(EvBuffer *p, EvState *pState, i64 nGoal, BxErr *pErr);
/* Brings one row back into memory. */
void bxEvOverflowBack(EvBuffer *p, EvState *pState, i64 iRow, BxErr *pErr);
/* Puts the buffer's name into the list of owners. */
void bxEvOverflowRename(EvBuffer *p, BxErr *pErr);
/* Begins an act that writes there: the first write, which waits for others, and
** an error when the evidence belongs to another buffer by now. */
void bxEvOverflowClaim(EvBuffer *p, EvState *pState, BxErr *pErr);
/* The error alone, for an act that is swept up afterwards: asked before
** anything changes, and none when the file cannot be read. */
void bxEvOverflowOurs(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Removes over there what the buffer has let go. */
void bxEvOverflowSweep(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Approves the actions over there. */
void bxEvOverflowApprove(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Lets go of everything this buffer has there. */
void bxEvOverflowDrop(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Rates overflowed rows that have no confidence yet. */
void bxEvOverflowRate(EvBuffer *p, const EvState *pState, BxErr *pErr);

/*--------------------------------------------------------- approve.c ----*/

/* Highest confidence among an action's strategies; -1 when there is none.
** 'confidence-based' retention goes by it. A strategy that says nothing of its
** confidence has the weight of its type. */
#define EV_BEST(action)                                                        \
  "coalesce((SELECT max(CASE WHEN type <> 'object' THEN NULL WHEN "            \
  "json_type(value, '$.confidence') IN ('integer', 'real') THEN "              \
  "json_extract(value, '$.confidence') ELSE CASE json_extract(value, "         \
  "'$.type') WHEN 'cdp_semantic' THEN 0.95 WHEN 'cdp_power' THEN 0.9 "         \
  "WHEN 'dom_selector' THEN 0.85 WHEN 'evidence_scoring' THEN 0.8 "            \
  "WHEN 'css_selector' THEN 0.75 WHEN 'vision_ocr' THEN 0.7 "                  \
  "WHEN 'coordinates' THEN 0.6 END END) FROM json_each(" action                \
  " -> '$.fallbackChain.strategies')), -1)"
/* Whether an action, when it is JSON, is an object. */
#define EV_OBJECT(action)                                                      \
  "(" action " GLOB '{*' OR ltrim(" action                                     \
  ", ' ' || char(9, 10, 13)) GLOB '{*')"
/* Whether a value is text and JSON. */
int bxEvIsJson(Bx *bx, sqlite3_value *pValue, BxErr *pErr);
/* evidence_slim(action): without its large parts. */
void bxEvSlim(BxCall *pCall);
/* The SQL expression of what remains of column "action" when it is approved;
** zTime is the SQL of its row's time. Free it with sqlite3_free(). */
char *bxEvApproved(const char *zTime, BxErr *pErr);
/* A query that gives the JSON array of what in the actions of that FROM term
** could not be understood. Free it with sqlite3_free(). */
char *bxEvProblemsSql(const char *zFrom);

/*----------------------------------------------------------- check.c ----*/

/* bxEvExpectKnown(), and what SQL cannot check, as core asks for them. */
void bxEvKnown(BxVtab *p, BxErr *pErr);
void bxEvCheck(BxVtab *p, BxProblems *pOut);

/*---------------------------------------------------- act.c, export.c ----*/

/* Finds the buffer that argument 0 names. */
EvBuffer *bxEvFind(BxCall *pCall);
/* Approval of the stored rows; the JSON result, or NULL with bQuiet. */
char *bxEvApprove(EvBuffer *p, i64 nKeep, int bQuiet, BxErr *pErr);

void bxEvPruneForApproval(BxCall *pCall);
void bxEvPrune(BxCall *pCall);
void bxEvPruneScreenshots(BxCall *pCall);
void bxEvNeedsPruning(BxCall *pCall);
void bxEvStats(BxCall *pCall);
void bxEvClear(BxCall *pCall);
void bxEvFlush(BxCall *pCall);
sqlite3_stmt *bxEvStatsTable(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

void bxEvExport(BxCall *pCall);
void bxEvExportPuppeteer(BxCall *pCall);
void bxEvExportReplay(BxCall *pCall);

/*---------------------------------------------------------- buffer.c ----*/

int bxEvRegister(Bx *bx);

#endif
