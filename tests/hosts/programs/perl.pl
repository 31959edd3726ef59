# Perl's DBD::SQLite: perl.pl MODULE FILE SCENARIO...
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));
use DBI qw(:sql_types);

my ($module, $file, @scenarios) = @ARGV;
my $db = DBI->connect("dbi:SQLite:dbname=$file", "", "",
  {RaiseError => 1, PrintError => 0, sqlite_unicode => 1});
$db->sqlite_enable_load_extension(1);
$db->sqlite_load_extension($module);
$db->sqlite_enable_load_extension(0);
print $db->selectrow_array("SELECT sqlite_version()"), "\n";
for my $scenario (@scenarios) {
  open(my $in, "<:encoding(UTF-8)", $scenario) or die $!;
  for my $sql (split /\n\n/, do { local $/; <$in> }) {
    next if $sql =~ /^--/;
    eval {
      my $statement = $db->prepare($sql);
      if ($sql =~ /\?, \?/) {
        $statement->bind_param(1, "bound");
        $statement->bind_param(2, "né€😀");
        $statement->bind_param(3, "\x00\xff", SQL_BLOB);
        $statement->bind_param(4, undef);
        $statement->bind_param(5, 1760000000000, SQL_INTEGER);
      }
      $statement->execute;
      while (my $row = $statement->{NUM_OF_FIELDS} && $statement->fetchrow_arrayref) {
        print join("|", map { $_ // "" } @$row), "\n";
      }
      1;
    } or do {
      my $error = $db->errstr;  # $@ adds the file and the line
      print "error: $error\n";
    };
  }
}
$db->disconnect;
