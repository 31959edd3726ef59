<?php
// PHP's SQLite3: php -d sqlite3.extension_dir=FOLDER sqlite3.php MODULE FILE SCENARIO...
// MODULE is the name of the file in FOLDER.
$db = new SQLite3($argv[2]);
$db->enableExceptions(true);
$db->loadExtension($argv[1]);
echo SQLite3::version()['versionString'], "\n";

function show(array $row): void {
  echo implode('|', $row), "\n";
}

foreach (array_slice($argv, 3) as $scenario) {
  foreach (explode("\n\n", file_get_contents($scenario)) as $sql) {
    if (str_starts_with($sql, '--')) continue;
    try {
      if (str_contains($sql, '?, ?')) {
        $statement = $db->prepare($sql);
        $statement->bindValue(1, 'bound');
        $statement->bindValue(2, 'né€😀');
        $statement->bindValue(3, "\x00\xff", SQLITE3_BLOB);
        $statement->bindValue(4, null);
        $statement->bindValue(5, 1760000000000);
        $statement->execute();
      } else if (preg_match('/^SELECT \w+\(/', $sql)) {
        show($db->querySingle($sql, true));  // query() would call the function twice
      } else if (str_starts_with($sql, 'SELECT')) {
        $rows = $db->query($sql);
        while ($row = $rows->fetchArray(SQLITE3_NUM)) show($row);
      } else {
        $db->exec($sql);
      }
    } catch (Exception $error) {
      // querySingle() adds "Unable to execute statement: ".
      echo 'error: ', preg_replace('/^Unable to execute statement: /', '', $error->getMessage()), "\n";
    }
  }
}
$db->close();
