/*
** command.h: the functions of SQL, and the table blackbox_call.
**
** A function is a BxFunction in the list of ext/blackbox.c. Its flags say what
** command.c does around a call: a savepoint for BX_WRITE, leaves of the log for
** BX_LOGS. A row that is inserted into blackbox_call is the same call (BxCall)
** without a context for its result.
*/
#ifndef BX_COMMAND_H
#define BX_COMMAND_H

#include "error.h"

#define BX_READ 0  /* reads; in a schema only if that is trusted */
#define BX_WRITE 1 /* changes data: in a savepoint, at the top level only */
#define BX_OWN 2   /* changes data, and handles transactions itself */
#define BX_PURE 4  /* a constant function of its arguments */
#define BX_LOGS 8  /* writes rows of the log (bxLogProveAll()) */
#define BX_SAFE 16 /* with BX_READ: may be used in a schema, too */
#define BX_ALONE 32
#define BX_ACT (BX_WRITE | BX_LOGS)
#define BX_ONE (BX_OWN | BX_ALONE) /* changes data, by one statement */

typedef struct BxFunction {
  const char *zName;
  int nMin, nMax; /* number of arguments */
  int flags;
  void (*xRun)(BxCall *);
} BxFunction;

/* One call of a function, or one row inserted into blackbox_call. */
struct BxCall {
  Bx *bx;
  const BxFunction *pDef;
  int nArg;
  sqlite3_value **aArg;
  sqlite3_context *pCtx; /* NULL for a row */
  BxErr err;
};

/* Argument i, or NULL if it was not given or is SQL NULL. */
sqlite3_value *bxArg(BxCall *p, int i);
#define BX_LIMIT_MOST 1000000000
/* Argument i, which is a limit of rows from 1 to BX_LIMIT_MOST, or nDefault. */
i64 bxLimit(BxCall *p, int i, i64 nDefault);
/* The results. For a call that came as a row they are ignored. */
void bxReturnInt(BxCall *p, i64 iVal);
void bxReturnText(BxCall *p, char *zOwned); /* frees it with sqlite3_free */
void bxReturnJson(BxCall *p, char *zOwned); /* the same, marked as JSON */
void bxReturnValue(BxCall *p, sqlite3_value *pVal);

/* Refuses a call that came as a row inside a transaction, because SQLite does not
** take back what a row did before it failed. */
void bxRefuseInTransaction(BxCall *p);

int bxRegisterFunctions(Bx *bx, const BxFunction *aFunction, int nFunction);
/* The table blackbox_call, of table.h. */
void bxCallWrite(Bx *bx, int argc, sqlite3_value **argv, BxErr *pErr);
extern const struct BxRows bxCallRows;

#endif
