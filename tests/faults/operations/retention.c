/* retention.c: the operations of the domain retention: see operations.h. */
#include "operations.h"

const Operation aRetentionOperation[] = {
    {"plan what goes", RETAINED, 0,
        "SELECT rule, key, blocked_by FROM retention_plan(1800000000000)", 0},
    {0, 0, 0, 0, 0},
};
