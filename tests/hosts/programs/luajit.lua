-- LuaJIT, through its FFI: luajit.lua MODULE FILE SCENARIO...
local ffi = require 'ffi'
ffi.cdef [[
typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
const char *sqlite3_libversion(void);
int sqlite3_open(const char *, sqlite3 **);
int sqlite3_close(sqlite3 *);
int sqlite3_enable_load_extension(sqlite3 *, int);
int sqlite3_load_extension(sqlite3 *, const char *, const char *, char **);
int sqlite3_prepare_v2(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
int sqlite3_bind_parameter_count(sqlite3_stmt *);
int sqlite3_bind_text(sqlite3_stmt *, int, const char *, int, void *);
int sqlite3_bind_blob(sqlite3_stmt *, int, const char *, int, void *);
int sqlite3_bind_int64(sqlite3_stmt *, int, int64_t);
int sqlite3_step(sqlite3_stmt *);
int sqlite3_column_count(sqlite3_stmt *);
const char *sqlite3_column_text(sqlite3_stmt *, int);
int sqlite3_finalize(sqlite3_stmt *);
const char *sqlite3_errmsg(sqlite3 *);
]]
local S = ffi.load 'libsqlite3.so.0'
local ROW = 100

local pointer = ffi.new 'sqlite3 *[1]'
assert(S.sqlite3_open(arg[2], pointer) == 0)
local db = pointer[0]
S.sqlite3_enable_load_extension(db, 1)
assert(S.sqlite3_load_extension(db, arg[1], nil, nil) == 0)
S.sqlite3_enable_load_extension(db, 0)

local function run(sql)
  local made = ffi.new 'sqlite3_stmt *[1]'
  local rc = S.sqlite3_prepare_v2(db, sql, -1, made, nil)
  local statement = made[0]
  if rc == 0 and S.sqlite3_bind_parameter_count(statement) > 0 then
    S.sqlite3_bind_text(statement, 1, 'bound', -1, nil)
    S.sqlite3_bind_text(statement, 2, 'né€😀', -1, nil)
    S.sqlite3_bind_blob(statement, 3, '\0\255', 2, nil)
    S.sqlite3_bind_int64(statement, 5, 1760000000000LL)
  end
  while rc == 0 and S.sqlite3_step(statement) == ROW do
    local line = {}
    for i = 0, S.sqlite3_column_count(statement) - 1 do
      local text = S.sqlite3_column_text(statement, i)
      line[#line + 1] = text ~= nil and ffi.string(text) or ''
    end
    print(table.concat(line, '|'))
  end
  if rc ~= 0 or S.sqlite3_finalize(statement) ~= 0 then
    print('error: ' .. ffi.string(S.sqlite3_errmsg(db)))
  end
end

print(ffi.string(S.sqlite3_libversion()))
for i = 3, #arg do
  local text = assert(io.open(arg[i])):read '*a'
  for sql in (text .. '\n\n'):gmatch '(.-)\n\n' do
    if sql:sub(1, 2) ~= '--' then run(sql) end
  end
end
assert(S.sqlite3_close(db) == 0)
