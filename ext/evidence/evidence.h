/*
** evidence.h: what the files of the evidence buffer share.
**
**   state.c     the settings and counters of the buffer
**   prune.c     removes rows and screenshots, and sweeps
**   approve.c   what an approved action keeps, as SQL
**   overflow.c  the second tier of a buffer in temp
**   store.c     writes and reads rows, and changes settings
**   check.c     what blackbox_check() finds
**   commands.c  the functions that prune, clear, flush and count
**   export.c    the recording as JSON: to save, to replay
**   buffer.c    the methods of the virtual table
**
** Each file calls only those above it.
**
** A row is in one of three places: in the memory of a buffer in temp, in the
** overflow tables of a file (written from temp), or in the file of a buffer
** that is not in temp.
*/
#ifndef BX_EVIDENCE_H
#define BX_EVIDENCE_H

#include "../core/core.h"
#include "../core/vtable.h"
#include "../core/install.h"

extern const char bxSqlEvidenceBuffer[]; /* sql/evidence_buffer.sql */

#define EV_MODULE "evidence_buffer"
#define EV_COLUMNS                                                             \
  "id,timestamp,action,screenshot,size_bytes,pruned,pinned,storage,value"

#define EV_MEMORY 0
#define EV_OVERFLOW 1
#define EV_FILE 2

/* Bytes that count for a row in addition to its action and screenshot. */
#define EV_ROW_BYTES 100

/* The text of a macro. */
#define EV_TEXT_OF(value) #value
#define EV_TEXT(macro) EV_TEXT_OF(macro)

typedef struct EvBuffer {
  BxVtab base;
  BxStmts *pOn; /* that of base */
  int bTemp;    /* in schema temp: memory first, overflow possible */
  int bDisk;    /* its schema has a file */
  int bKnown;   /* its format was checked */
} EvBuffer;

/* The one row of the state table. */
typedef struct EvState {
  i64 nMax;  /* max_size_bytes */
  i64 nKeep; /* the limit of screenshots that are not pinned; -1: none */
  double rThreshold; /* prune_threshold */
  int bRated;        /* the confidence of actions is computed */
  i64 iLast;         /* highest rid given */
  i64 nRemoved;      /* actions pruned since the last clear */
  i64 nAction;       /* rows */
  i64 nBytes;        /* bytes of all rows, both tiers */
  i64 nScreenshot;   /* rows with a screenshot */
  i64 nFree;         /* of those, rows that are not pinned */
  i64 nPinned;       /* bytes of pinned rows */
  i64 nMemory;       /* bytes in memory */
  i64 nOverflow;     /* rows in the overflow */
  i64 iSwept;        /* the last rid that was swept */
  i64 iStale;        /* the last rid that is to be swept; 0: none */
  char *zOverflow;   /* schema of the overflow; NULL for none */
  char *zOwner;      /* key of this buffer's rows there */
  char *zClaim;      /* proves that they still belong to this buffer */
} EvState;

/* What a row counts for. */
typedef struct EvRecord {
  i64 iRow, iTime, nAction, nShot, iPruned, iPinned;
  int ePlace;
} EvRecord;
#define EV_RECORD                                                              \
  "rid, timestamp, action_bytes, screenshot_bytes, pruned, pinned, place"

/* Rows that an act has chosen. */
typedef struct EvChoice {
  EvRecord *aRow; /* to sqlite3_free() */
  i64 nRow, nAlloc;
} EvChoice;

/* What an act removes. */
typedef struct EvReceipt {
  const char *zRule;
  i64 nRow, nShot, nByte, iOldest, iNewest;
} EvReceipt;

/* The parameters of CREATE VIRTUAL TABLE; "" if not given. Those before
** PARAM_OVERFLOW are settings, in the order of store.c. */
#define PARAM_OVERFLOW 4
#define PARAM_RESUME 5
typedef struct EvParam {
  char az[6][200];
} EvParam;

