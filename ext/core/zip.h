/*
** zip.h: contexts of zstd whose memory comes from SQLite, and is counted and
** limited as all other memory of the connection.
*/
#ifndef BX_ZIP_H
#define BX_ZIP_H

#include "error.h"

/* A ZSTD_CCtx, which compresses. NULL on error. Free it with ZSTD_freeCCtx(). */
void *bxZipNew(BxErr *pErr);
/* A ZSTD_DCtx, which decompresses. NULL on error. Free it with
** ZSTD_freeDCtx(). */
void *bxUnzipNew(BxErr *pErr);

#endif
