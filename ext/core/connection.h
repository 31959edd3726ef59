/*
** connection.h: what blackbox knows of a connection.
*/
#ifndef BX_CONNECTION_H
#define BX_CONNECTION_H

#include "error.h"

/* What a connection keeps for a domain. */
typedef struct BxSlot {
  void *p;               /* memory of the domain */
  void (*xFree)(void *); /* called after the connection has closed */
  /* Called before it closes, when it still can be written; may be NULL. It may stay
  ** open, and be called again. */
  void (*xClosing)(void *);
  void *pKept; /* what was read and may be read again */
  void (*xFreeKept)(void *);
  char *zHome; /* the schema that was found for it, or NULL */
  BxStmts
      *pRoom; /* for room.c: of this schema, rows before time iRoom are passed
                  ** over until iRoomUntil */
  i64 iRoom, iRoomUntil;
} BxSlot;

struct Bx {
  sqlite3 *db;
  int nRef;      /* functions and modules that point here */
  int bAnchored; /* blackbox_call is connected: statements may be kept */
  int bClean;    /* when the call began, nothing could be rolled back */
  int bAlone;    /* the savepoint of a call began its transaction */
  int bNewHome;  /* the format of a home was not looked at */
  int bInner;    /* the next function is a part of the call that runs */
  i64 iCall;     /* the call that runs: see bxEnter(); 0 if none does */
  i64 nCall;     /* how many have begun */
  int nTotal;    /* sqlite3_total_changes() when the last one ended */
  int nOwed;     /* rows of xUpdate, which the statements count at their ends */
  i64 nForeign;  /* how many began after somebody else had changed something */
  i64 iWrite;    /* the call that is an xUpdate: see bxWriteBegin() */
  int nChange;   /* rows that were changed when bxWriteNote() was called */
  int bWritten;  /* it has written something */
  int nWhole;    /* VM steps of a complete SAVEPOINT */
  int nFunction; /* the functions */
  const struct BxFunction *aFunction;
  int nDomain; /* entries in aDomain and aSlot */
  const BxDomain *aDomain;
  BxSlot *aSlot;   /* after this structure */
  char *zUse;      /* schema chosen by blackbox_use(), or NULL */
  BxStmts *pStmts; /* one for each schema in use */
  BxVtab *pVtabs;  /* the connected virtual tables of blackbox */
  BxVtab *pGone;   /* those that went while a call runs */
  void (*xFreeGone)(Bx *);
  const BxModule *aModule;   /* their modules; ends with a NULL name */
  sqlite3_uint64 aJson[256]; /* hashes of texts that were found to be JSON */
};

/* The slot of a domain ("payload"). */
BxSlot *bxSlot(Bx *bx, const char *zDomain);
/* The domain of that name, or NULL. */
const BxDomain *bxDomainOf(const Bx *bx, const char *zDomain);
/* Forgets which schema has which domain. */
void bxForgetHomes(Bx *bx);
/* Around the work of a function, or of xUpdate of a table, which a statement of
** the host calls: meanwhile kept statements are looked up only once. bxEnter()
** returns what bxLeave() takes. */
i64 bxEnter(Bx *bx);
void bxLeave(Bx *bx, i64 iOuter);
Bx *bxRef(Bx *bx);
/* The last reference goes when the connection is really closed. */
void bxUnref(void *p);

#endif
