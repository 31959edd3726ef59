/*
** core.h: the functions that every domain of blackbox uses. The other headers of core
** are included by the files that need them, so that a change of one compiles few.
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

#include "error.h"       /* the first error of a chain */
#include "value.h"       /* arguments, the time, ids */
#include "json.h"        /* JSON: checked, written, cut */
#include "statement.h"   /* SQL templates, and kept statements */
#include "transaction.h" /* all or nothing */
#include "domain.h"      /* what a domain says of itself */
#include "schema.h"      /* which schema has which domain; settings */
#include "command.h"     /* functions, and blackbox_call */

#endif
