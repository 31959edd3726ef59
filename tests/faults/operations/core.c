/* core.c: the operations of core: see operations.h. */
#include "operations.h"

const Operation aCoreOperation[] = {
    {"install in an attached file", 0, "ATTACH ':memory:' AS other",
        "SELECT blackbox_install('other', 'all')", 0},
    {"install again", 0, 0, "SELECT blackbox_install()", 0},
    {"install what is lost",
        "DELETE FROM blackbox__probe; UPDATE payload__state SET bytes = 5;"
        "DROP TABLE blackbox__open; DROP TRIGGER payload_delete_guard;",
        0, "SELECT blackbox_install()", 0},
    {"install with a value out of range",
        "PRAGMA ignore_check_constraints = ON;"
        " UPDATE blackbox_settings SET value = 0"
        " WHERE name = 'payload.retention_days';"
        " PRAGMA ignore_check_constraints = OFF;",
        0, "SELECT blackbox_install()", 0},
    {"uninstall",
        ARCHIVE CACHED ROLLOUT
        "INSERT INTO payload_unpins(payload_id, actor, reason)"
        "  SELECT id, 'ann', 'closed' FROM event_payloads"
        "  WHERE event_id = 'o3';",
        0, "SELECT blackbox_uninstall('main', NULL, 'force')", 0},
    {0, 0, 0, 0, 0},
};
