/*
** domain.h: what core must know of a domain, as data.
**
** Core names no domain. ext/blackbox.c passes it an array of BxDomain, of which
** core itself is the first element. Most members are texts of SQL, so that an
** erasure, a redaction, a sweep and a packing are each one loop over all domains:
**
**   BxDomain   its tables, its checks, and what it is asked to do
**     BxRecords  the tables that an erasure and a hold look into
**     BxTexts    the columns in which keys and passwords may be
**     BxDue      what a rule of retention_rules removes
**     BxBodies   the columns whose texts the body store may have
**
** A pointer that is NULL means that the domain has none of it.
*/
#ifndef BX_DOMAIN_H
#define BX_DOMAIN_H

#include "statement.h"

/* A table with records: rows that belong to an agent, an event, a conversation, a
** session or a buffer, or that have a text. In all of the SQL, t is the table, ?1
** the key or a JSON array of the forms of a text, ?2 the actor, ?3 the reason, ?5
** whether it is a text. */
typedef struct BxRecords {
  const char *zName;  /* in a certificate; NULL: that of a virtual table */
  const char *zTable; /* what is read and deleted from; NULL ends a list */
  const char *zKinds; /* "kind=column," for each kind but text */
  const char
      *zTexts; /* expressions in which a text is looked for; NULL: none */
  const char *zBytes;  /* of a row */
  const char *zHolds;  /* whether the hold f keeps the row */
  const char *zPinned; /* whether it is pinned, or NULL */
  const char
      *zUnpin; /* unpins the rows, before "WHERE ..."; without zPinned it is
                       ** run before each removal */
  const char *zBefore; /* run before and after a removal, or NULL */
  const char *zAfter;
  const char *zKey; /* tells the rows apart; NULL: their rowid */
  const char
      *zLoses; /* where a row stays and loses the text ?1: what UPDATE sets, ?2
                      ** in its place; NULL: the row goes */
  int bLog;    /* it is the log: zLoses is a query of the rows ?1 of it */
} BxRecords;

/* Texts in which keys and passwords may be. In all of the SQL, t is a row and t.no its
** number; ?1 is the key of a row, or of what the row is of. */
typedef struct BxTexts {
  const char *zName; /* of the table, in a certificate; NULL: a virtual table */
  const char *zFrom; /* has the rows; NULL ends a list */
  const char *zKind; /* what a row is of: a kind, and SQL of its key; */
  const char *zKey, *zRow;
  const char
      *zRowIs; /* what is told of zRow in the log; NULL: there is no row */
  const char *zColumns; /* names, with commas between them; 10 at most */
  const char
      *zKinds; /* "kind=condition," for each kind of key; no condition has
                           ** a comma */
  const char *zHolds; /* as that of BxRecords; NULL: no hold keeps a row */
  const char
      *zMask; /* puts ?2 and those after it in the place of the columns of row
                        ** ?1; NULL: they are listed only */
  /* Ends the pin of a row, if iPin is 0, and returns its number, 0 if there is none.
  ** Then pins it again in the place of iPin. May be NULL. */
  i64 (*xPin)(BxStmts *p, i64 iRow, i64 iPin, const char *zActor,
      const char *zReason, BxErr *pErr);
} BxTexts;

/* What a rule of retention_rules removes: rows of a table whose time lies before that
** of the rule. In the SQL, columns have the name of the table before them where another
** table could have them. */
typedef struct BxDue {
  const char *zRule;  /* "cache.idle"; NULL ends a list */
  const char *zTable; /* without a schema */
  const char *zKey, *zBytes, *zAt;
  const char *zWhere;   /* of which rows */
  const char *zFree;    /* which of these may go */
  const char *zBlocked; /* why another one stays */
  const char
      *zNote; /* before a removal notes ?1, "idle", for the receipts that the
                        ** triggers of the table write; after it NULL */
} BxDue;

