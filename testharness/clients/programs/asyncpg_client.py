"""asyncpg, played straight and through fenceproxy; see ../doc.go."""
import asyncio
import io
import os
import sys

import asyncpg

KEY, TOKEN = os.environ.get("FENCE_KEY"), os.environ.get("FENCE_TOKEN")


# recipe
# At connect; asyncpg.create_pool takes server_settings too.
async def connect_tagged(key, token):
    return await asyncpg.connect(server_settings={"fence.key": key, "fence.token": str(token)})


# Later: is_local is True for this transaction only (pools), False for the session.
async def tag(conn, key, token, is_local):
    await conn.execute(
        "SELECT set_config('fence.key', $1, $3), set_config('fence.token', $2, $3)",
        key, str(token), is_local)
# end


async def connect():
    return await connect_tagged(KEY, TOKEN) if KEY else await asyncpg.connect()


async def code_of(work):
    """The SQLSTATE that work fails with."""
    try:
        await work
        return "ok"
    except asyncpg.PostgresError as err:
        return err.sqlstate


async def count(conn, name):
    return await conn.fetchval("SELECT count(*) FROM item WHERE name = $1", name)


async def play():
    conn = await connect()
    print("version:", asyncpg.__version__)
    print("connect:", await conn.fetchval("SELECT current_user"))
    values = (42, 1.5, True, "h\u00e9llo", None, [1, 2])
    row = await conn.fetchrow("SELECT $1::int, $2::float8, $3::bool, $4::text, $5::text, $6::int[]", *values)
    print("types:", sum(a == b for a, b in zip(row, values)))
    get = await conn.prepare("SELECT $1::int + length($2)")
    print("prepared:", *[await get.fetchval(n, "abc") for n in range(3)])

    async with conn.transaction():
        await conn.execute("INSERT INTO item VALUES (1, 'commit')")
    print("commit:", await count(conn, "commit"))
    transaction = conn.transaction(isolation="serializable")
    await transaction.start()
    await conn.execute("INSERT INTO item VALUES (2, 'rollback')")
    await transaction.rollback()
    print("rollback:", await count(conn, "rollback"))
    async with conn.transaction():
        await conn.execute("INSERT INTO item VALUES (3, 'savepoint')")
        savepoint = conn.transaction()
        await savepoint.start()
        await conn.execute("INSERT INTO item VALUES ($1, $2)", 4, "savepoint")
        await savepoint.rollback()
    print("savepoint:", await count(conn, "savepoint"))
    print("errors:", *[await code_of(conn.execute(sql)) for sql in (
        "INSERT INTO item VALUES (1, 'again')", "SELEC 1", "SELECT 'x'::int", "INSERT INTO item VALUES (5, NULL)")])

    await conn.copy_records_to_table("item", records=[(n, "copy") for n in range(1001, 2001)])
    out = io.BytesIO()
    await conn.copy_from_query("SELECT * FROM item WHERE name = $1", "copy", output=out)
    print("copy:", await count(conn, "copy"), out.getvalue().count(b"\tcopy\n"))
    await conn.executemany("INSERT INTO item VALUES ($1, $2)", [(n, "many") for n in range(3001, 3101)])
    print("executemany:", await count(conn, "many"))
    print("large:", len(await conn.fetchval("SELECT $1::text", "x" * 4194304)))
    async with conn.transaction():  # a portal that is fetched from in portions
        print("cursor:", len([row async for row in conn.cursor("SELECT id FROM item WHERE name = 'copy'", prefetch=100)]))

    other = await connect()
    print("cancel:", await cancel(other))
    news = asyncio.get_running_loop().create_future()
    await conn.add_listener("news", lambda *args: news.set_result(args[3]))
    await other.execute("NOTIFY news, 'hello'")
    print("notify:", await news)
    await conn.close()
    await other.close()


async def cancel(other):
    """Cancels a query as soon as the other session sees it run.

    asyncpg does so when the task is cancelled, and hides the code then."""
    conn = await connect()
    query = asyncio.ensure_future(conn.execute("SELECT pg_sleep(60)"))
    await running(other)
    query.cancel()
    await asyncio.wait([query])
    assert query.cancelled() and await conn.fetchval("SELECT 7") == 7, "the session is of no use after a cancel"
    query = asyncio.ensure_future(code_of(conn.execute("SELECT pg_sleep(60)")))
    await running(other)
    await other.execute("SELECT pg_cancel_backend($1)", conn.get_server_pid())
    code = await query
    await conn.close()
    return code


async def running(other):
    while not await other.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
        await asyncio.sleep(0.01)


async def write(conn, row, name):
    await conn.execute("INSERT INTO item VALUES ($1, $2)", row, name)


async def ways(token, row, name):
    """Writes with each way to tag: at connect, for the session, for a transaction."""
    tagged, session, pooled = await connect_tagged(KEY, token), await asyncpg.connect(), await asyncpg.connect()

    async def in_session():
        await tag(session, KEY, token, False)
        await write(session, row + 1, name)

    async def in_transaction():
        async with pooled.transaction():
            await tag(pooled, KEY, token, True)
            await write(pooled, row + 2, name)

    return [await code_of(work) for work in (write(tagged, row, name), in_session(), in_transaction())]


async def fence():
    held = await connect_tagged(KEY, TOKEN)
    print("holder:", await code_of(write(held, 1, "holder")), *await ways(TOKEN, 2, "holder"), flush=True)
    sys.stdin.readline()  # until the lock was lost
    print("evicted:", await code_of(write(held, 11, "stale")))
    print("stale:", *await ways(TOKEN, 12, "stale"))
    print("unknown:", *await ways(int(TOKEN) + 1000000, 15, "stale"))


asyncio.run({"play": play, "fence": fence}[sys.argv[1]]())
