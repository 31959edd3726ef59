/* retention.c: the operations of the domain retention: see operations.h. */
#include "operations.h"

const Operation aRetentionOperation[] = {
    {"plan what goes", RETAINED, 0,
        "SELECT rule, key, blocked_by FROM retention_plan(1800000000000)", 0},
    {"sweep what is due", RETAINED, 0, "SELECT retention_sweep()", 0},
    {"sweep two rows as a row", RETAINED, 0, CALL("retention_sweep", "[2]"), 0},
    {"sweep a table whose trigger refuses",
        RETAINED "CREATE TRIGGER keep BEFORE DELETE ON notes BEGIN"
                 " SELECT RAISE(ABORT, 'no'); END;",
        0, "SELECT retention_sweep(3)", 0},
    {"add a rule", RETAINED, 0,
        "INSERT INTO retention_rules(rule, \"table\", key, time, age_ms)"
        " VALUES('other', 'notes', 'id', 'at', 5)",
        0},
    {"confirm the clock", RETAINED, 0, "SELECT retention_confirm_clock()", 0},
    {"insert into an archive with rows that are due", RETAINED, 0,
        "INSERT INTO event_payloads(event_id, agent_id, request_body, purpose)"
        " VALUES('w', 'a', 'new', 'archive')",
        0},
    {"report on retention", RETAINED, 0,
        "SELECT part, rows, bytes, due_rows, due_bytes FROM retention_report()",
        0},
    {0, 0, 0, 0, 0},
};
