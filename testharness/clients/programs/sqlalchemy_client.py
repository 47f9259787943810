"""SQLAlchemy, played straight and through fenceproxy; see ../doc.go.

The first argument is the driver under it: psycopg2 or asyncpg."""
import asyncio
import os
import sys

import asyncpg
import sqlalchemy
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import create_async_engine

KEY, TOKEN, DRIVER = os.environ.get("FENCE_KEY"), os.environ.get("FENCE_TOKEN"), sys.argv[1]


# recipe
# Each connection of the engine is tagged at connect. psycopg2 hands options to
# PostgreSQL, which wants a backslash before each space and backslash.
def tagged_arguments(key, token):
    if DRIVER == "asyncpg":
        return {"server_settings": {"fence.key": key, "fence.token": str(token)}}
    escaped = key.replace("\\", "\\\\").replace(" ", "\\ ")
    return {"options": f"-c fence.key={escaped} -c fence.token={token}"}


# An engine whose connect_args are tagged_arguments(key, token) needs no more.
# This tags each transaction of any engine, for locks that come and go.
def tag_transactions(engine, key, token):
    @event.listens_for(getattr(engine, "sync_engine", engine), "begin")
    def tag(conn):
        conn.execute(TAG, {"key": key, "token": str(token), "is_local": True})


# With is_local False it tags the session.
TAG = text("SELECT set_config('fence.key', :key, :is_local), set_config('fence.token', :token, :is_local)")
# end

metadata = sqlalchemy.MetaData()
item = sqlalchemy.Table("item", metadata, sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True), sqlalchemy.Column("name", sqlalchemy.Text))


def engine_with(**connect_args):
    """An engine on the server that libpq's variables name."""
    env = os.environ
    if DRIVER == "asyncpg":
        connect_args["ssl"] = "require" if env["PGSSLMODE"] == "require" else False
    create = create_async_engine if DRIVER == "asyncpg" else sqlalchemy.create_engine
    url = sqlalchemy.engine.URL.create(
        "postgresql+" + DRIVER, env["PGUSER"], env["PGPASSWORD"], env["PGHOST"], int(env["PGPORT"]), env["PGDATABASE"])
    return create(url, connect_args=connect_args, future=True)


async def with_connection(engine, work):
    """Runs work, which knows nothing of async, with a connection."""
    if DRIVER == "asyncpg":
        async with engine.connect() as conn:
            return await conn.run_sync(work)
    with engine.connect() as conn:
        return work(conn)


async def code_of(engine, work):
    """The SQLSTATE that work fails with."""
    try:
        await with_connection(engine, work)
        return "ok"
    except sqlalchemy.exc.DBAPIError as err:
        return err.orig.pgcode
    except asyncpg.PostgresError as err:  # SQLAlchemy doesn't wrap what fails while it opens a connection
        return err.sqlstate


def count(conn, name):
    return conn.execute(sqlalchemy.select(sqlalchemy.func.count()).select_from(item).where(item.c.name == name)).scalar()


def steps(conn):
    print("version:", sqlalchemy.__version__)
    print("connect:", conn.execute(text("SELECT current_user")).scalar())
    values = (42, 1.5, True, "h\u00e9llo", None, [1, 2])
    row = conn.execute(text(
        "SELECT CAST(:a AS int), CAST(:b AS float8), CAST(:c AS bool), CAST(:d AS text), CAST(:e AS text), CAST(:f AS int[])"),
        dict(zip("abcdef", values))).one()
    print("types:", sum(a == b for a, b in zip(row, values)))
    get = text("SELECT CAST(:n AS int) + length(:s)")
    print("prepared:", *[conn.execute(get, {"n": n, "s": "abc"}).scalar() for n in range(3)])
    conn.rollback()

    with conn.begin():
        conn.execute(item.insert(), {"id": 1, "name": "commit"})
    print("commit:", count(conn, "commit"))
    conn.rollback()
    conn.execute(item.insert(), {"id": 2, "name": "rollback"})
    conn.rollback()
    print("rollback:", count(conn, "rollback"))
    conn.execute(item.insert(), {"id": 3, "name": "savepoint"})
    nested = conn.begin_nested()
    conn.execute(item.insert(), {"id": 4, "name": "savepoint"})
    nested.rollback()
    conn.commit()
    print("savepoint:", count(conn, "savepoint"))
    conn.execute(item.insert(), [{"id": n, "name": "many"} for n in range(3001, 3101)])
    conn.commit()
    print("executemany:", count(conn, "many"))
    print("large:", len(conn.execute(text("SELECT CAST(:x AS text)"), {"x": "x" * 4194304}).scalar()))


async def play():
    engine = engine_with(**tagged_arguments(KEY, TOKEN)) if KEY else engine_with()
    await with_connection(engine, steps)
    print("errors:", *[await code_of(engine, lambda conn, sql=sql: conn.execute(text(sql))) for sql in (
        "INSERT INTO item VALUES (1, 'again')", "SELEC 1", "SELECT 'x'::int", "INSERT INTO item VALUES (5, NULL)")])

    def cancelled(conn):
        conn.execute(text("SET LOCAL statement_timeout = 100"))
        conn.execute(text("SELECT pg_sleep(60)"))

    print("cancel:", await code_of(engine, cancelled))


def write(row, name, session_token=None):
    def work(conn):
        if session_token:
            conn.execute(TAG, {"key": KEY, "token": session_token, "is_local": False})
        conn.execute(item.insert(), {"id": row, "name": name})
        conn.commit()
    return work


async def ways(token, row, name):
    """Writes with each way to tag: at connect, for the session, for a transaction."""
    transactions = engine_with()
    tag_transactions(transactions, KEY, token)
    return [
        await code_of(engine_with(**tagged_arguments(KEY, token)), write(row, name)),
        await code_of(engine_with(), write(row + 1, name, str(token))),
        await code_of(transactions, write(row + 2, name))]


async def fence():
    held = engine_with(**tagged_arguments(KEY, TOKEN))
    print("holder:", await code_of(held, write(1, "holder")), *await ways(TOKEN, 2, "holder"), flush=True)
    sys.stdin.readline()  # until the lock was lost; the pool keeps its session
    print("evicted:", await code_of(held, write(11, "stale")))
    print("stale:", *await ways(TOKEN, 12, "stale"))
    print("unknown:", *await ways(int(TOKEN) + 1000000, 15, "stale"))


asyncio.run({"play": play, "fence": fence}[sys.argv[2]]())
