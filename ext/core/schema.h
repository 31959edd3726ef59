/*
** schema.h: which schema has which domain, and its settings.
*/
#ifndef BX_SCHEMA_H
#define BX_SCHEMA_H

#include "domain.h"

/* The statements for the schema that has a domain. Errors: NotInstalledError and
** AmbiguousSchemaError. */
BxStmts *bxDomainSchema(Bx *bx, const char *zDomain, BxErr *pErr);
/* Whether schema zDb has the tables of the domain. Reads nothing, because a
** read in a transaction must not precede the first write of the caller. */
int bxSchemaHasDomain(
    Bx *bx, const char *zDb, const char *zDomain, BxErr *pErr);
/* The conversations of p's schema that a session is, by the id that its program gave it:
** a JSON array of their ids, to sqlite3_free(). */
char *bxSessionConversations(BxStmts *p, const char *zSession, BxErr *pErr);
/* VersionError if a build before 1.0 made the tables of schema zDb. Reads nothing.
** bxDomainSchema() and the virtual tables call this themselves. */
void bxRefuseOldFile(Bx *bx, const char *zDb, BxErr *pErr);
/* The same for one table, which has zColumn only if such a build made it. */
void bxRefuseOldTable(Bx *bx, const char *zDb, const char *zTable,
    const char *zColumn, BxErr *pErr);
/* The format of an installed domain, 0 if it is unknown, -1 if it is not
** installed. VersionError if it is newer than this module, or if a build before
** 1.0 made it. */
i64 bxInstalledFormat(BxStmts *p, const BxDomain *pDomain, BxErr *pErr);
/* VersionError if a schema that bxDomainSchema() has found since the last call has a newer
** format of its domain. This is looked at after a function has run, and in a transaction
** only in a schema that it has read, because that is a read, too. A function that keeps
** something in memory, which no savepoint takes back, calls it before that. */
void bxRequireKnownFormat(Bx *bx, BxErr *pErr);
/* The only format of a domain that this module makes. */
#define BX_FORMAT 1

/* A number that is another one after a change by another connection, and after the
** schema was attached anew, when SQLite prepares statements again. */
i64 bxDataVersion(BxStmts *p, BxErr *pErr);
/* One that is another one, too, when the host has committed or replaced the database: only
** commits of bxRelease() leave it. */
i64 bxOthersVersion(BxStmts *p, BxErr *pErr);
/* A number that is another one after each change of the schema. (That of SQLite is given
** again when it was rolled back; but then all statements have expired.) */
i64 bxSchemaVersion(BxStmts *p, BxErr *pErr);

/* EncodingError unless p's schema stores text as UTF-8. */
void bxRequireUtf8(BxStmts *p, BxErr *pErr);
/* The value of a setting in p's schema. */
double bxSettingReal(BxStmts *p, const char *zName, BxErr *pErr);
i64 bxSettingInt(BxStmts *p, const char *zName, BxErr *pErr);

/*---------------------------------------------------------------- clock ----*/

/* The argument as it is or, if there is none, the clock. ClockError if the clock
** has jumped too far ahead. With bWrite, a time of the clock is remembered in
** p's schema, at most once an hour. */
i64 bxRuleTime(BxStmts *p, sqlite3_value *pNow, int bWrite, BxErr *pErr);
/* Remembers the time of the clock, without a word in the log. */
void bxClockTick(BxStmts *p, BxErr *pErr);
/* The clock, or 0 if it has jumped too far ahead, so that nothing is due. */
i64 bxTrustedTime(BxStmts *p, int bWrite, BxErr *pErr);

/* SQL: the clock of the machine, as in the log. */
#define BX_CLOCK                                                               \
  "CAST(round(julianday('now') * 864e5 - 210866760e6) AS INTEGER)"

/* Whether triggers or tables of others could refuse the DELETE of a row of a table, or of
** the domain of a rule, such as cache.idle. A write removes nothing then by the rule,
** because it could not go on after an error. The schema is read once for the domain, until
** it is another one. */
int bxOthersRefuse(
    BxStmts *p, const char *zRule, const char *zTable, BxErr *pErr);

/* The bytes of the write-ahead log of the schema, 0 if there is none. */
i64 bxWalBytes(Bx *bx, const char *zDb);

#endif
