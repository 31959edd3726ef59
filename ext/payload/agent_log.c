/*
** agent_log.c: payload_agent_log, the stops and the starts of agents.
**
** SELECT reads them from the log. INSERT starts an agent that is stopped, or stops
** one, and writes a row of the log: with the time "at", or now. An agent that is
** stopped again stays stopped by whom it was, since when it was.
*/
#include "payload.h"
SQLITE_EXTENSION_INIT3

#include <string.h>

/* The columns, of which the first and the last are computed. */
enum { LOG_ID, LOG_AT, LOG_AGENT, LOG_ACT, LOG_ACTOR, LOG_REASON, LOG_STARTS };

sqlite3_stmt *bxAgentLogRows(Bx *bx, sqlite3_value **apArg, BxErr *pErr) {
  static const char zRows[] =
      "SELECT n, at, subject, kind, actor, reason, substr(detail, 11) + 0, n"
      " FROM main.blackbox__log WHERE domain = 'payload'"
      " AND kind IN ('stop', 'start')";
  BxStmts *pHome = bxDomainSchema(bx, "payload", pErr);
  (void)apArg;
  return pHome ? bxPrepare(pHome, zRows, pErr) : 0;
}

/* The text of an actor or a reason. */
static const char *agentSaid(
    sqlite3_value *pVal, const char *zWhat, BxErr *pErr) {
  const char *z = bxText(pVal, zWhat, 65536, 0, pErr);
  if (z != 0 && z[strspn(z, " \t\r\n")] == 0) {
    bxRefuseArg(pErr, zWhat, "text that is not empty", pVal);
  }
  return z;
}

static void agentAct(BxStmts *p, const char *zAgent, int bStop,
    const char *zActor, const char *zReason, i64 iAt, BxErr *pErr) {
  static const char zStopped[] = "SELECT 1 FROM main.payload_agents"
                                 " WHERE agent_id = ?1 AND stopped_at NOTNULL";
  static const char zThere[] =
      "INSERT INTO main.payload_agents(agent_id) VALUES(?1)"
      " ON CONFLICT DO UPDATE SET starts = starts + 1 - ?2";
  static const char zLog[] =
      "INSERT INTO main.blackbox__log(at, domain, kind, subject, actor, reason,"
      " detail, agent_id) SELECT ?3, 'payload', iif(?2, 'stop', 'start'), ?1,"
      " ?4, ?5, '{\"starts\":' || starts || ',\"went_on\":' || went_on || '}',"
      " ?1 FROM main.payload_agents WHERE agent_id = ?1";
  static const char zStop[] =
      "UPDATE main.payload_agents SET stopped_at = ?2, stopped_by = ?3"
      " WHERE agent_id = ?1 AND stopped_at IS NULL";
  static const char zStart[] =
      "UPDATE main.payload_agents SET stopped_at = NULL, stopped_by = NULL,"
      " kill_switch_event_id = NULL, went_on = 0 WHERE agent_id = ?1";
  bxLock(p, pErr);
  if (!bStop && !bxQueryInt(p, zStopped, pErr, "t", zAgent)) {
    bxFail(pErr, SQLITE_CONSTRAINT,
        "NotFoundError: no agent %Q is stopped; SELECT * FROM payload_agents "
        "WHERE stopped_at",
        zAgent);
  }
  bxStmtExec(p, zThere, pErr, "ti", zAgent, (i64)bStop);
  bxStmtExec(p, zLog, pErr, "tiitt", zAgent, (i64)bStop, iAt, zActor, zReason);
  if (bStop) {
    bxStmtExec(p, zStop, pErr, "tit", zAgent, iAt, zActor);
  } else {
    bxStmtExec(p, zStart, pErr, "t", zAgent);
  }
}

void bxAgentLogWrite(Bx *bx, int argc, sqlite3_value **argv, BxErr *pErr) {
  BxStmts *pHome = bxDomainSchema(bx, "payload", pErr);
  const char *zAgent, *zAct = "start", *zActor, *zReason;
  i64 iAt;
  if (argc == 1 || sqlite3_value_type(argv[0]) != SQLITE_NULL) {
    bxFail(pErr, SQLITE_READONLY,
        "ReadOnlyError: what the log has is not changed; INSERT INTO "
        "payload_agent_log(agent_id, act, actor, reason)");
    return;
  }
  argv += 2;
  zAgent = bxText(argv[LOG_AGENT], "agent_id", 1024, 0, pErr);
  if (sqlite3_value_type(argv[LOG_ACT]) != SQLITE_NULL) {
    zAct = bxText(argv[LOG_ACT], "act", 100, 0, pErr);
  }
  if (zAct != 0 && strcmp(zAct, "stop") != 0 && strcmp(zAct, "start") != 0) {
    bxRefuseArg(pErr, "act", "'start' or 'stop'", argv[LOG_ACT]);
  }
  zActor = agentSaid(argv[LOG_ACTOR], "actor", pErr);
  zReason = agentSaid(argv[LOG_REASON], "reason", pErr);
  iAt = bxTime(argv[LOG_AT], "at", pErr);
  bxRequireKnownFormat(bx, pErr);
  if (pErr->rc != SQLITE_OK) return;
  agentAct(
      pHome, zAgent, strcmp(zAct, "stop") == 0, zActor, zReason, iAt, pErr);
}
