/*
** core.h: the functions that every domain of blackbox uses.
**
** One Bx belongs to one connection that has loaded the module. It owns the
** prepared statements that functions keep, knows in which schema each domain is
** installed, and holds the memory of each domain. Core does not name any
** domain: the tables in blackbox.c list the domains, with everything that core
** must know about each (connection.h: BxDomain; vtable.h: BxModule).
**
** Errors: every function that can fail takes a BxErr, and does nothing if it is
** already set. So a caller can make a chain of calls and test for an error
** once, at the end. A code from SQLite is never replaced by another.
*/
#ifndef BX_CORE_H
#define BX_CORE_H

#include "base.h"       /* SQLite's interface, and shared names */
#include "error.h"      /* the first error of a chain */
#include "statement.h"  /* SQL templates, and kept statements */
#include "connection.h" /* Bx and BxDomain */
#include "vtable.h"     /* virtual tables that own tables */
#include "value.h"      /* arguments, the time, ids */
#include "clock.h"      /* the time for which rules are applied */
#include "json.h"       /* JSON: checked, written, cut */
#include "hash.h"       /* texts recognised again */
#include "ways.h"       /* JSON: the keys that are looked for */
#include "digest.h"     /* rows by which a change is found */
#include "tree.h"       /* JSON: looked at in many places */
#include "command.h"    /* functions, and blackbox_call */
#include "savepoint.h"  /* all or nothing */
#include "write.h"      /* what xUpdate writes */
#include "table.h"      /* table-valued functions */
#include "install.h"    /* blackbox_install(), blackbox_uninstall() */
#include "check.h"      /* blackbox_check() */
#include "model.h"      /* a schema compared with its SQL */
#include "shadow.h"     /* the tables of a virtual table */
#include "zip.h"        /* contexts of zstd */

#endif
