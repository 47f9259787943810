# ruby-pg, played straight and through fenceproxy; see ../doc.go.
require 'pg'

$stdout.sync = true
KEY, TOKEN = ENV.values_at('FENCE_KEY', 'FENCE_TOKEN')

# recipe
# At connect. PostgreSQL wants a backslash before each space and backslash.
def connect_tagged(key, token)
  escaped = key.gsub(/[\\ ]/) { |c| "\\#{c}" }
  PG.connect(options: "-c fence.key=#{escaped} -c fence.token=#{token}")
end

# Later: is_local is true for this transaction only (pools), false for the session.
def tag(conn, key, token, is_local)
  conn.exec_params("SELECT set_config('fence.key', $1, $3), set_config('fence.token', $2, $3)", [key, token, is_local])
end
# end

def connect
  KEY ? connect_tagged(KEY, TOKEN) : PG.connect
end

# The SQLSTATE that the block fails with.
def code_of
  yield
  'ok'
rescue PG::Error => e
  e.result&.error_field(PG::PG_DIAG_SQLSTATE) || e.message
end

def one(conn, sql, args = [])
  conn.exec_params(sql, args).getvalue(0, 0)
end

def count(conn, name)
  one(conn, 'SELECT count(*) FROM item WHERE name = $1', [name])
end

def play
  conn = connect
  conn.type_map_for_queries = PG::BasicTypeMapForQueries.new(conn)
  conn.type_map_for_results = PG::BasicTypeMapForResults.new(conn)
  puts "version: #{PG::VERSION}"
  puts "connect: #{one(conn, 'SELECT current_user')}"
  values = [42, 1.5, true, "h\u00e9llo", nil, [1, 2]]
  row = conn.exec_params('SELECT $1::int, $2::float8, $3::bool, $4::text, $5::text, $6::int[]', values).values[0]
  puts "types: #{row.zip(values).count { |a, b| a == b }}"
  conn.prepare('get', 'SELECT $1::int + length($2)')
  puts "prepared: #{(0..2).map { |n| conn.exec_prepared('get', [n, 'abc']).getvalue(0, 0) }.join(' ')}"

  conn.transaction { conn.exec("INSERT INTO item VALUES (1, 'commit')") }
  puts "commit: #{count(conn, 'commit')}"
  conn.exec('BEGIN')
  conn.exec_params('INSERT INTO item VALUES ($1, $2)', [2, 'rollback'])
  conn.exec('ROLLBACK')
  puts "rollback: #{count(conn, 'rollback')}"
  conn.transaction do
    conn.exec("INSERT INTO item VALUES (3, 'savepoint'); SAVEPOINT a")
    conn.exec("INSERT INTO item VALUES (4, 'savepoint')")
    conn.exec('ROLLBACK TO a')
  end
  puts "savepoint: #{count(conn, 'savepoint')}"
  errors = ["INSERT INTO item VALUES (1, 'again')", 'SELEC 1', "SELECT 'x'::int", 'INSERT INTO item VALUES (5, NULL)']
  puts "errors: #{errors.map { |sql| code_of { conn.exec_params(sql, []) } }.join(' ')}"

  conn.copy_data('COPY item FROM STDIN') { (1001..2000).each { |n| conn.put_copy_data("#{n}\tcopy\n") } }
  out = 0
  conn.copy_data('COPY item TO STDOUT') { while (line = conn.get_copy_data) do out += 1 if line.end_with?("\tcopy\n") end }
  puts "copy: #{count(conn, 'copy')} #{out}"
  puts "large: #{one(conn, 'SELECT $1::text', ['x' * 4_194_304]).length}"
  read = 0
  conn.send_query("SELECT id FROM item WHERE name = 'copy'")
  conn.set_single_row_mode
  conn.get_result.stream_each { read += 1 }
  conn.get_result
  puts "rows: #{read}"
  puts "pipeline: #{pipeline.join(' ')}"

  other = connect
  puts "cancel: #{cancel(conn, other)}"
  conn.exec('LISTEN news')
  other.exec("NOTIFY news, 'hello'")
  conn.wait_for_notify { |_, _, payload| puts "notify: #{payload}" }
end

# Statements that are sent before the first is answered, one of them wrong.
def pipeline
  conn = connect
  conn.enter_pipeline_mode
  conn.send_query_params("INSERT INTO item VALUES (21, 'pipeline') RETURNING 1", [])
  conn.pipeline_sync
  conn.send_query_params('SELECT 1 / $1::int', [0])
  conn.send_query_params("INSERT INTO item VALUES (22, 'pipeline')", [])
  conn.pipeline_sync
  conn.send_query_params('SELECT 3', [])
  conn.pipeline_sync
  seen = []
  until seen.count('sync') == 3
    result = conn.get_result or next
    case result.result_status
    when PG::PGRES_TUPLES_OK then seen << result.getvalue(0, 0)
    when PG::PGRES_FATAL_ERROR then seen << result.error_field(PG::PG_DIAG_SQLSTATE)
    when PG::PGRES_PIPELINE_SYNC then seen << 'sync'
    end
  end
  conn.exit_pipeline_mode
  seen - ['sync'] << count(conn, 'pipeline')
end

# Cancels a query as soon as the other session sees it run.
def cancel(conn, other)
  conn.send_query('SELECT pg_sleep(60)')
  sleep 0.01 until one(other, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == '1'
  conn.cancel
  code_of { conn.get_last_result }
end

def write(conn, row, name)
  conn.exec_params('INSERT INTO item VALUES ($1, $2)', [row, name])
end

# Writes with each way to tag: at connect, for the session, for a transaction.
def ways(token, row, name)
  tagged, session, pooled = connect_tagged(KEY, token), PG.connect, PG.connect
  [
    code_of { write(tagged, row, name) },
    code_of { tag(session, KEY, token, false) && write(session, row + 1, name) },
    code_of { pooled.transaction { tag(pooled, KEY, token, true) && write(pooled, row + 2, name) } }
  ].join(' ')
end

def fence
  held = connect_tagged(KEY, TOKEN)
  puts "holder: #{code_of { write(held, 1, 'holder') }} #{ways(TOKEN, 2, 'holder')}"
  $stdin.gets # until the lock was lost
  puts "evicted: #{code_of { write(held, 11, 'stale') }}"
  puts "stale: #{ways(TOKEN, 12, 'stale')}"
  puts "unknown: #{ways(TOKEN.to_i + 1_000_000, 15, 'stale')}"
end

send(ARGV[0])
