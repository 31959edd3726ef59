/*
** guard.c: wraps the calls of SQLite (ld --wrap), and ends the program if a
** statement is used or finalized after it was finalized. SQLite itself would
** use freed memory, often unnoticed.
*/
#include "../../ext/blackbox.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_SEEN 262144 /* a power of 2, twice of what is needed */

static struct Seen {
  const void *p;
  int bAlive;
} aSeen[MAX_SEEN];
static int nSeen;

/* The place of a statement in the hash table; p is 0 if it was never seen. */
static struct Seen *find(const void *p) {
  uint32_t i = (uint32_t)((uintptr_t)p >> 4) * 2654435761u;
  while (aSeen[i % MAX_SEEN].p != 0 && aSeen[i % MAX_SEEN].p != p) i++;
  return &aSeen[i % MAX_SEEN];
}

static void note(sqlite3_stmt *p, int bAlive) {
  struct Seen *pSeen;
  if (p == 0) return;
  pSeen = find(p);
  if (pSeen->p == 0 && ++nSeen > MAX_SEEN / 2) abort();
  pSeen->p = p;
  pSeen->bAlive = bAlive;
}

/* A statement that was never seen was prepared by SQLite for itself. */
static void mustLive(const void *p, const char *zWho) {
  const struct Seen *pSeen = find(p);
  if (pSeen->p == 0 || pSeen->bAlive) return;
  fprintf(stderr, "%s of a statement that is finalized\n", zWho);
  abort();
}

int __real_sqlite3_prepare_v2(
    sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
int __wrap_sqlite3_prepare_v2(
    sqlite3 *db, const char *z, int n, sqlite3_stmt **pp, const char **pz) {
  int rc = __real_sqlite3_prepare_v2(db, z, n, pp, pz);
  note(*pp, 1);
  return rc;
}

int __real_sqlite3_prepare_v3(
    sqlite3 *, const char *, int, unsigned, sqlite3_stmt **, const char **);
int __wrap_sqlite3_prepare_v3(sqlite3 *db, const char *z, int n, unsigned flags,
    sqlite3_stmt **pp, const char **pz) {
  int rc = __real_sqlite3_prepare_v3(db, z, n, flags, pp, pz);
  note(*pp, 1);
  return rc;
}

/* What it returns lives. sqlite3_exec() may have prepared it in the place of one
** that was finalized. */
sqlite3_stmt *__real_sqlite3_next_stmt(sqlite3 *, sqlite3_stmt *);
sqlite3_stmt *__wrap_sqlite3_next_stmt(sqlite3 *db, sqlite3_stmt *p) {
  sqlite3_stmt *pNext = __real_sqlite3_next_stmt(db, p);
  note(pNext, 1);
  return pNext;
}

int __real_sqlite3_finalize(sqlite3_stmt *);
int __wrap_sqlite3_finalize(sqlite3_stmt *p) {
  if (p != 0) mustLive(p, "finalize");
  note(p, 0);
  return __real_sqlite3_finalize(p);
}

#define GUARD(name)                                                            \
  int __real_sqlite3_##name(sqlite3_stmt *);                                   \
  int __wrap_sqlite3_##name(sqlite3_stmt *p) {                                 \
    if (p != 0) mustLive(p, #name);                                            \
    return __real_sqlite3_##name(p);                                           \
  }
GUARD(step)
GUARD(reset)
GUARD(clear_bindings)
GUARD(stmt_busy)

int __real_sqlite3_bind_int64(sqlite3_stmt *, int, sqlite3_int64);
int __wrap_sqlite3_bind_int64(sqlite3_stmt *p, int i, sqlite3_int64 n) {
  mustLive(p, "bind");
  return __real_sqlite3_bind_int64(p, i, n);
}