/* The values of rows that the body store has as texts. In all of the SQL, ?1 is the
** key of a row; ?1 of zNamed is the number of a text. */
typedef struct BxBodies {
  const char *zTable; /* has the rows */
  const char *zRow;   /* the values of a row: of a column each */
  const char *zRefer; /* announces the reference ?3, to text ?2 of ?4 bytes */
  const char
      *zCount; /* that ?2 bytes of a row are packed; NULL: nobody counts */
  const char
      *zInPlace, /* puts ?2 and those after it in the place of the values */
      *zReplace; /* the same, and moves the row */
  const char
      *zNamed; /* the references to a text, with the keys of their rows */
  const char *
      zStays; /* takes back what was announced, from text ?2 on, if the row stays */
  const char *zAll; /* the references to all texts */
  /* "o CROSS JOIN ", to be before the table: o.row is a rowid, in the order of the
  ** texts, so that each pack is read once */
  const char *zOrdered;
  int bShort; /* references are short (ext/store/format.c) */
} BxBodies;

/* The reference to a text that was packed, which nothing has announced yet. */
typedef struct BxPackedText {
  i64 iText, nByte; /* nByte: of the text */
  int nRef;         /* 0: it was not packed */
  unsigned char aRef[56];
} BxPackedText;

/* Texts that are packed before a table has them: columns iColumn and iColumn + 1 of the
** rows of a query, but of those with a blob there, or whose column iSkip is true; or
** apVal, those of one row, if there is no query. store_pack() takes a pointer to it
** (BX_PACK_ROWS) in place of keys, adds both texts of each row to aText, and steps to the
** end. It returns NULL. The caller frees aText. */
#define BX_PACK_ROWS "blackbox_pack_rows"
typedef struct BxPackRows {
  sqlite3_stmt *pRows;
  int iColumn, iSkip;
  sqlite3_value **apVal;
  BxPackedText *aText;
  i64 nText, nAlloc;
  int bSkipped; /* some rows */
} BxPackRows;

/* Whether a schema has the body store; an error if it has not. */
int bxHasStore(BxStmts *p);
void bxNeedStore(BxStmts *p, BxErr *pErr);
/* Runs zPack, which calls store_pack() for the rows ?1 of schema ?2, a JSON array, and
** logs a refusal for the rule <domain>.pack. Returns what store_pack() says, to
** sqlite3_free(). */
char *bxPackKeys(BxStmts *p, const char *zDomain, const char *zPack,
    const char *zKeys, BxErr *pErr);
/* What a call that packs returns of it. To sqlite3_free(). */
char *bxPackResult(BxStmts *p, const char *zSaid, int bMore, BxErr *pErr);

/* Numbers of tokens; one below zero is not known. */
typedef struct BxTokens {
  i64 nInput;      /* without those of a cache */
  i64 nCacheWrite; /* with those that are kept for an hour */
  i64 nCacheRead;
  i64 nOutput; /* with the reasoning */
  i64 nReasoning;
  i64 nCacheWrite1h;
} BxTokens;

/* What an exchange with a model says: a call (its text is the arguments) or a result;
** the usage of the model that zTool names, with what it said; the last message of the
** user. No terminator follows the texts; NULL is none. */
typedef enum {
  BX_SAID_CALL,
  BX_SAID_RESULT,
  BX_SAID_USAGE,
  BX_SAID_PROMPT
} BxSaidKind;
typedef struct BxSaid {
  BxSaidKind eKind;
  int bResponse, bError;
  const char *zId, *zTool, *zText;
  i64 nId, nTool, nText;
  BxTokens tokens;
} BxSaid;

/* For zHolds: a hold of that kind on that value. */
#define BX_HOLD_ON(kind, value)                                                \
  "(f.kind = '" kind "' AND f.\"key\" = " value ")"

