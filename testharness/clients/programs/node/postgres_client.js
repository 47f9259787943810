// postgres.js, played straight and through fenceproxy; see ../../doc.go.
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'

const { FENCE_KEY: KEY, FENCE_TOKEN: TOKEN } = process.env
const ssl = process.env.PGSSLMODE === 'require' && 'require'
const opened = []

// recipe
// At connect: each connection of this pool is tagged. postgres.js opens a
// connection with a query of its own for array types, and when that is refused
// nobody can catch the error, so a pool that may be stale goes without it.
function connectTagged(key, token, fetch_types = false) {
  return connected({ connection: { 'fence.key': key, 'fence.token': token }, fetch_types })
}

// For one transaction of any pool; with false instead of true, for the session
// of a pool of one connection (max: 1).
function tag(sql, key, token, isLocal = true) {
  return sql`SELECT set_config('fence.key', ${key}, ${isLocal}), set_config('fence.token', ${token}, ${isLocal})`
}
// end

function connected(options) {
  const sql = postgres({ ssl, max: 1, onnotice: () => {}, ...options })
  opened.push(sql)
  return sql
}

const connect = () => (KEY ? connectTagged(KEY, TOKEN, true) : connected({}))

// codeOf is the SQLSTATE that work fails with.
const codeOf = (work) => work.then(() => 'ok', (err) => err.code ?? err.message)

const count = async (sql, name) => (await sql`SELECT count(*) AS n FROM item WHERE name = ${name}`)[0].n

async function play() {
  const sql = connect()
  const say = (step, ...seen) => console.log(`${step}:`, ...seen)
  say('version', JSON.parse(readFileSync('node_modules/postgres/package.json')).version)
  say('connect', (await sql`SELECT current_user AS name`)[0].name)
  const values = [42, 1.5, true, 'h\u00e9llo', null, [1, 2]]
  const [row] = await sql`SELECT ${42}::int, ${1.5}::float8, ${true}::bool, ${values[3]}::text, ${null}::text, ${sql.array([1, 2])}::int[]`.values()
  say('types', row.filter((v, i) => JSON.stringify(v) === JSON.stringify(values[i])).length)
  const prepared = [] // each text is prepared at its first use
  for (const n of [0, 1, 2]) prepared.push((await sql`SELECT ${n}::int + length(${'abc'}) AS n`)[0].n)
  say('prepared', ...prepared)

  await sql.begin((sql) => sql`INSERT INTO item VALUES (1, 'commit')`)
  say('commit', await count(sql, 'commit'))
  await sql.begin(async (sql) => {
    await sql`INSERT INTO item VALUES (2, 'rollback')`
    throw new Error('rollback')
  }).catch(() => {})
  say('rollback', await count(sql, 'rollback'))
  await sql.begin(async (sql) => {
    await sql`INSERT INTO item VALUES (3, 'savepoint')`
    await sql.savepoint(async (sql) => {
      await sql`INSERT INTO item VALUES (4, 'savepoint')`
      throw new Error('rollback')
    }).catch(() => {})
  })
  say('savepoint', await count(sql, 'savepoint'))
  say('errors',
    await codeOf(sql`INSERT INTO item VALUES (1, 'again')`), await codeOf(sql`SELEC 1`),
    await codeOf(sql`SELECT 'x'::int`), await codeOf(sql`INSERT INTO item VALUES (${5}, ${null})`))

  const lines = Array.from({ length: 1000 }, (_, i) => `${1001 + i}\tcopy\n`)
  await pipeline(Readable.from(lines), await sql`COPY item FROM STDIN`.writable())
  let out = ''
  for await (const chunk of await sql`COPY item TO STDOUT`.readable()) out += chunk
  say('copy', await count(sql, 'copy'), out.match(/\tcopy\n/g).length)
  say('large', (await sql`SELECT ${'x'.repeat(4194304)}::text AS x`)[0].x.length)
  let read = 0
  for await (const rows of sql`SELECT id FROM item WHERE name = 'copy'`.cursor(100)) read += rows.length
  say('cursor', read)

  // Sent before the first is answered, one of them wrong.
  const [first, code, last] = await Promise.all([
    sql`INSERT INTO item VALUES (21, 'pipeline') RETURNING 1 AS n`, codeOf(sql`SELECT 1 / ${0}::int`), sql`SELECT 3 AS n`])
  say('pipeline', first[0].n, code, last[0].n, await count(sql, 'pipeline'))

  const other = connect()
  say('cancel', await cancel(sql, other))
  const news = await new Promise(async (resolve) => {
    await sql.listen('news', resolve)
    await other.notify('news', 'hello')
  })
  say('notify', news)
}

// cancel cancels a query as soon as the other session sees it run.
async function cancel(sql, other) {
  const query = sql`SELECT pg_sleep(60)`
  const code = codeOf(query)
  while ((await other`SELECT count(*) AS n FROM pg_stat_activity WHERE wait_event = 'PgSleep'`)[0].n === '0') await delay(10)
  query.cancel()
  return await code
}

const write = (sql, row, name) => sql`INSERT INTO item VALUES (${row}, ${name})`

// ways writes with each way to tag: at connect, for the session, for a transaction.
async function ways(token, row, name) {
  const session = connected({})
  return [
    await codeOf(write(connectTagged(KEY, token), row, name)),
    await codeOf(tag(session, KEY, token, false).then(() => write(session, row + 1, name))),
    await codeOf(connected({}).begin(async (sql) => {
      await tag(sql, KEY, token)
      await write(sql, row + 2, name)
    }))]
}

async function fence() {
  const held = connectTagged(KEY, TOKEN)
  console.log('holder:', await codeOf(write(held, 1, 'holder')), ...(await ways(TOKEN, 2, 'holder')))
  await once(createInterface(process.stdin), 'line') // until the lock was lost
  console.log('evicted:', await codeOf(write(held, 11, 'stale')))
  console.log('stale:', ...(await ways(TOKEN, 12, 'stale')))
  console.log('unknown:', ...(await ways(String(Number(TOKEN) + 1000000), 15, 'stale')))
}

await { play, fence }[process.argv[2]]()
await Promise.allSettled(opened.map((sql) => sql.end()))
process.exit(0)
