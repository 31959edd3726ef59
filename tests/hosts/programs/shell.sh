#!/bin/sh
# The sqlite3 shell: shell.sh MODULE FILE SCENARIO...
# It writes errors as "Runtime error near line N: message (code)".
module=$1 file=$2
shift 2
{
  echo ".load '$module'"
  echo ".parameter set ?1 \"'bound'\""
  echo ".parameter set ?2 \"'né€😀'\""
  echo ".parameter set ?3 \"x'00ff'\""
  echo ".parameter set ?5 1760000000000"
  echo "SELECT sqlite_version();"
  cat "$@"
} | sqlite3 "$file" 2>&1 |
  sed -E 's/^(Runtime |Parse )?[Ee]rror near line [0-9]+: (.*) \([0-9]+\)$/error: \2/'
