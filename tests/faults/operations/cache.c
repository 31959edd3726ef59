/* cache.c: the operations of the domain cache: see operations.h. */
#include "operations.h"

const Operation aCacheOperation[] = {
    {"uninstall a domain", CACHED, 0,
        "SELECT blackbox_uninstall('main', 'cache', 'force')", 0},
    {"cache", CACHED, 0, CACHE(SESSION, "f4e8g1h3", "[3]", "4000"), 0},
    {"cache by a call, which makes room in the file", CACHED FILE_LIMIT, 0,
        "INSERT INTO blackbox_call(command, arguments) VALUES('cache_write', "
        "json_array(" SESSION ", 'a7b3c9d2', 'f4e8g1h3', '[3]', 'next', NULL, "
        "4000))",
        OP_LATER},
    {"cache it again", CACHED, 0, CACHE(SESSION, "f4e8g1h1", "[3]", "4000"), 0},
    {"cache as a row", CACHED, 0,
        "INSERT INTO cache_items(session_id, task_id, turn_id, description, "
        "timestamp, data) VALUES(" SESSION
        ", 'a7b3c9d2', 'f4e8g1h3', 'next', 4000, '[3]')",
        0},
    {"read the cache", CACHED, 0,
        "SELECT data FROM cache_items; SELECT * FROM cache_list(" SESSION
        "); SELECT cache_stats(" SESSION ")",
        0},
    {"read an item", CACHED, 0,
        "SELECT cache_read(" SESSION " || '_a7b3c9d2_f4e8g1h2', NULL, 2001)",
        OP_MARKS},
    {"read an item and mark it", CACHED, 0,
        "SELECT cache_read(" SESSION " || '_a7b3c9d2_f4e8g1h2', NULL, 90000)",
        OP_MARKS},
    {"take a preset", CACHED, 0, "SELECT cache_use_preset('recycle')", 0},
    {"replace an item", CACHED, 0,
        "REPLACE INTO cache_items(session_id, task_id, turn_id, description, "
        "data) "
        "VALUES(" SESSION ", 'a7b3c9d2', 'f4e8g1h2', 'next', '[3]')",
        0},
    {"cache, with items that have expired",
        CACHED
        "UPDATE cache_items SET expires_at = 5 WHERE turn_id = 'f4e8g1h1';",
        0, CACHE(SESSION, "f4e8g1h3", "[3]", "4000"), 0},
    {"update an item", CACHED, 0,
        "SELECT cache_update(" SESSION " || '_a7b3c9d2_f4e8g1h2', '[7]', 'n', "
        "'{\"kind\":\"tool_result\"}', NULL, 5000, 6000)",
        0},
    {"delete an item", CACHED, 0,
        "SELECT cache_delete(" SESSION " || '_a7b3c9d2_f4e8g1h2', NULL, 90000)",
        0},
    {"evict the oldest",
        CACHED
        "INSERT INTO blackbox_settings(name, value) VALUES('cache.on_quota', "
        "'evict_oldest'), ('cache.session_quota_bytes', 8);",
        0, CACHE(SESSION, "f4e8g1h3", "[3]", "4000"), 0},
    {"mark an access", CACHED, 0,
        "UPDATE cache_sessions SET hits = hits + 1, last_accessed_at = 90000"
        " WHERE session_id = " SESSION,
        0},
    {"clean up orphans",
        CACHED "UPDATE cache_items SET custom_metadata ="
               " '{\"kind\":\"tool_result\"}' WHERE id = 1;",
        0, "SELECT cache_cleanup_orphans(500, 10000000000)", 0},
    {"clear a session", CACHED, 0, "SELECT cache_clear_session(" SESSION ")",
        0},
    {"clean the cache", CACHED, 0,
        "SELECT cache_cleanup_outdated(1, 10000000000)", 0},
    {0, 0, 0, 0, 0},
};
