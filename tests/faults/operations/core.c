/* core.c: the operations of core: see operations.h. */
#include "operations.h"

const Operation aCoreOperation[] = {
    {"install in an attached file", 0, "ATTACH ':memory:' AS other",
        "SELECT blackbox_install('other', 'all')", 0},
    {"install again", 0, 0, "SELECT blackbox_install()", 0},
    {"uninstall", ARCHIVE CACHED ROLLOUT, 0,
        "SELECT blackbox_uninstall('main', NULL, 'force')", 0},
    {0, 0, 0, 0, 0},
};
