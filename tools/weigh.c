/* weigh.c: what weigh.py measures in a connection without the module.
**
**   weigh { MODE FILE SQL ROWS PER COUNT } ...
**
** Each group of arguments is a job, and prints its process and a number.
**
** MODE memory  the bytes of the schema in memory, after FILE was opened and a
**              row was read with SQL
** MODE open    the nanoseconds that it takes to open FILE, to read a row with
**              SQL, and to close it
** MODE anew    the nanoseconds that it takes to run SQL, an INSERT, COUNT
**              times, PER a transaction (1: in autocommit), when it is
**              prepared each time. FILE is in WAL mode, synchronous is NORMAL
** MODE kept    the same, when it is prepared once
**
** ROWS is a SELECT, whose ?1 is the number of a row, and whose values become
** the parameters of the INSERT. No two rows have the same number. The first row
** is not measured: it makes SQLite read the schema.
**
** Valgrind counts the instructions of the functions whose names begin with
** "measured". A job has a process of its own, because what others left in the
** heap would change how many instructions it takes. The process that begins the
** jobs calls none of these functions: a job would take over its count. */
#define _POSIX_C_SOURCE 200809L
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGS = 6 };

typedef struct Job {
  const char *zMode, *zFile, *zSql, *zRows;
  int nPer, nCount;
  sqlite3 *db;
  sqlite3_stmt *pKept; /* NULL: SQL is prepared anew */
} Job;

long long measuredOpen(Job *);
long long measuredInsert(Job *, sqlite3_stmt *, int);

static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void must(int ok, sqlite3 *db, const char *zWhat) {
  if (ok) return;
  fprintf(stderr, "weigh: %s: %s\n", zWhat, db ? sqlite3_errmsg(db) : "failed");
  exit(1);
}

static void run(sqlite3 *db, const char *zSql) {
  must(sqlite3_exec(db, zSql, NULL, NULL, NULL) == SQLITE_OK, db, zSql);
}

static sqlite3 *opened(const char *zFile) {
  sqlite3 *db = NULL;
  must(sqlite3_open(zFile, &db) == SQLITE_OK, db, zFile);
  return db;
}

static sqlite3_stmt *prepared(sqlite3 *db, const char *zSql) {
  sqlite3_stmt *p = NULL;
  must(sqlite3_prepare_v2(db, zSql, -1, &p, NULL) == SQLITE_OK, db, zSql);
  return p;
}

static sqlite3 *readOnce(Job *pJob) {
  sqlite3 *db = opened(pJob->zFile);
  sqlite3_stmt *p = prepared(db, pJob->zSql);
  must(sqlite3_step(p) == SQLITE_ROW, db, pJob->zSql);
  sqlite3_finalize(p);
  return db;
}

__attribute__((noinline)) long long measuredOpen(Job *pJob) {
  long long start = now();
  sqlite3_close(readOnce(pJob));
  return now() - start;
}

static long long memory(Job *pJob) {
  int used = 0, most = 0;
  sqlite3 *db = readOnce(pJob);
  sqlite3_db_status(db, SQLITE_DBSTATUS_SCHEMA_USED, &used, &most, 0);
  sqlite3_close(db);
  return used;
}

static void insert(Job *pJob, sqlite3_stmt *pRow, int i, int nPer) {
  if (nPer > 1 && i % nPer == 0) run(pJob->db, "BEGIN");
  sqlite3_stmt *p = pJob->pKept;
  if (!p) p = prepared(pJob->db, pJob->zSql);
  for (int k = 0; k < sqlite3_bind_parameter_count(p); k++)
    sqlite3_bind_value(p, k + 1, sqlite3_column_value(pRow, k));
  must(sqlite3_step(p) == SQLITE_DONE, pJob->db, pJob->zSql);
  if (pJob->pKept)
    sqlite3_reset(p);
  else
    sqlite3_finalize(p);
  if (nPer > 1 && (i + 1) % nPer == 0) run(pJob->db, "COMMIT");
}

__attribute__((noinline)) long long measuredInsert(
    Job *pJob, sqlite3_stmt *pRow, int i) {
  long long start = now();
  insert(pJob, pRow, i, pJob->nPer);
  return now() - start;
}

static long long inserts(Job *pJob, int nRow) {
  sqlite3 *values = opened(":memory:");
  pJob->db = opened(pJob->zFile);
  run(pJob->db, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
  if (strcmp(pJob->zMode, "kept") == 0)
    pJob->pKept = prepared(pJob->db, pJob->zSql);
  sqlite3_stmt *pRow = prepared(values, pJob->zRows);
  long long total = 0;
  for (int i = -1; i < pJob->nCount; i++) {
    sqlite3_bind_int(pRow, 1, nRow++);
    must(sqlite3_step(pRow) == SQLITE_ROW, values, pJob->zRows);
    if (i < 0)
      insert(pJob, pRow, i, 1);
    else
      total += measuredInsert(pJob, pRow, i);
    sqlite3_reset(pRow);
  }
  sqlite3_finalize(pRow);
  sqlite3_finalize(pJob->pKept);
  sqlite3_close(values);
  must(sqlite3_close(pJob->db) == SQLITE_OK, pJob->db, "a transaction is open");
  return total;
}

static void job(Job *pJob, int nRow) {
  pid_t child = fork();
  must(child >= 0, NULL, "fork");
  if (child > 0) {
    int status = 1;
    must(waitpid(child, &status, 0) == child && status == 0, NULL, pJob->zMode);
    return;
  }
  long long n = strcmp(pJob->zMode, "open") == 0     ? measuredOpen(pJob)
                : strcmp(pJob->zMode, "memory") == 0 ? memory(pJob)
                                                     : inserts(pJob, nRow);
  printf("%ld %lld\n", (long)getpid(), n);
  exit(0);
}

int main(int nArg, char **az) {
  int nRow = 0;
  Job first = {"open", ":memory:", "SELECT 1", "", 0, 0, NULL, NULL};
  sqlite3_close(readOnce(&first)); /* what SQLite does once in a process */
  for (az++, nArg--; nArg >= ARGS; az += ARGS, nArg -= ARGS) {
    Job next = {
        az[0], az[1], az[2], az[3], atoi(az[4]), atoi(az[5]), NULL, NULL};
    job(&next, nRow);
    nRow += 1 + next.nCount;
  }
  return 0;
}
