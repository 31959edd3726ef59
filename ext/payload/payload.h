/*
** payload.h: what the files of the payload domain share.
**
** An exchange is a request and its response. It goes this way:
**
**   INSERT INTO ring    a slot of the ring (ring*.c)
**      | kill switch    (kill_switch.c, pins.c)
**      v
**   event_payloads with the purpose evidence: pinned
**
**   payload_queue()     a row that waits (queue.c), in mode memory
**      | flush
**      v
**   event_payloads with the purpose archive: rules remove it (archive.c)
**
** Both kinds of rows may be packed (pack.c). The rules are in sql/payload.sql, so
** they hold without this code. What looks for loops is declared in watch.h, what
** reads a body in exchange.h.
*/
#ifndef BX_PAYLOAD_H
#define BX_PAYLOAD_H

#include "../core/core.h"
#include "../core/mask.h"
#include "../core/vtable.h"
#include "../core/log.h"
#include "../core/table.h"
#include "../core/install.h"

/* sql/payload.sql; sql/payload_ring.sql */
extern const char bxSqlPayload[], bxSqlPayloadRing[];

/* adopt.c: what blackbox_install() and blackbox_check() do beside the SQL */
void bxPayloadAdopt(BxStmts *p, BxErr *pErr);
void bxPayloadMend(BxStmts *p, BxErr *pErr);
int bxPayloadIsWhole(BxStmts *p, BxErr *pErr);
void bxPayloadCheck(BxStmts *p, BxProblems *pOut);

extern const BxDue bxPayloadDue[];           /* archive.c */
extern const BxBodies bxPayloadBodies;       /* pack.c */
extern const BxFileLimit bxPayloadFileLimit; /* archive.c */

/* pins.c */
/* The number of the newest row of the log. */
i64 bxPinsLast(BxStmts *p, BxErr *pErr);
/* Saves exchanges as evidence: pRows finds them, pSave writes them, with the rows of
** the archive that become evidence in its ?4. Returns how many; fails unless all are
** pinned, after row iLast of the log. */
i64 bxPinsSave(BxStmts *p, const char *zEvent, i64 iLast, sqlite3_stmt *pRows,
    sqlite3_stmt *pSave, BxErr *pErr);
/* Whether nobody else has a trigger or a unique index on event_payloads, and nothing is
** held or refused. */
int bxPinsAlone(BxStmts *p, BxErr *pErr);
/* The same if they are alone, and nothing is evidence of this kill switch. The columns of
** pRows from 1 on: event_id, agent_id, both bodies, the time, meta, and whether the archive
** has rows of the event. */
i64 bxPinsMove(
    BxStmts *p, const char *zEvent, sqlite3_stmt *pRows, BxErr *pErr);
#define EVIDENCE_ID                                                            \
  "printf('%08x-%04x-7%03x-%04x-%012x', unixepoch() * 1000 >> 16,"             \
  " unixepoch() * 1000 & 65535, random() & 4095, random() & 16383 | 32768,"    \
  " random() & 281474976710655)"
#define EVIDENCE_THERE                                                         \
  " ON CONFLICT DO UPDATE SET purpose = 'evidence', pinned = 1,"               \
  " kill_switch_event_id = excluded.kill_switch_event_id,"                     \
  " meta = ifnull(meta, excluded.meta), created_at = excluded.created_at"      \
  " WHERE id = excluded.id"
/* Whether a row is pinned. */
int bxPinsHold(BxStmts *p, const char *zId, BxErr *pErr);

/* Whether a hold keeps the row of event_payloads. */
#define HELD_PAYLOAD(table)                                                    \
  "(EXISTS (SELECT 1 FROM main.retention__in_force) AND EXISTS"                \
  " (SELECT 1 FROM main.payload__held AS h WHERE h.rid = " table ".rowid))"

/* archive_held.c: see BxDomain */
/* The row of the log since which a thing (<kind>:<key>) is held; 0: it is not. */
i64 bxHeldSince(BxStmts *p, const char *zThing, BxErr *pErr);
void bxPayloadNoteHeld(BxStmts *p, i64 nMost, BxErr *pErr);
void bxPayloadCheckHeld(BxStmts *p, i64 iFrom,
    void (*xTell)(void *, i64 n, char *zOwned), void *pArg, BxErr *pErr);

