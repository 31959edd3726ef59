# Ruby's sqlite3: ruby.rb MODULE FILE SCENARIO...
require 'sqlite3'

BOUND = ['bound', 'né€😀', SQLite3::Blob.new("\x00\xff".b), nil, 1760000000000]

db = SQLite3::Database.new(ARGV[1])
db.enable_load_extension(true)
db.load_extension(ARGV[0])
db.enable_load_extension(false)
puts db.get_first_value('SELECT sqlite_version()')
ARGV.drop(2).each do |scenario|
  File.read(scenario, encoding: 'UTF-8').split("\n\n").each do |sql|
    next if sql.start_with?('--')
    begin
      db.execute(sql, sql.include?('?, ?') ? BOUND : []) { |row| puts row.join('|') }
    rescue SQLite3::Exception => error
      puts "error: #{error.message}"
    end
  end
end
db.close