/* A domain. ext/blackbox.c has the list of them; core is the first. */
struct BxDomain {
  const char *zName;         /* "payload" */
  const char *zTable;        /* a table that only an installed domain has */
  int bDefault;              /* blackbox_install() without a list installs it */
  const char *zSql;          /* sql/<name>.sql */
  const BxRecords *aRecords; /* its tables with records; may be NULL */
  const BxTexts *aTexts;     /* its texts; may be NULL */
  const BxDue *aDue; /* what its rules without a view remove; may be NULL */
  const BxBodies *pBodies; /* what the body store has of it; may be NULL */
  const BxFileLimit
      *pRoom; /* what it removes for the limit of the file; may be NULL */
  /* Called before the SQL runs on schema p->zDb, to take over tables of another
  ** program. May be NULL. */
  void (*xAdopt)(BxStmts *p, BxErr *pErr);
  /* Called after the SQL: creates what depends on the tables that were found.
  ** xIsWhole tells whether all of that exists. Both may be NULL. */
  void (*xMend)(BxStmts *p, BxErr *pErr);
  int (*xIsWhole)(BxStmts *p, BxErr *pErr);
  /* Queries: the contradictions in its data (object, problem), NULL if the view
  ** <domain>__check has it; and how much it has (rows, bytes), or NULL. */
  const char *zFaults;
  const char *zSize;
  /* The checks that SQL cannot do. May be NULL. */
  void (*xCheck)(BxStmts *p, BxProblems *pOut);
  /* Tables on which others must not have triggers or unique indexes, each
  ** between commas; may be NULL. Triggers that xMend creates are named
  ** <domain>_made_*. */
  const char *zGuarded;
  /* The one of these tables that may belong to another program: xCheck examines
  ** its unique indexes. May be NULL. */
  const char *zAdopted;
  /* Tables whose rows are computed from those of others, or are registered by
  ** domains, so that an uninstall loses nothing with them: names, each between
  ** commas; may be NULL. */
  const char *zDerived;
  /* The prefix of errors of its functions if beginning or ending their
  ** savepoint fails ("Write failed: "); may be NULL. */
  const char *zFailed;
  /* Which rows of blackbox_places are its own: an uninstall removes them. NULL: none. */
  const char *zPlaces;
  /* The objects that it creates on request, outside its SQL, in the order of
  ** dropping: names between commas; may be NULL. */
  const char *zOptional;
  /* Fails if the domain must not be removed from p's schema, because the
  ** connection keeps something for it; may be NULL. */
  void (*xLeave)(BxStmts *p, BxErr *pErr);
  /* A query: the ids of the conversations that session ?1 of a program is. May be NULL. */
  const char *zSession;
  /* Called before an erasure changes something of it, and (bDone) afterwards; may be
  ** NULL. */
  void (*xErase)(BxStmts *p, int bDone, BxErr *pErr);
  /* A query of the row that row ?1 of the log, whose subject is ?2, pins, if that is
  ** in force: the number of that row, the id, and fields of the leaf of the pin.
  ** Their names come after "reason" and before "rows", in their order. zAllLogged
  ** has all such rows whose number is above ?1, in its order. zLate has the row if it
  ** has a later pin, as it was without its late response, and without its meta. zPins is the table of
  ** the pins in force, with the id of the row as "id" and that of the log as "n".
  ** All may be NULL. */
  const char *zLogged;
  const char *zAllLogged;
  const char *zLate;
  const char *zPins;
  /* Reads an exchange, of bodies or NULL. May be NULL. */
  void (*xExchange)(Bx *bx, sqlite3_value *pRequest, sqlite3_value *pResponse,
      void (*xTell)(void *pArg, const BxSaid *p), void *pArg, BxErr *pErr);
  /* Writes into the log the digests of rows that holds keep and that have none, of at
  ** most so many bytes. And tells which rows are not what their digests after row
  ** iFrom of the log say, with the number of that row and a text to be freed. Both
  ** may be NULL. */
  void (*xNoteHeld)(BxStmts *p, i64 nMost, BxErr *pErr);
  void (*xCheckHeld)(BxStmts *p, i64 iFrom,
      void (*xTell)(void *pArg, i64 n, char *zOwned), void *pArg, BxErr *pErr);
};

#endif
