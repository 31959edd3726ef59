# Tcl's sqlite3: tcl.tcl MODULE FILE SCENARIO...
package require sqlite3
fconfigure stdout -encoding utf-8

sqlite3 db [lindex $argv 1]
db enable_load_extension 1
set module [lindex $argv 0]
db eval {SELECT load_extension($module)}
db enable_load_extension 0

set agent bound
# Tcl 8.6 has no characters of more than 16 bits, so the text is bound as its bytes.
set event [binary format H* 6ec3a9e282acf09f9880]
set request [binary format H* 00ff]
set time [expr {1760000000000}]

puts [db onecolumn {SELECT sqlite_version()}]
foreach scenario [lrange $argv 2 end] {
  set in [open $scenario]
  fconfigure $in -encoding utf-8
  foreach sql [split [string map {"\n\n" \0} [read $in]] \0] {
    if {[string match --* $sql]} continue
    # Tcl binds variables by their names, with @ as blobs.
    set sql [string map {{?, ?, ?, ?, ?} {$agent, CAST(@event AS TEXT), @request, NULL, $time}} $sql]
    if {[catch {
      db eval $sql row {
        set line {}
        foreach column $row(*) {lappend line $row($column)}
        puts [join $line |]
      }
    } message]} {
      puts "error: $message"
    }
  }
  close $in
}
db close
