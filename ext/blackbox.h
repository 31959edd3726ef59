/*
** blackbox.h: for programs that link blackbox instead of loading it.
**
** Compile ext/ with -DSQLITE_CORE, link with SQLite, libuuid, libcrypto, libzstd
** and zlib, and either call sqlite3_blackbox_init(db, &zErr, 0) on each connection, or
** once
**
**     sqlite3_auto_extension((void (*)(void))sqlite3_blackbox_init);
**
** so that every connection opened later has it. (A module that is made of ext/ or
** of the one-file form, with the static libcrypto, libzstd and zlib, is linked
** with -Wl,--exclude-libs,ALL.)
*/
#ifndef BLACKBOX_H
#define BLACKBOX_H

#include <sqlite3.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BLACKBOX_VERSION "1.0.0-rc1"

#if defined(_WIN32)
#define BLACKBOX_EXPORT __declspec(dllexport)
#else
#define BLACKBOX_EXPORT __attribute__((visibility("default")))
#endif

struct sqlite3_api_routines;

/*
** Adds blackbox to one connection.
**
** db    the connection
** pzErr where a message goes on failure (free it with sqlite3_free), or NULL
** pApi  SQLite's routines when loaded at run time; NULL when linked
**
** Returns SQLITE_OK, also when the connection has blackbox already;
** SQLITE_ERROR with a message for a SQLite before 3.38 or when another copy
** of the SQLite library in this process has loaded the same file.
*/
BLACKBOX_EXPORT int sqlite3_blackbox_init(
    sqlite3 *db, char **pzErr, const struct sqlite3_api_routines *pApi);

#ifdef __cplusplus
}
#endif
#endif