/* pack.c: bodies in the body store */
/* SQL: after FROM, the rows p of payload__packed that belong to row e of the archive. */
#define BX_NUMBER_IN(body)                                                     \
  "iif(typeof(" body ") = 'blob', substr(" body ", 37, 20) + 0, 0)"
#define BX_PACKED_OF(e)                                                        \
  " main.payload__packed AS p WHERE p.text IN (" BX_NUMBER_IN(                 \
      e ".request_body") ", " BX_NUMBER_IN(e                                   \
      ".response_body") ")"                                                    \
                        " AND p.\"key\" = " e ".id"
/* What the store takes for a byte of its texts: blackbox.max_file_bytes counts it. */
#define BX_STORE_SHARE                                                         \
  "(SELECT coalesce(1.0 * kept_bytes / nullif(text_bytes, 0), 1)"              \
  " FROM main.store__state)"
/* With the setting payload.pack: packs a small number of rows. */
void bxPackSome(BxStmts *p, BxErr *pErr);
/* Whether payload.pack is 1, and there is the store. */
int bxPackIsOn(BxStmts *p, BxErr *pErr);
/* Packs texts that rows of the archive will refer to. If the store refuses that there
** are none, and the log has why. eFew as of store_pack(): with 2, a row of the queue, it
** may close a pack instead, and payload_waiting has why it fails. bxPackBind() announces
** those of a row, and binds them for it; when the rows are there bxPackNewDone() counts,
** and frees the memory. bxPackedBytes() tells how many bytes were packed. */
void bxPackNew(BxStmts *p, BxPackRows *pRows, int eFew, BxErr *pErr);
void bxPackBind(BxStmts *p, const char *zId, const BxPackedText *aText,
    sqlite3_stmt *pWrite, int iParam, BxErr *pErr);
i64 bxPackedBytes(const BxPackRows *pRows);
void bxPackNewDone(BxStmts *p, BxPackRows *pRows, BxErr *pErr);
/* After so many rows were written, or one push (-1 - its time): small jobs of clean-up, one for
** each, unless none was due a few writes ago. An error is passed over if what was
** written stays; in autocommit, and without bRow, it is committed. */
void bxTend(BxStmts *pHome, i64 nRow, int bRow, BxErr *pErr);
/* What writes have done is undone, so the next one looks for what is due. */
void bxTendUndone(Bx *bx);
void bxPayloadTend(BxCall *p);
/* Removes texts of rows that are gone. */
void bxPackSweep(BxStmts *p, i64 nLimit, BxErr *pErr);
void bxPayloadPack(BxCall *p);
void bxPayloadUnpack(BxCall *p);

