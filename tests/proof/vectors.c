/*
** vectors.c: the tree of ext/core/merkle.c with the leaves, roots and paths of the
** examples of RFC 6962 and of the first certificate transparency logs.
**
** A tree in an array is asked for subtrees, so that nothing of the storage is
** needed. tests/proof/proof_helpers.py has the same roots. And the functions of
** ext/core/log.c that no function of SQL calls by itself.
*/
#define SQLITE_CORE 1 /* linked with SQLite */
#include "../../ext/core/core.h"
#include "../../ext/core/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N 8

static const struct {
  int n;
  const char *z;
} aInput[N] = {{0, ""}, {1, "\0"}, {1, "\x10"}, {2, "\x20\x21"},
    {2, "\x30\x31"}, {4, "\x40\x41\x42\x43"},
    {8, "\x50\x51\x52\x53\x54\x55\x56\x57"},
    {16, "\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f"}};

/* Of 0 to 8 leaves. */
static const char *const azRoot[N + 1] = {
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"};

static void isHash(const MerkleHash *pHash, const char *zHex) {
  char z[2 * BX_DIGEST + 1];
  bxHex(pHash->a, BX_DIGEST, z);
  assert_string_equal(z, zHex);
}

static MerkleHash input(int i) {
  return bxMerkleLeaf(aInput[i].z, (size_t)aInput[i].n);
}

static void get(
    Merkle *p, int nHeight, i64 iIndex, MerkleHash *pOut, BxErr *pErr) {
  MerkleHash a, b;
  if (nHeight == 0) {
    *pOut = input((int)iIndex);
    return;
  }
  get(p, nHeight - 1, 2 * iIndex, &a, pErr);
  get(p, nHeight - 1, 2 * iIndex + 1, &b, pErr);
  *pOut = bxMerkleNode(&a, &b);
}

static Merkle tree = {get};

static void a_tree_that_grows_has_the_roots(void **state) {
  Frontier tip = {0, 0, {{{0}}}};
  int i;
  (void)state;
  for (i = 0; i <= N; i++) {
    MerkleHash root = bxFrontierRoot(&tip);
    isHash(&root, azRoot[i]);
    if (i < N) {
      MerkleHash leaf = input(i);
      bxFrontierAdd(&tip, &leaf, 0, 0);
    }
  }
}

static void a_stored_tree_has_the_same_frontier(void **state) {
  int i;
  (void)state;
  for (i = 0; i <= N; i++) {
    BxErr err = {SQLITE_OK, 0};
    Frontier tip;
    MerkleHash root;
    bxMerkleFrontier(&tree, 0, i, &tip, &err);
    root = bxFrontierRoot(&tip);
    isHash(&root, azRoot[i]);
  }
}

static void isPath(const MerklePath *pPath, const char *const *azHex, int n) {
  int i;
  assert_int_equal(pPath->n, n);
  for (i = 0; i < n; i++) isHash(&pPath->a[i], azHex[i]);
}

static void the_paths_of_leaves_are_those_of_the_examples(void **state) {
  static const char *const azFirst[] = {
      "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
      "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
      "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"};
  static const char *const azSixth[] = {
      "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
      "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
      "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"};
  static const char *const azThird[] = {
      "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"};
  BxErr err = {SQLITE_OK, 0};
  MerklePath path;
  (void)state;
  bxMerkleInclusion(&tree, 0, 8, &path, &err);
  isPath(&path, azFirst, 3);
  bxMerkleInclusion(&tree, 5, 8, &path, &err);
  isPath(&path, azSixth, 3);
  bxMerkleInclusion(&tree, 2, 3, &path, &err);
  isPath(&path, azThird, 1);
  bxMerkleInclusion(&tree, 0, 1, &path, &err);
  assert_int_equal(path.n, 0);
}

static void the_paths_between_trees_are_those_of_the_examples(void **state) {
  static const char *const azOne[] = {
      "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
      "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
      "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4"};
  static const char *const azSix[] = {
      "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
      "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
      "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"};
  static const char *const azTwo[] = {
      "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
      "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b"};
  BxErr err = {SQLITE_OK, 0};
  MerklePath path;
  (void)state;
  bxMerkleConsistency(&tree, 1, 8, &path, &err);
  isPath(&path, azOne, 3);
  bxMerkleConsistency(&tree, 6, 8, &path, &err);
  isPath(&path, azSix, 3);
  bxMerkleConsistency(&tree, 2, 5, &path, &err);
  isPath(&path, azTwo, 2);
  bxMerkleConsistency(&tree, 8, 8, &path, &err);
  assert_int_equal(path.n, 0);
}

static i64 ask(sqlite3 *db, const char *zSql) {
  sqlite3_stmt *pStmt = 0;
  i64 n;
  assert_int_equal(sqlite3_prepare_v2(db, zSql, -1, &pStmt, 0), SQLITE_OK);
  assert_int_equal(sqlite3_step(pStmt), SQLITE_ROW);
  n = sqlite3_column_int64(pStmt, 0);
  assert_int_equal(sqlite3_finalize(pStmt), SQLITE_OK);
  return n;
}

/* (A connection of the module has a Bx of its own, which nobody can ask for.) */
static void a_field_of_a_row_that_was_appended_is_erased(void **state) {
  const BxLogRow row = {"user", "note", "s", "me", "r", "{}", 99};
  const BxLogRow record = {
      "retention", "erasure", 0, "me", "why", "{\"kind\":\"text\"}", 99};
  BxErr err = {SQLITE_OK, 0};
  BxStmts stmts;
  Bx bx;
  sqlite3 *db = 0;
  (void)state;
  memset(&bx, 0, sizeof(bx));
  assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
  assert_int_equal(sqlite3_blackbox_init(db, 0, 0), SQLITE_OK);
  ask(db, "SELECT length(blackbox_install('main', 'proof'))");
  bx.db = db;
  bx.bAnchored = 1;
  bxStmtsInit(&stmts, &bx, "main", 0, &err);
  ask(db, "SELECT length(blackbox_version())");
  assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", 0, 0, 0), SQLITE_OK);
  assert_int_equal(bxLogAppend(&stmts, &row, &err), 1);
  assert_int_equal(bxLogAppend(&stmts, &row, &err), 2);
  bxLogErase(&stmts, 1, "actor", &err);
  bxLogErase(&stmts, 1, "reason", &err); /* another one later */
  bxLogAppend(&stmts, &record, &err);
  bxLogProve(&stmts, 9, &err);
  assert_int_equal(err.rc, SQLITE_OK);
  bxStmtsFree(&stmts);
  assert_int_equal(ask(db, "SELECT count(*) FROM proof_verify"), 0);
  assert_int_equal(ask(db, "SELECT count(*) FROM blackbox__log WHERE actor IS"
                           " NULL AND reason IS NULL AND salt = x''"),
      1);
  assert_int_equal(ask(db, "SELECT count(*) FROM blackbox__log WHERE at = 99"
                           " AND kind = 'note' AND actor = 'me'"),
      1);
  assert_int_equal(ask(db, "SELECT count(*) FROM blackbox__erased WHERE salt"
                           " IS NULL AND length(hash) = 32 AND type = 3"),
      2);
  assert_int_equal(sqlite3_exec(db, "ROLLBACK", 0, 0, 0), SQLITE_OK);
  assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

int main(void) {
  const struct CMUnitTest aTest[] = {
      cmocka_unit_test(a_tree_that_grows_has_the_roots),
      cmocka_unit_test(a_stored_tree_has_the_same_frontier),
      cmocka_unit_test(the_paths_of_leaves_are_those_of_the_examples),
      cmocka_unit_test(the_paths_between_trees_are_those_of_the_examples),
      cmocka_unit_test(a_field_of_a_row_that_was_appended_is_erased),
  };
  return cmocka_run_group_tests(aTest, 0, 0);
}
