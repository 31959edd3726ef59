<?php
// PHP's PDO: php -d ffi.enable=1 pdo.php MODULE FILE SCENARIO...
// Pdo\Sqlite of PHP 8.4 can load extensions. Before, FFI registers the module for every connection that the process
// opens later. PHP unloads what FFI has loaded before it closes the last connection, and dlopen() prevents that.
if (class_exists('Pdo\Sqlite')) {
  $db = new Pdo\Sqlite("sqlite:$argv[2]");
  $db->loadExtension($argv[1]);
} else {
  FFI::cdef('void *dlopen(const char *file, int flags);')->dlopen($argv[1], 2);
  $module = FFI::cdef('int sqlite3_blackbox_init(void *db, char **error, const void *api);', $argv[1]);
  $sqlite = FFI::cdef('int sqlite3_auto_extension(int (*init)(void *, char **, const void *));', 'libsqlite3.so.0');
  $sqlite->sqlite3_auto_extension($module->sqlite3_blackbox_init);
  $db = new PDO("sqlite:$argv[2]");
}
$db->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
echo $db->getAttribute(PDO::ATTR_SERVER_VERSION), "\n";
foreach (array_slice($argv, 3) as $scenario) {
  foreach (explode("\n\n", file_get_contents($scenario)) as $sql) {
    if (str_starts_with($sql, '--')) continue;
    try {
      $statement = $db->prepare($sql);
      if (str_contains($sql, '?, ?')) {
        $statement->bindValue(1, 'bound');
        $statement->bindValue(2, 'né€😀');
        $statement->bindValue(3, "\x00\xff", PDO::PARAM_LOB);
        $statement->bindValue(4, null, PDO::PARAM_NULL);
        $statement->bindValue(5, 1760000000000, PDO::PARAM_INT);
      }
      $statement->execute();
      while ($row = $statement->fetch(PDO::FETCH_NUM)) echo implode('|', $row), "\n";
    } catch (PDOException $error) {
      // errorInfo has the message alone.
      echo 'error: ', $error->errorInfo[2], "\n";
    }
  }
}
