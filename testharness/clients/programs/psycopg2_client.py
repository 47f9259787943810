"""psycopg2, played straight and through fenceproxy; see ../doc.go."""
import io
import os
import sys
import threading
import time

import psycopg2

DATABASE, KEY, TOKEN = os.environ["PGDATABASE"], os.environ.get("FENCE_KEY"), os.environ.get("FENCE_TOKEN")


# recipe
# At connect. PostgreSQL wants a backslash before each space and backslash.
def connect_tagged(key, token):
    escaped = key.replace("\\", "\\\\").replace(" ", "\\ ")
    return psycopg2.connect(dbname=DATABASE, options=f"-c fence.key={escaped} -c fence.token={token}")


# Later: is_local is True for this transaction only (pools), False for the session.
def tag(conn, key, token, is_local):
    with conn.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('fence.key', %s, %s), set_config('fence.token', %s, %s)",
            (key, is_local, str(token), is_local))
# end


def connect():
    return connect_tagged(KEY, TOKEN) if KEY else psycopg2.connect(dbname=DATABASE)


def code_of(conn, work):
    """The SQLSTATE that work fails with. Its transaction is over then."""
    try:
        work()
        conn.commit()
        return "ok"
    except psycopg2.Error as err:
        if not conn.closed:
            conn.rollback()
        return err.pgcode


def one(conn, sql, args=None):
    with conn.cursor() as cursor:
        cursor.execute(sql, args)
        return cursor.fetchone()[0] if cursor.description else None


def count(conn, name):
    return one(conn, "SELECT count(*) FROM item WHERE name = %s", (name,))


def play():
    conn = connect()
    print("version:", psycopg2.__version__.split()[0])
    print("connect:", one(conn, "SELECT current_user"))
    cursor = conn.cursor()
    values = (42, 1.5, True, "h\u00e9llo", None, [1, 2])
    cursor.execute("SELECT %s::int, %s::float8, %s::bool, %s::text, %s::text, %s::int[]", values)
    print("types:", sum(a == b for a, b in zip(cursor.fetchone(), values)))
    cursor.execute("PREPARE get (int, text) AS SELECT $1 + length($2)")
    print("prepared:", *[one(conn, "EXECUTE get (%s, %s)", (n, "abc")) for n in range(3)])

    cursor.execute("INSERT INTO item VALUES (1, 'commit')")
    conn.commit()
    print("commit:", count(conn, "commit"))
    cursor.execute("INSERT INTO item VALUES (2, 'rollback')")
    conn.rollback()
    print("rollback:", count(conn, "rollback"))
    cursor.execute("INSERT INTO item VALUES (3, 'savepoint'); SAVEPOINT a; INSERT INTO item VALUES (4, 'savepoint')")
    cursor.execute("ROLLBACK TO a")
    conn.commit()
    print("savepoint:", count(conn, "savepoint"))
    print("errors:", *[code_of(conn, lambda sql=sql: one(conn, sql)) for sql in (
        "INSERT INTO item VALUES (1, 'again')", "SELEC 1", "SELECT 'x'::int", "INSERT INTO item VALUES (5, NULL)")])

    cursor.copy_expert("COPY item FROM STDIN", io.StringIO("".join(f"{n}\tcopy\n" for n in range(1001, 2001))))
    conn.commit()
    out = io.StringIO()
    cursor.copy_expert("COPY item TO STDOUT", out)
    print("copy:", count(conn, "copy"), out.getvalue().count("\tcopy\n"))
    print("large:", len(one(conn, "SELECT %s::text", ("x" * 4194304,))))
    with conn.cursor("scroll") as scroll:  # a cursor in the server
        scroll.itersize = 100
        scroll.execute("SELECT id FROM item WHERE name = 'copy'")
        print("cursor:", sum(1 for _ in scroll))
    conn.commit()

    other = connect()
    other.autocommit = True
    print("cancel:", cancel(conn, other))
    conn.autocommit = True
    cursor.execute("LISTEN news")
    one(other, "NOTIFY news, 'hello'")
    while not conn.notifies:
        conn.poll()
        time.sleep(0.01)
    print("notify:", conn.notifies.pop().payload)


def cancel(conn, other):
    """Cancels a query as soon as the other session sees it run."""
    def watch():
        while not one(other, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
            time.sleep(0.01)
        conn.cancel()

    thread = threading.Thread(target=watch)
    thread.start()
    code = code_of(conn, lambda: one(conn, "SELECT pg_sleep(60)"))
    thread.join()
    return code


def write(conn, row, name):
    one(conn, "INSERT INTO item VALUES (%s, %s)", (row, name))


def ways(token, row, name):
    """Writes with each way to tag: at connect, for the session, for a transaction."""
    tagged, session, transaction = connect_tagged(KEY, token), psycopg2.connect(dbname=DATABASE), psycopg2.connect(dbname=DATABASE)
    return [
        code_of(tagged, lambda: write(tagged, row, name)),
        code_of(session, lambda: (tag(session, KEY, token, False), session.commit(), write(session, row + 1, name))),
        code_of(transaction, lambda: (tag(transaction, KEY, token, True), write(transaction, row + 2, name)))]


def fence():
    held = connect_tagged(KEY, TOKEN)
    print("holder:", code_of(held, lambda: write(held, 1, "holder")), *ways(TOKEN, 2, "holder"), flush=True)
    sys.stdin.readline()  # until the lock was lost
    print("evicted:", code_of(held, lambda: write(held, 11, "stale")))
    print("stale:", *ways(TOKEN, 12, "stale"))
    print("unknown:", *ways(int(TOKEN) + 1000000, 15, "stale"))


{"play": play, "fence": fence}[sys.argv[1]]()
