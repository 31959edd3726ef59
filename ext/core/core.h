/*
** core.h: the functions that every domain of blackbox uses.
**
** One Bx belongs to one connection that has loaded the module. It owns the
** prepared statements that functions keep, knows in which schema each domain is
** installed, and holds the memory of each domain. Core does not name any
** domain: the tables in blackbox.c list the domains, with everything that core
** must know about each (domain.h: BxDomain; vtable.h: BxModule).
**
** Errors: every function that can fail takes a BxErr, and does nothing if it is
** already set. So a caller can make a chain of calls and test for an error
** once, at the end. A code from SQLite is never replaced by another.
*/
#ifndef BX_CORE_H
#define BX_CORE_H

/* values and memory */
#include "error.h"     /* the first error of a chain */
#include "value.h"     /* arguments, the time, ids */
#include "json.h"      /* JSON: checked, written, cut */
#include "json_tree.h" /* JSON: looked at in many places */
#include "digest.h"    /* rows by which a change is found */
#include "merkle.h"    /* the tree of RFC 6962 */
/* statements */
#include "statement.h" /* SQL templates, and kept statements */
#include "json_path.h" /* what rows of formats name */
#include "secrets.h"   /* keys and passwords in texts */
/* transactions */
#include "transaction.h" /* all or nothing */
/* schemas */
#include "domain.h" /* what a domain says of itself */
#include "schema.h" /* which schema has which domain; settings */
#include "model.h"  /* a schema compared with its SQL */
#include "vtable.h" /* virtual tables that own tables */
/* the log */
#include "log.h" /* what blackbox did, and its tree */
/* commands */
#include "command.h"    /* functions, and blackbox_call */
#include "file_limit.h" /* the limit of a file */
#include "table.h"      /* table-valued functions */
#include "install.h"    /* blackbox_install(), blackbox_uninstall() */
#include "prices.h"     /* what a call costs */

#endif
