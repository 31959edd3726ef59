/*
** static.c: a program that has the module linked in, as ext/blackbox.h says.
*/
#include "../../ext/blackbox.h"
#include <stdio.h>

static int show(void *p, int n, char **azVal, char **azName) {
  (void)p;
  (void)n;
  (void)azName;
  puts(azVal[0]);
  return 0;
}

int main(void) {
  sqlite3 *db;
  int rc, i;
  sqlite3_auto_extension((void (*)(void))sqlite3_blackbox_init);
  for (i = 0; i < 2; i++) {
    if (sqlite3_open(":memory:", &db) != SQLITE_OK) return 1;
    rc = sqlite3_blackbox_init(
        db, 0, 0); /* it already has the module: nothing happens */
    if (rc == SQLITE_OK) {
      rc = sqlite3_exec(db,
          "SELECT blackbox_install('main', 'all');"
          "CREATE VIRTUAL TABLE ring USING payload_ring;"
          "INSERT INTO ring(agent_id, event_id) VALUES('a', 'e');"
          "SELECT payload_kill_switch('ring', 'a', 'k');"
          "SELECT count(*) FROM blackbox_check;",
          show, 0, 0);
    }
    if (rc != SQLITE_OK) {
      puts(sqlite3_errmsg(db));
      return 1;
    }
    if (sqlite3_close(db) != SQLITE_OK) return 1;
  }
  return 0;
}