/* archive.c: the table event_payloads */
void bxPayloadCleanup(BxCall *p);
void bxPayloadClearArchive(BxCall *p);
void bxPayloadSaveEvidence(BxCall *p);
void bxPayloadStats(BxCall *p);
void bxPayloadDbSize(BxCall *p);
void bxPayloadUnpin(BxCall *p);
/* har.c */
void bxPayloadImportHar(BxCall *p);
/* queue.c: rows that wait for the archive. What a connection keeps of it: */
typedef struct Queue {
  Bx *bx;
  /* the settings of schema pKnown, in the order of the query */
  i64 bEnabled, bIgnore, bMemory, nKept, nBatch, nInterval, nArchive, eSecrets,
      bPack;
  BxStmts *pKnown;
  i64 nRow, iFirst, iLast; /* that wait; when their time began; the last came */
  i64 iTend;               /* no clean-up before this time, */
  i64 iPush;               /* the time of a push that carries clean-up */
  int anQuiet[2], nTurn;   /* nor for so many writes; those that had one */
  i64 iRetry;              /* no flush by itself before this time */
  BxStmts *pAlone;         /* bxPinsAlone() has looked at this schema, */
  i64 iAlone, bAlone;      /* of that version */
  char *zFailed;           /* message of the last flush, if it failed */
  Masking masking;         /* also of rings */
} Queue;
int bxQueueRegister(Bx *bx);
void bxPayloadQueue(BxCall *p);
void bxPayloadFlush(BxCall *p);
sqlite3_stmt *bxPayloadWaiting(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxQueueRows(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
void bxQueueWrite(Bx *bx, int argc, sqlite3_value **argv, BxErr *pErr);
/* payload_waiting shows the error; there is no other attempt before *piRetry. */
void bxQueueFailed(Queue *p, const BxErr *pErr, i64 *piRetry);
/* Writes what waits, before the archive is cleared or removed. */
void bxQueueFlush(BxStmts *p, BxErr *pErr);

/* agent_log.c: stops and starts of agents */
sqlite3_stmt *bxAgentLogRows(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
void bxAgentLogWrite(Bx *bx, int argc, sqlite3_value **argv, BxErr *pErr);

typedef struct RingBodies RingBodies;
/* ring.c: the virtual table payload_ring (methods only) */
extern const sqlite3_module bxRingModule;

/* ring_sql.c: the statements of a ring */
typedef struct Ring {
  BxVtab base;
  i64 nWindow, nMaxByte, nIdleDay; /* its settings; a bound of 0: none */
  struct RingBodies *pBodies;      /* NULL before the first use */
  int bNoRoom;                     /* a push found less room than it needs */
  int bFiring;                     /* its kill switch is running */
  int bWatching;                   /* its rules are asked */
  char *zBefore;  /* its name before a rename in this transaction, or NULL */
  BxStmts saving; /* statements on the archive, if the ring is in temp */
  int mWatch;     /* what is on; 0: nothing */
  /* When all that was read: the counts of changes by this connection and by others,
  ** and the time, which a ring in temp uses. -1: to be read again. */
  int nChange;
  unsigned int iData;
  i64 iLooked;
  int bSame;  /* nothing has changed since the last push but by it */
  int iKnown; /* another number: what is known of agents is of before */
  struct Watch *pWatch; /* NULL before the first push that is looked at */
} Ring;

/* Bits of mWatch. */
#define RING_MODE 3   /* what happens with loops: 0 nothing */
#define RING_AGENTS 8 /* an agent has settings */
#define RING_WATCH 11 /* one of these */
#define RING_HOLDS 16 /* the file has holds, or refuses keys that were erased */
#define RING_MASK 32  /* payload.secrets: mask, */
#define RING_DROP 64  /* drop */

/* An agent in a ring. iNo is 0 if the agent has never pushed. */
typedef struct RingAgent {
  i64 iNo;
  i64 nWindow; /* number of slots that its rows are laid out for */
  i64 bKept;   /* it may have rows beyond the window, which are or were held */
  i64 nRow;    /* rows that it has now */
  i64 nGiven;  /* all its pushes: the seq of the newest row */
  i64 bNew;    /* it has no row in the table yet */
  i64 iTurn;   /* the time of a push, in a ring with a bound; 0: none */
} RingAgent;

typedef struct RingPush {
  const char *zAgent;
  sqlite3_value *pEvent, *pRequest, *pResponse, *pMeta;
  i64 iTime;
  i64 nByte; /* of both bodies */
  int bLate; /* only its response is new */
} RingPush;

/* The ids in @_texts of the settings of a ring, whose values are in body: see
** sql/payload_ring.sql. That of option i is -1 - i. */
#define RING_WINDOW "-1"
#define RING_MAX_BYTES "-2"
#define RING_IDLE_DAYS "-3"
#define RING_IS_FORMAT "-4"
#define RING_BYTES "-5"
/* Of the agents that left: how many, their sums, and their latest push. */
#define RING_LEFT "-6"
#define RING_LEFT_GIVEN "-7"
#define RING_LEFT_ROLLED "-8"
#define RING_LEFT_CLEARED "-9"
#define RING_LEFT_SAVED "-10"
#define RING_LEFT_LATEST "-11"
#define RING_SETTING(id) "(SELECT body FROM main.@_texts WHERE id = " id ")"
/* aValue: window, max_bytes, idle_days */
void bxRingCreate(Ring *p, const i64 aValue[3], BxErr *pErr);
/* CorruptedDataError for the table of the ring that ends in zSuffix. */
void bxRingCorrupt(Ring *p, BxErr *pErr, const char *zSuffix);
/* VersionError if a newer version of blackbox made the ring. */
void bxRingFormat(BxVtab *p, i64 iFormat, BxErr *pErr);
void bxRingKnown(BxVtab *p, BxErr *pErr);
void bxRingWatchFree(Ring *p);
/* Reads the window and the bounds. */
void bxRingReadConfig(Ring *p, BxErr *pErr);
/* A window that was read, if it can be one. */
i64 bxRingWindow(Ring *p, i64 iVal, BxErr *pErr);
/* Before a write: reads them, and what is on, if that may have changed. While this
** connection writes, nobody else can change them. */
void bxRingSettings(Ring *p, BxErr *pErr);
/* After a push, a completion or a removal. */
void bxRingLooked(Ring *p);
/* Forgets what was read, because a rollback may have undone it. */
void bxRingForget(Ring *p);
/* SQLITE_TOOBIG if bodies of so many bytes cannot be one row of the archive. */
void bxRingFits(Ring *p, i64 nByte, BxErr *pErr);
/* Adds a row. Sets *piRowid to its rowid. */
void bxRingPush(Ring *p, RingPush *pPush, i64 *piRowid, BxErr *pErr);
void bxRingDelete(Ring *p, i64 iSlot, BxErr *pErr);
/* Removes a row, which counts as cleared, or as rolled. */
void bxRingRemove(Ring *p, i64 iSlot, int bCleared, BxErr *pErr);
void bxRingSetWindow(Ring *p, i64 nWindow, BxErr *pErr);
/* Finds an agent. */
void bxRingAgent(Ring *p, const char *zAgent, RingAgent *pAgent, BxErr *pErr);
#define RING_AGENTS_SQL                                                        \
  "SELECT no, window, kept, given, rows FROM main.@_agents "
/* Reads these columns. If they are damaged, it fails with an error that names the
** table. */
void bxRingReadAgent(
    Ring *p, sqlite3_stmt *pStmt, RingAgent *pAgent, BxErr *pErr);
/* The ids of part i of its rows, 0 to 2, the oldest first: those beyond the window,
** those after the newest row, and those up to it. Returns whether there is one. */
int bxRingPart(const RingAgent *p, int i, i64 *piFirst, i64 *piLast);
/* Lays the rows of an agent out as the ring's window wants them. */
void bxRingSettle(Ring *p, RingAgent *pAgent, BxErr *pErr);
/* Counts rows that went, and bytes that came, for an agent and the ring. */
void bxRingCount(
    Ring *p, i64 iNo, int nRolled, int nCleared, i64 nByte, BxErr *pErr);
/* A hold on a row with an id from iFirst to iLast, as text to sqlite3_free(); NULL
** if there is none. */
char *bxRingHolder(Ring *p, i64 iFirst, i64 iLast, BxErr *pErr);
/* Whether there is one on a row. */
int bxRingIsHeld(Ring *p, i64 iSlot, BxErr *pErr);
/* HeldError if there is one on a row that is to be deleted. */
void bxRingRefuseHeld(Ring *p, i64 iFirst, i64 iLast, BxErr *pErr);
/* Removes rows of an agent, which count as saved, or as cleared.
** zDrop: a DELETE of them; ?1 to ?2 are the ids of the agent. */
void bxRingTakeOut(Ring *p, BxStmts *pOn, const char *zDrop,
    const RingAgent *pAgent, int bSaved, BxErr *pErr);
/* Takes the write lock on the ring's schema, and reads its settings. */
void bxRingLock(Ring *p, BxErr *pErr);

/* ring_body.c: the bodies of a ring */
typedef struct RingBody { /* what a slot has in place of a body */
  int n;                  /* -1: the body itself */
  unsigned char a[104];
} RingBody;
#define BODY_AS_KEPT 1  /* as a slot may have it without its log */
#define BODY_RESPONSE 2 /* only a hint */
/* SQL: a body of slot s. bxBodyUse() binds ?9, the ring. */
#define RING_BODY(column, flags)                                               \
  "payload__body(?9, s.id, s." column ", " #flags ")"
#define RING_REQUEST RING_BODY("request_body", 0)
#define RING_RESPONSE RING_BODY("response_body", 2)
int bxBodyRegister(sqlite3 *db);
void bxBodyUse(Ring *p, sqlite3_stmt *pStmt, BxErr *pErr);
void bxBodyFree(Ring *p);
/* What is loaded must be read again. */
void bxBodyForget(Ring *p);
/* Loads the log of an agent from a column of a row; without one, a new log. */
void bxBodyBegin(
    Ring *p, i64 iNo, sqlite3_stmt *pStmt, int iColumn, BxErr *pErr);
/* The same from the table. */
void bxBodyOpen(Ring *p, i64 iNo, BxErr *pErr);
/* The same from memory, with the agent, as the push that nothing has followed but
** pushes left it. Returns whether that is known. */
int bxBodyRecall(Ring *p, const char *zAgent, RingAgent *pOut);
void bxBodyKnow(Ring *p, const char *zAgent, const RingAgent *pAgent);
/* The body that a slot has as pVal becomes the result. */
void bxBodyResult(Ring *p, sqlite3_context *pCtx, i64 iNo, sqlite3_value *pVal,
    int mFlags, BxErr *pErr);
/* What a request shares with an earlier one of the loaded log. */
typedef struct RingShared {
  int iHead;      /* -1: nothing */
  i64 iAt, iFrom; /* the names of both: where they are in the log */
  i64 n;          /* bytes */
  sqlite3_uint64 hStart;
} RingShared;
void bxBodyFind(Ring *p, sqlite3_value *pVal, RingShared *pOut, BxErr *pErr);
/* Loads the log of the agent again, if what failed beside the push has forgotten it. */
void bxBodyAgain(Ring *p, i64 iNo, int bNew, BxErr *pErr);
/* Writes a body into the loaded log; *pShared of a request, which nothing but this has
** changed the log since; or NULL. */
void bxBodyAppend(Ring *p, sqlite3_value *pVal, const RingShared *pShared,
    RingBody *pOut, BxErr *pErr);
void bxBodyBind(sqlite3_stmt *pStmt, int i, const RingBody *pBody,
    sqlite3_value *pVal, BxErr *pErr);
/* Binds the column page of the loaded log, which the caller writes. */
void bxBodyPage(Ring *p, sqlite3_stmt *pStmt, int iParam, BxErr *pErr);
/* With secure_delete, fills some of what rolled out with zeros, in the loaded log, to which
** the newest push of the agent has added at most nNew bytes. */
void bxBodySweep(Ring *p, const RingAgent *pAgent, i64 nNew, BxErr *pErr);
/* The agent has no exchange any more. */
void bxBodyClear(Ring *p, i64 iNo, BxErr *pErr);
/* Fills with zeros what its exchanges do not need. */
void bxBodyScrub(Ring *p, i64 iNo, BxErr *pErr);
/* Exchanges were deleted: the same at the end of the transaction. */
void bxBodyDeleted(Ring *p, i64 iNo, BxErr *pErr);
void bxBodySync(Ring *p, BxErr *pErr);
void bxBodyCheck(Ring *p, BxProblems *pOut, BxErr *pErr);

/* ring_complete.c: the response of an exchange that was pushed without one */
/* Of the newest such exchange of an event, in the ring or in the evidence. pDone has
** the agent, the event, the response and meta. */
void bxRingComplete(Ring *p, RingPush *pDone, BxErr *pErr);
/* Of the exchange in a slot; pDone has only the response and meta. Does nothing if
** a newer exchange of its event has none. */
void bxRingCompleteSlot(Ring *p, i64 iSlot, RingPush *pDone, BxErr *pErr);

/* ring_check.c */
/* The digest of a row, if a hold keeps it. */
void bxRingNoteHeld(Ring *p, i64 iSlot, BxErr *pErr);
/* The part of bxPayloadCheckHeld() for the rings of a schema. */
void bxRingCheckHeld(BxStmts *p, i64 iFrom,
    void (*xTell)(void *, i64 n, char *zOwned), void *pArg, BxErr *pErr);
void bxRingCheck(BxVtab *pVtab, BxProblems *pOut);

#define BX_RING_WINDOW 50 /* of a ring that is made without one */
#define BX_RING_MAX_WINDOW 10000
#define BX_RING_MAX_META 65536 /* bytes */

/* Ids of an agent's slots: all of them; those beyond the window, which a hold
** keeps, from RING_KEPT on; the others, by seq. */
#define RING_FIRST(no) ((i64)(no) << 29)
#define RING_LAST(no) (RING_FIRST(no) + 0x1fffffff)
#define RING_KEPT(no) (RING_FIRST(no) + ((i64)1 << 28))
#define RING_BASE(p) (RING_FIRST((p)->iNo) + ((p)->nWindow << 14))
#define RING_AT(p, seq) (RING_BASE(p) + (seq) % (p)->nWindow)
/* SQL: a row is in the window, which begins after seq ?3, or kept. */
#define RING_WITHIN "(seq > ?3 OR id & 268435456)"
/* A hold keeps row s. */
#define RING_HELD_ON(kind, key)                                                \
  "EXISTS (SELECT 1 FROM main.retention__holds AS f WHERE f.kind = '" kind     \
  "' AND f.\"key\" = " key ")"
#define RING_HELD                                                              \
  RING_HELD_ON("agent", "s.agent_id")                                          \
  " OR " RING_HELD_ON("event", "s.event_id") " OR " RING_HELD_ON(              \
      "buffer", "lower('@')")

/* ring_limits.c: the limits of a whole ring */
/* Sets "max_bytes" or "idle_days". 0 removes the bound. */
void bxRingSetLimit(Ring *p, int iOption, i64 iVal, BxErr *pErr);
/* Removes what has to go before a write into slot iKeep that takes nMore bytes more;
** iKeep -1: what exceeds the limits without one. Agent pSelf is the one that pushes, and
** gets its turn; iNo 0: none. */
void bxRingMakeRoom(
    Ring *p, RingAgent *pSelf, i64 nMore, i64 iKeep, BxErr *pErr);
/* Agents without rows leave, with a receipt: that one, or all for NULL. */
void bxRingLeave(Ring *p, const char *zAgent, BxErr *pErr);

#define BX_RING_MAX_BYTES ((i64)1 << 46)
#define BX_RING_MAX_IDLE 36500

/* kill_switch.c: moves the rows of a ring to the archive, or into JSON */
/* The archive that a ring's evidence goes to. */
BxStmts *bxRingArchive(Ring *p, BxErr *pErr);
void bxPayloadKillSwitch(BxCall *p);
void bxPayloadExtract(BxCall *p);
/* Who pulls a kill switch, and why: a person, each NULL if it is not said, or the
** rule of a verdict. */
typedef struct RingPuller {
  const char *zActor, *zReason;
  i64 iVerdict; /* 0: no rule */
} RingPuller;
/* Reads both, of which either may be NULL. */
void bxRingPuller(sqlite3_value *pActor, sqlite3_value *pReason,
    RingPuller *pOut, BxErr *pErr);
/* Saves the exchanges of an agent. Returns how many. */
i64 bxRingKillSwitch(Ring *p, const char *zAgent, const char *zEvent,
    const RingPuller *pPuller, BxErr *pErr);
/* An agent that is stopped has pushed into a slot: that is counted, and added to the
** evidence of its stop, if that has not more of it than the window. */
void bxRingWentOn(Ring *p, const char *zAgent, i64 iSlot, BxErr *pErr);

/* calls.c: the prompt, the tool calls and the usage of an exchange */
extern const BxRows bxCallsRows; /* calls.c: payload_calls() */
void bxPayloadExchange(Bx *bx, sqlite3_value *pRequest,
    sqlite3_value *pResponse, void (*xTell)(void *pArg, const BxSaid *p),
    void *pArg, BxErr *pErr);
void bxPayloadPrompt(BxCall *p);
void bxPayloadTools(BxCall *p);
sqlite3_stmt *bxPayloadUsage(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

/* loops.c: looks for loops in what a ring holds, and in what was archived */
sqlite3_stmt *bxPayloadLoops(Bx *bx, sqlite3_value **apArg, BxErr *pErr);
sqlite3_stmt *bxPayloadBacktest(Bx *bx, sqlite3_value **apArg, BxErr *pErr);

extern const BxRecords bxPayloadRecords[]; /* archive.c */
extern const BxTexts bxPayloadTexts[];     /* the same */

extern const BxRecords bxRingRecords[]; /* ring.c */
extern const BxTexts bxRingTexts;
void bxRingHeld(BxVtab *pVtab, BxErr *pErr);

#endif