/* state.c */
/* Fails if the tables are missing. Reads no row, because a read in a
** transaction must not precede the first write. */
void bxEvExpectTables(EvBuffer *p, BxErr *pErr);
/* Reads the row of the state table, and checks its version. */
void bxEvLoadState(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Only the check of the version, for readers; done once. */
void bxEvExpectKnown(EvBuffer *p, BxErr *pErr);
/* Frees the texts; the numbers stay. */
void bxEvFreeState(EvState *pState);
/* Writes the counters. The text is a template, to prepare it before. */
extern const char bxEvSaveSql[];
void bxEvSaveState(EvBuffer *p, const EvState *pState, BxErr *pErr);
/* Computes the counters from the rows. */
void bxEvCountRows(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Reads the columns EV_RECORD, from column iCol on. */
void bxEvReadRecord(sqlite3_stmt *pStmt, int iCol, EvRecord *pOut);
/* Adds a row to the counters, or takes it away with iSign -1. */
void bxEvCount(EvState *pState, const EvRecord *pRow, int iSign);
/* Counts that a row is in another place now. */
void bxEvMove(EvState *pState, EvRecord *pRow, int ePlace);

/* prune.c */
/* These change the counters in *pState, which the caller saves, and write a
** receipt with the rule. The caller has checked that no hold forbids it. */

/* Prepares their statements, before the first write. */
void bxEvPrepareRemoval(EvBuffer *p, BxErr *pErr);
/* Bytes that a prune would free before nComing bytes are added. */
double bxEvExcess(const EvState *pState, i64 nComing);
/* Prunes to a tenth of the maximum below the threshold, without row iSpared. */
void bxEvRemovePruned(EvBuffer *p, EvState *pState, const char *zRule,
    i64 nComing, i64 iSpared, BxErr *pErr);
/* Removes all but the newest nKeep screenshots. bLater: a sweep deletes them. */
void bxEvRemoveShots(EvBuffer *p, EvState *pState, const char *zRule, i64 nKeep,
    int bLater, BxErr *pErr);
/* Writes the receipt of an approval. A row of the statement has the bytes that
** the actions lost, and the oldest and newest time. */
void bxEvNoteApproved(EvBuffer *p, sqlite3_stmt *pStmt, BxErr *pErr);
/* Removes all rows that are not pinned. */
void bxEvRemoveAll(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Deletes the action and the screenshot of a row that is not in the overflow. */
void bxEvDropData(EvBuffer *p, i64 iRow, BxErr *pErr);
/* Removes one row, or its screenshot. */
void bxEvRemoveOne(
    EvBuffer *p, EvState *pState, const EvRecord *pRow, BxErr *pErr);
void bxEvRemoveShot(EvBuffer *p, EvState *pState, EvRecord *pRow, BxErr *pErr);
/* Notes that a row, or its screenshot, is to be removed from the overflow. */
void bxEvMarkGone(EvBuffer *p, i64 iRow, i64 bWhole, BxErr *pErr);
void bxEvNote(EvBuffer *p, const EvReceipt *pReceipt, BxErr *pErr);
/* The oldest rows in memory, without which it has at most nGoal bytes. */
void bxEvChooseMemory(
    EvBuffer *p, const EvState *pState, i64 nGoal, EvChoice *pOut, BxErr *pErr);
/* What approval has left is to be swept. */
void bxEvSweepLater(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Sweeps, and saves the state, until that many pages are free. */
#define EV_SWEEP_STEP 128
#define EV_SWEEP_CALL 512
#define EV_SWEEP_ALL ((i64)1 << 60)
void bxEvSweep(EvBuffer *p, EvState *pState, i64 nPage, BxErr *pErr);
/* One step of this buffer or of another one, beside the record of a write. */
void bxEvSweepStep(EvBuffer *p, EvState *pState, BxErr *pErr);

/* store.c */
/* Writes the first state row from the parameters. */
void bxEvFirstState(EvBuffer *p, const EvParam *pParam, BxErr *pErr);
/* One setting, by name: "max_screenshots", 20. */
void bxEvSet(EvBuffer *p, const char *zName, sqlite3_value *pVal, BxErr *pErr);

/* A row as a statement gives it. NULL: not given, or unchanged. */
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
/* The statements that read the action or the screenshot of row ?1 (-?1 if it was
** approved), and those of pinned row ?1: action, whether it is JSON, screenshot. */
sqlite3_stmt *bxEvReadAction(EvBuffer *p, BxErr *pErr);
sqlite3_stmt *bxEvReadScreenshot(EvBuffer *p, BxErr *pErr);
sqlite3_stmt *bxEvReadPinned(EvBuffer *p, BxErr *pErr);
/*
** All rows as a FROM term with the columns rid, id, timestamp, pinned, pruned,
** place, action, of both tiers. A missing action is NULL. Free the text with
** sqlite3_free().
*/
char *bxEvActions(EvBuffer *p, BxErr *pErr);
/* HeldError if a hold keeps the buffer. */
void bxEvRefuseHeld(EvBuffer *p, BxErr *pErr);
/* The end of each act: saves the state, and removes from the overflow. */
void bxEvFinish(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Computes the confidence of all actions, or sets it to -1. */
void bxEvRate(EvBuffer *p, int bRated, BxErr *pErr);
/* Whether n bytes begin, after white space, like a JSON object. */
int bxEvIsObject(const char *z, int n);

/* overflow.c */
/* Prepares SQL in which "over." marks the overflow's schema. */
sqlite3_stmt *bxEvPrepareOver(
    EvBuffer *p, const EvState *pState, const char *zTemplate, BxErr *pErr);
/* Prepares SQL made with bxEvActions(). */
sqlite3_stmt *bxEvPrepareActions(EvBuffer *p, const char *zSql, BxErr *pErr);
/* Fails if a schema of that name cannot be the overflow. */
void bxEvOverflowExpect(EvBuffer *p, const char *zDb, BxErr *pErr);
/* Registers an owner in schema zDb. */
void bxEvOverflowOpen(
    EvBuffer *p, const char *zDb, const char *zResume, BxErr *pErr);
/* Moves the oldest rows out of memory until it has at most nGoal bytes. */
i64 bxEvOverflowMove(EvBuffer *p, EvState *pState, i64 nGoal, BxErr *pErr);
/* Moves one row back into memory. */
void bxEvOverflowBack(
    EvBuffer *p, EvState *pState, EvRecord *pRow, BxErr *pErr);
/* Writes the name of the buffer into the list of owners. */
void bxEvOverflowRename(EvBuffer *p, BxErr *pErr);
/* Begins an act that writes to the overflow. It is the first write, which waits
** for others. It fails if the evidence now belongs to another buffer. */
void bxEvOverflowClaim(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Only that error, for an act that is swept later: tested before anything
** changes. No error if the file cannot be read. */
void bxEvOverflowOurs(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Removes from the overflow what the buffer has removed. */
void bxEvOverflowSweep(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Approves the actions in the overflow, and counts all rows. */
void bxEvOverflowApprove(EvBuffer *p, EvState *pState, BxErr *pErr);
/* Gives up all rows of this buffer in the overflow. */
void bxEvOverflowDrop(EvBuffer *p, EvState *pState, BxErr *pErr);

/* approve.c */
/* The highest confidence among the strategies of an action, or -1 if there is
** none. The policy 'confidence-based' uses it. A strategy without a confidence
** has the weight of its type. */
#define EV_BEST(action)                                                        \
  "coalesce((SELECT max(CASE WHEN type <> 'object' THEN NULL WHEN "            \
  "json_type(value, '$.confidence') IN ('integer', 'real') THEN "              \
  "json_extract(value, '$.confidence') ELSE CASE json_extract(value, "         \
  "'$.type') WHEN 'cdp_semantic' THEN 0.95 WHEN 'cdp_power' THEN 0.9 "         \
  "WHEN 'dom_selector' THEN 0.85 WHEN 'evidence_scoring' THEN 0.8 "            \
  "WHEN 'css_selector' THEN 0.75 WHEN 'vision_ocr' THEN 0.7 "                  \
  "WHEN 'coordinates' THEN 0.6 END END) FROM json_each(" action                \
  " -> '$.fallbackChain.strategies')), -1)"
/* Whether an action that is JSON is an object. */
#define EV_OBJECT(action)                                                      \
  "(" action " GLOB '{*' OR ltrim(" action                                     \
  ", ' ' || char(9, 10, 13)) GLOB '{*')"
/* evidence_slim(action): the action without its large parts. */
void bxEvSlim(BxCall *pCall);
/* The SQL expression of what approval keeps of the column "action"; zTime is
** the SQL of the time of its row. Free it with sqlite3_free(). */
char *bxEvApproved(const char *zTime, BxErr *pErr);
/* A query that returns the JSON array of what approval did not understand in
** the actions of that FROM term. Free it with sqlite3_free(). */
char *bxEvProblemsSql(const char *zFrom);

/* check.c */
/* bxEvExpectKnown(), and the checks that SQL cannot do, for core. */
void bxEvKnown(BxVtab *p, BxErr *pErr);
void bxEvCheck(BxVtab *p, BxProblems *pOut);
void bxEvidenceLeave(BxStmts *p, BxErr *pErr);

/* commands.c, export.c */
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

/* buffer.c */
int bxEvRegister(Bx *bx);

extern const BxRecords bxEvidenceRecords[]; /* overflow.c */
extern const BxTexts bxEvidenceTexts[];

extern const BxRecords bxEvBufferRecords[]; /* buffer.c */
extern const BxTexts bxEvBufferTexts;

#endif
