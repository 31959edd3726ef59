/*
** core.h: what the domains of blackbox stand on.
**
** One Bx belongs to one connection that has loaded the module. It owns the
** prepared statements that functions keep, knows in which schema each domain
** is installed, and holds each domain's own memory. Core knows no domain: the
** tables in blackbox.c tell it which there are, with all that is to be known of
** each (connection.h: BxDomain; vtable.h: BxModule).
**
** Error style: every fallible helper takes a BxErr and does nothing once it
** is set, so a chain of calls needs one look at the end. A code from SQLite
** is never replaced by another.
*/
#ifndef BX_CORE_H
#define BX_CORE_H

#include "base.h"       /* SQLite's interface, and names */
#include "error.h"      /* the first error of a chain */
#include "statement.h"  /* SQL templates, and statements kept */
#include "connection.h" /* Bx and BxDomain */
#include "vtable.h"     /* virtual tables that own tables */
#include "value.h"      /* arguments, the clock, ids */
#include "json.h"       /* JSON looked at, written and cut */
#include "command.h"    /* functions, and blackbox_call */
#include "savepoint.h"  /* all or nothing */
#include "table.h"      /* table-valued functions */
#include "install.h"    /* blackbox_install(), blackbox_uninstall() */
#include "check.h"      /* blackbox_check() */
#include "model.h"      /* a schema compared with its SQL */
#include "shadow.h"     /* the tables of a virtual table */

#endif
