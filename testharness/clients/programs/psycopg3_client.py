"""psycopg 3, played straight and through fenceproxy; see ../doc.go."""
import os
import sys
import threading
import time

import psycopg

KEY, TOKEN = os.environ.get("FENCE_KEY"), os.environ.get("FENCE_TOKEN")


# recipe
# At connect. PostgreSQL wants a backslash before each space and backslash.
def connect_tagged(key, token):
    escaped = key.replace("\\", "\\\\").replace(" ", "\\ ")
    return psycopg.connect(options=f"-c fence.key={escaped} -c fence.token={token}")


# Later: is_local is True for this transaction only (pools), False for the session.
def tag(conn, key, token, is_local):
    conn.execute(
        "SELECT set_config('fence.key', %s, %s), set_config('fence.token', %s, %s)",
        (key, is_local, str(token), is_local))
# end


def connect():
    return connect_tagged(KEY, TOKEN) if KEY else psycopg.connect()


def code_of(conn, work):
    """The SQLSTATE that work fails with. Its transaction is over then."""
    try:
        with conn:  # commits, or rolls back, and closes
            work(conn)
        return "ok"
    except psycopg.Error as err:
        return err.sqlstate


def one(conn, sql, args=None, **how):
    return conn.execute(sql, args, **how).fetchone()[0]


def count(conn, name):
    return one(conn, "SELECT count(*) FROM item WHERE name = %s", (name,))


def play():
    conn = connect()
    print("version:", psycopg.__version__)
    print("connect:", one(conn, "SELECT current_user"))
    values = (42, 1.5, True, "h\u00e9llo", None, [1, 2])
    row = conn.execute("SELECT %s::int, %s::float8, %s::bool, %s::text, %s::text, %s::int[]", values, binary=True).fetchone()
    print("types:", sum(a == b for a, b in zip(row, values)))
    print("prepared:", *[one(conn, "SELECT %s::int + length(%s)", (n, "abc"), prepare=True) for n in range(3)])

    conn.execute("INSERT INTO item VALUES (1, 'commit')")
    conn.commit()
    print("commit:", count(conn, "commit"))
    conn.execute("INSERT INTO item VALUES (2, 'rollback')")
    conn.rollback()
    print("rollback:", count(conn, "rollback"))
    with conn.transaction():
        conn.execute("INSERT INTO item VALUES (3, 'savepoint')")
        with conn.transaction(force_rollback=True):
            conn.execute("INSERT INTO item VALUES (4, 'savepoint')")
    conn.commit()
    print("savepoint:", count(conn, "savepoint"))
    print("errors:", *[code_of(connect(), lambda conn, sql=sql: conn.execute(sql)) for sql in (
        "INSERT INTO item VALUES (1, 'again')", "SELEC 1", "SELECT 'x'::int", "INSERT INTO item VALUES (5, NULL)")])

    with conn.cursor().copy("COPY item FROM STDIN") as copy:
        for n in range(1001, 2001):
            copy.write_row((n, "copy"))
    conn.commit()
    with conn.cursor().copy("COPY item TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["int4", "text"])
        out = sum(name == "copy" for _, name in copy.rows())
    print("copy:", count(conn, "copy"), out)
    print("large:", len(one(conn, "SELECT %s::text", ("x" * 4194304,))))
    with conn.cursor("scroll") as scroll:  # a cursor in the server
        scroll.execute("SELECT id FROM item WHERE name = 'copy'")
        print("cursor:", sum(1 for _ in scroll))
    conn.commit()
    print("pipeline:", *pipeline())
    other = connect()
    other.autocommit = True
    print("cancel:", cancel(connect(), other))
    conn.autocommit = True
    conn.execute("LISTEN news")
    other.execute("NOTIFY news, 'hello'")
    print("notify:", next(conn.notifies()).payload)


def pipeline():
    """Statements that are sent before the first is answered, one of them wrong."""
    conn = connect()
    conn.autocommit = True
    with conn.pipeline() as pipe:
        conn.execute("INSERT INTO item VALUES (21, 'pipeline')")
        first = conn.execute("SELECT 1")
        pipe.sync()
        # Which of the calls hears of the error depends on when the answers come.
        codes = [pipelined(conn.execute, "SELECT 1 / %s", (0,)), pipelined(conn.execute, "INSERT INTO item VALUES (22, 'pipeline')")]
        while "ok" not in codes[2:]:  # then all of them have come
            codes.append(pipelined(pipe.sync))
        code, = {c for c in codes if c and c != "ok"}
        last = conn.execute("SELECT 3")
    return first.fetchone()[0], code, last.fetchone()[0], count(conn, "pipeline")


def pipelined(send, *args):
    """The SQLSTATE that a call hears of; None of a statement behind a wrong one."""
    try:
        send(*args)
        return "ok"
    except psycopg.Error as err:
        return err.sqlstate


def cancel(conn, other):
    """Cancels a query as soon as the other session sees it run."""
    def watch():
        while not one(other, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
            time.sleep(0.01)
        conn.cancel()

    thread = threading.Thread(target=watch)
    thread.start()
    code = code_of(conn, lambda conn: conn.execute("SELECT pg_sleep(60)"))
    thread.join()
    return code


def write(conn, row, name):
    conn.execute("INSERT INTO item VALUES (%s, %s)", (row, name))
    conn.commit()


def ways(token, row, name):
    """Writes with each way to tag: at connect, for the session, for a transaction."""
    return [
        code_of(connect_tagged(KEY, token), lambda conn: write(conn, row, name)),
        code_of(psycopg.connect(autocommit=True), lambda conn: (tag(conn, KEY, token, False), write(conn, row + 1, name))),
        code_of(psycopg.connect(), lambda conn: (tag(conn, KEY, token, True), write(conn, row + 2, name)))]


def fence():
    held = connect_tagged(KEY, TOKEN)
    write(held, 1, "holder")
    print("holder: ok", *ways(TOKEN, 2, "holder"), flush=True)
    sys.stdin.readline()  # until the lock was lost
    print("evicted:", code_of(held, lambda conn: write(conn, 11, "stale")))
    print("stale:", *ways(TOKEN, 12, "stale"))
    print("unknown:", *ways(int(TOKEN) + 1000000, 15, "stale"))


{"play": play, "fence": fence}[sys.argv[1]]()
