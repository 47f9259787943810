// node-postgres, played straight and through fenceproxy; see ../../doc.go.
import { once } from 'node:events'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as delay } from 'node:timers/promises'
import pg from 'pg'
import { from, to } from 'pg-copy-streams'
import Cursor from 'pg-cursor'

const { FENCE_KEY: KEY, FENCE_TOKEN: TOKEN } = process.env
const ssl = process.env.PGSSLMODE === 'require' && { rejectUnauthorized: false }

// recipe
// At connect; pg.Pool takes options too. PostgreSQL wants a backslash before
// each space and backslash.
async function connectTagged(key, token) {
  const escaped = key.replace(/[\\ ]/g, '\\$&')
  return await connected({ options: `-c fence.key=${escaped} -c fence.token=${token}` })
}

// Later: isLocal is true for this transaction only (pools), false for the session.
function tag(client, key, token, isLocal) {
  return client.query("SELECT set_config('fence.key', $1, $3), set_config('fence.token', $2, $3)", [key, token, isLocal])
}
// end

const opened = []

async function connected(config) {
  const client = new pg.Client({ ssl, ...config })
  client.on('error', () => {}) // of a session that was ended while idle
  await client.connect()
  opened.push(client)
  return client
}

const connect = () => (KEY ? connectTagged(KEY, TOKEN) : connected({}))

// codeOf is the SQLSTATE that work fails with.
const codeOf = (work) => work.then(() => 'ok', (err) => err.code ?? err.message)

const one = async (client, ...query) => Object.values((await client.query(...query)).rows[0])[0]
const count = (client, name) => one(client, 'SELECT count(*) FROM item WHERE name = $1', [name])

async function play() {
  const client = await connect()
  const say = (step, ...seen) => console.log(`${step}:`, ...seen)
  const { version } = createRequire(import.meta.url)('pg/package.json')
  say('version', version)
  say('connect', await one(client, 'SELECT current_user'))
  const values = [42, 1.5, true, 'h\u00e9llo', null, [1, 2]]
  const { rows } = await client.query({
    text: 'SELECT $1::int, $2::float8, $3::bool, $4::text, $5::text, $6::int[]', values, rowMode: 'array' })
  say('types', rows[0].filter((v, i) => JSON.stringify(v) === JSON.stringify(values[i])).length)
  const prepared = []
  for (const n of [0, 1, 2]) {
    prepared.push(await one(client, { name: 'get', text: 'SELECT $1::int + length($2)', values: [n, 'abc'] }))
  }
  say('prepared', ...prepared)

  for (const [row, end] of [[1, 'commit'], [2, 'rollback']]) {
    await client.query('BEGIN')
    await client.query('INSERT INTO item VALUES ($1, $2)', [row, end])
    await client.query(end)
    say(end, await count(client, end))
  }
  await client.query("BEGIN; INSERT INTO item VALUES (3, 'savepoint'); SAVEPOINT a")
  await client.query('INSERT INTO item VALUES ($1, $2)', [4, 'savepoint'])
  await client.query('ROLLBACK TO a; COMMIT')
  say('savepoint', await count(client, 'savepoint'))
  const errors = []
  for (const text of ["INSERT INTO item VALUES (1, 'again')", 'SELEC 1', "SELECT 'x'::int", 'INSERT INTO item VALUES (5, NULL)']) {
    errors.push(await codeOf(client.query(text)))
  }
  say('errors', ...errors)

  const lines = Array.from({ length: 1000 }, (_, i) => `${1001 + i}\tcopy\n`)
  await pipeline(Readable.from(lines), client.query(from('COPY item FROM STDIN')))
  let out = ''
  for await (const chunk of client.query(to('COPY item TO STDOUT'))) out += chunk
  say('copy', await count(client, 'copy'), out.match(/\tcopy\n/g).length)
  say('large', (await one(client, 'SELECT $1::text', ['x'.repeat(4194304)])).length)
  const cursor = client.query(new Cursor("SELECT id FROM item WHERE name = 'copy'"))
  let read = 0
  for (let rows; (rows = await cursor.read(100)).length > 0;) read += rows.length
  await cursor.close()
  say('cursor', read)

  const other = await connect()
  say('cancel', await cancel(client, other))
  await client.query('LISTEN news')
  const news = once(client, 'notification')
  await other.query("NOTIFY news, 'hello'")
  say('notify', (await news)[0].payload)
}

// cancel cancels a query as soon as the other session sees it run.
async function cancel(client, other) {
  const query = new pg.Query('SELECT pg_sleep(60)')
  const ended = once(query, 'end')
  client.query(query)
  while ((await one(other, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")) === '0') await delay(10)
  new pg.Client({ ssl }).cancel(client, query)
  return await codeOf(ended)
}

const write = (client, row, name) => client.query('INSERT INTO item VALUES ($1, $2)', [row, name])

// ways writes with each way to tag: at connect, for the session, for a transaction.
async function ways(token, row, name) {
  const [tagged, session, pooled] = [await connectTagged(KEY, token), await connected({}), await connected({})]
  const inSession = async () => {
    await tag(session, KEY, token, false)
    await write(session, row + 1, name)
  }
  const inTransaction = async () => {
    await pooled.query('BEGIN')
    await tag(pooled, KEY, token, true)
    await write(pooled, row + 2, name)
    await pooled.query('COMMIT')
  }
  return [await codeOf(write(tagged, row, name)), await codeOf(inSession()), await codeOf(inTransaction())]
}

async function fence() {
  const held = await connectTagged(KEY, TOKEN)
  console.log('holder:', await codeOf(write(held, 1, 'holder')), ...(await ways(TOKEN, 2, 'holder')))
  await once(createInterface(process.stdin), 'line') // until the lock was lost
  console.log('evicted:', await codeOf(write(held, 11, 'stale')))
  console.log('stale:', ...(await ways(TOKEN, 12, 'stale')))
  console.log('unknown:', ...(await ways(String(Number(TOKEN) + 1000000), 15, 'stale')))
}

await { play, fence }[process.argv[2]]()
await Promise.allSettled(opened.map((client) => client.end()))
process.exit(0)
