// pgjdbc, played straight and through fenceproxy; see ../doc.go.
import java.io.InputStreamReader;
import java.io.BufferedReader;
import java.io.StringReader;
import java.io.StringWriter;
import java.sql.*;
import java.util.*;
import java.util.concurrent.*;
import org.postgresql.PGConnection;
import org.postgresql.PGStatement;

public class JdbcClient {
    static final String KEY = System.getenv("FENCE_KEY"), TOKEN = System.getenv("FENCE_TOKEN");

    // recipe
    // At connect; a DataSource takes the property options too. PostgreSQL wants
    // a backslash before each space and backslash.
    static Connection connectTagged(String key, String token) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("options", "-c fence.key=" + key.replaceAll("[\\\\ ]", "\\\\$0") + " -c fence.token=" + token);
        return connect(properties);
    }

    // Later: isLocal is true for this transaction only (pools), false for the session.
    static void tag(Connection conn, String key, String token, boolean isLocal) throws SQLException {
        one(conn, "SELECT set_config('fence.key', ?, ?), set_config('fence.token', ?, ?)", key, isLocal, token, isLocal);
    }
    // end

    static Connection connect(Properties properties) throws SQLException {
        Map<String, String> env = System.getenv();
        properties.setProperty("user", env.get("PGUSER"));
        properties.setProperty("password", env.get("PGPASSWORD"));
        properties.setProperty("sslmode", env.get("PGSSLMODE"));
        return DriverManager.getConnection(
            "jdbc:postgresql://" + env.get("PGHOST") + ":" + env.get("PGPORT") + "/" + env.get("PGDATABASE"), properties);
    }

    static Connection connect() throws SQLException {
        return KEY != null ? connectTagged(KEY, TOKEN) : connect(new Properties());
    }

    interface Work { void run() throws Exception; }

    /** The SQLSTATE that work fails with. */
    static String codeOf(Work work) throws Exception {
        try {
            work.run();
            return "ok";
        } catch (SQLException e) {
            return e.getSQLState();
        }
    }

    static Object one(Connection conn, String sql, Object... args) throws SQLException {
        try (PreparedStatement statement = conn.prepareStatement(sql)) {
            for (int i = 0; i < args.length; i++) statement.setObject(i + 1, args[i]);
            if (!statement.execute()) return null;
            statement.getResultSet().next();
            return statement.getResultSet().getObject(1);
        }
    }

    static Object count(Connection conn, String name) throws SQLException {
        return one(conn, "SELECT count(*) FROM item WHERE name = ?", name);
    }

    static void play() throws Exception {
        Connection conn = connect();
        System.out.println("version: " + conn.getMetaData().getDriverVersion());
        System.out.println("connect: " + one(conn, "SELECT current_user"));
        types(conn);
        try (PreparedStatement get = conn.prepareStatement("SELECT ?::int + length(?)")) {
            get.unwrap(PGStatement.class).setPrepareThreshold(1); // in the server from the first run on
            StringJoiner seen = new StringJoiner(" ");
            for (int n = 0; n < 3; n++) {
                get.setInt(1, n);
                get.setString(2, "abc");
                ResultSet rows = get.executeQuery();
                rows.next();
                seen.add(rows.getString(1));
            }
            System.out.println("prepared: " + seen);
        }
        conn.setAutoCommit(false);
        one(conn, "INSERT INTO item VALUES (1, 'commit')");
        conn.commit();
        System.out.println("commit: " + count(conn, "commit"));
        one(conn, "INSERT INTO item VALUES (?, ?)", 2, "rollback");
        conn.rollback();
        System.out.println("rollback: " + count(conn, "rollback"));
        one(conn, "INSERT INTO item VALUES (3, 'savepoint')");
        Savepoint savepoint = conn.setSavepoint();
        one(conn, "INSERT INTO item VALUES (4, 'savepoint')");
        conn.rollback(savepoint);
        conn.commit();
        System.out.println("savepoint: " + count(conn, "savepoint"));
        conn.rollback();
        StringJoiner errors = new StringJoiner(" ");
        for (String sql : List.of("INSERT INTO item VALUES (1, 'again')", "SELEC 1", "SELECT 'x'::int", "INSERT INTO item VALUES (5, NULL)")) {
            errors.add(codeOf(() -> one(conn, sql)));
            conn.rollback();
        }
        System.out.println("errors: " + errors);
        bulk(conn);
        conn.setAutoCommit(true);
        Connection other = connect();
        System.out.println("cancel: " + cancel(conn, other));
        one(conn, "LISTEN news");
        one(other, "NOTIFY news, 'hello'");
        System.out.println("notify: " + conn.unwrap(PGConnection.class).getNotifications(10000)[0].getParameter());
    }

    static void types(Connection conn) throws SQLException {
        List<String> values = Arrays.asList("42", "1.5", "t", "h\u00e9llo", null, "{1,2}");
        try (PreparedStatement statement = conn.prepareStatement("SELECT ?::int, ?::float8, ?::bool, ?::text, ?::text, ?::int[]")) {
            statement.setInt(1, 42);
            statement.setDouble(2, 1.5);
            statement.setBoolean(3, true);
            statement.setString(4, values.get(3));
            statement.setNull(5, Types.VARCHAR);
            statement.setArray(6, conn.createArrayOf("int4", new Object[] {1, 2}));
            ResultSet row = statement.executeQuery();
            row.next();
            int same = 0;
            for (int i = 0; i < values.size(); i++) if (Objects.equals(row.getString(i + 1), values.get(i))) same++;
            System.out.println("types: " + same);
        }
    }

    /** COPY, a batch, a large value, and rows fetched in portions. */
    static void bulk(Connection conn) throws Exception {
        StringBuilder lines = new StringBuilder();
        for (int n = 1001; n <= 2000; n++) lines.append(n).append("\tcopy\n");
        PGConnection pg = conn.unwrap(PGConnection.class);
        pg.getCopyAPI().copyIn("COPY item FROM STDIN", new StringReader(lines.toString()));
        StringWriter out = new StringWriter();
        pg.getCopyAPI().copyOut("COPY item TO STDOUT", out);
        System.out.println("copy: " + count(conn, "copy") + " " + out.toString().lines().filter(l -> l.endsWith("\tcopy")).count());
        try (PreparedStatement batch = conn.prepareStatement("INSERT INTO item VALUES (?, 'many')")) {
            for (int n = 3001; n <= 3100; n++) {
                batch.setInt(1, n);
                batch.addBatch();
            }
            batch.executeBatch();
        }
        conn.commit();
        System.out.println("executemany: " + count(conn, "many"));
        System.out.println("large: " + one(conn, "SELECT ?::text", "x".repeat(4194304)).toString().length());
        try (PreparedStatement scroll = conn.prepareStatement("SELECT id FROM item WHERE name = 'copy'")) {
            scroll.setFetchSize(100); // a portal, in a transaction
            int read = 0;
            for (ResultSet rows = scroll.executeQuery(); rows.next(); ) read++;
            System.out.println("cursor: " + read);
        }
        conn.commit();
    }

    /** Cancels a query as soon as the other session sees it run. */
    static String cancel(Connection conn, Connection other) throws Exception {
        Statement statement = conn.createStatement();
        Future<String> code = CompletableFuture.supplyAsync(() -> {
            try {
                return codeOf(() -> statement.execute("SELECT pg_sleep(60)"));
            } catch (Exception e) {
                throw new CompletionException(e);
            }
        });
        while (one(other, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").equals(0L)) Thread.sleep(10);
        statement.cancel();
        return code.get();
    }

    static void write(Connection conn, int row, String name) throws SQLException {
        one(conn, "INSERT INTO item VALUES (?, ?)", row, name);
    }

    /** Writes with each way to tag: at connect, for the session, for a transaction. */
    static String ways(String token, int row, String name) throws Exception {
        Connection session = connect(new Properties()), pooled = connect(new Properties());
        pooled.setAutoCommit(false);
        String tagged = codeOf(() -> write(connectTagged(KEY, token), row, name));
        return tagged + " " + codeOf(() -> {
            tag(session, KEY, token, false);
            write(session, row + 1, name);
        }) + " " + codeOf(() -> {
            tag(pooled, KEY, token, true);
            write(pooled, row + 2, name);
            pooled.commit();
        });
    }

    static void fence() throws Exception {
        Connection held = connectTagged(KEY, TOKEN);
        System.out.println("holder: " + codeOf(() -> write(held, 1, "holder")) + " " + ways(TOKEN, 2, "holder"));
        new BufferedReader(new InputStreamReader(System.in)).readLine(); // until the lock was lost
        System.out.println("evicted: " + codeOf(() -> write(held, 11, "stale")));
        System.out.println("stale: " + ways(TOKEN, 12, "stale"));
        System.out.println("unknown: " + ways(String.valueOf(Long.parseLong(TOKEN) + 1000000), 15, "stale"));
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("fence")) fence(); else play();
    }
}
