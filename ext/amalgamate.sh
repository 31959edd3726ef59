#!/bin/sh
# amalgamate.sh FILE...: all of blackbox as one C file, on standard output.
#
# Each FILE is written out with the project's own headers in it, each header
# once, where it is first included. blackbox.h stays an #include: it is what
# programs include as well. The order of the files does not matter, since no
# two of them give one name to two things.
set -eu
exec awk '
function directory(path) { sub(/[^\/]*$/, "", path); return path }
function plain(path) {
  while (sub(/[^\/.]+\/\.\.\//, "", path)) { }
  return path
}
function banner(path) {
  sub(/^.*ext\//, "", path)
  printf "\n/******** %s ********/\n", path
}
function add(path,    line, name) {
  banner(path)
  while ((getline line < path) > 0) {
    if (line !~ /^#include "/) { print line; continue }
    name = line
    gsub(/^#include "|".*$/, "", name)
    if (name ~ /(^|\/)blackbox\.h$/) { header(); continue }
    name = plain(directory(path) name)
    if (!(name in seen)) { seen[name] = 1; add(name) }
  }
  close(path)
}
function header() {
  if (!asked++) print "#include \"blackbox.h\""
}
BEGIN {
  print "#ifndef _XOPEN_SOURCE\n#define _XOPEN_SOURCE 700\n#endif"
  for (i = 1; i < ARGC; i++) add(ARGV[i])
}
' "$@"
