package proxy_test

import (
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

// newWide is newRejecting with code that opens a cursor whose query runs when
// the transaction commits.
func newWide(t *testing.T) *stack {
	t.Helper()
	s := newRejecting(t)
	s.exec(`CREATE FUNCTION opens(query text) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN EXECUTE 'DECLARE c CURSOR WITH HOLD FOR ' || query; RETURN 1; END $$;
		CREATE VIEW opening AS SELECT opens('SELECT writes()')`)
	return s
}

// inTurn sends messages one ReadyForQuery at a time, and returns what came.
func (f *frontend) inTurn(messages []pgproto3.FrontendMessage) (got string) {
	f.t.Helper()
	for len(messages) > 0 {
		n := 1
		for replies(messages[:n]) == 0 {
			n++
		}
		f.send(messages[:n]...)
		got, messages = f.until('Z'), messages[n:]
	}
	return got
}

// Without a tag nothing is written either by what the late check can't judge,
// where the proxy has lost sight of it: behind a name that was to be dropped, a
// portal that has outlived an error, an EXECUTE, a cursor that code opens.
func TestSession_RejectsWhatIsWide(t *testing.T) {
	s := newWide(t)
	const hold = "DECLARE h CURSOR WITH HOLD FOR SELECT writes()"
	parse := func(sql string) []pgproto3.FrontendMessage { return join(one(parseAs("c", sql)), syncs) }
	text := func(sql string) []pgproto3.FrontendMessage { return one(query(sql)) }
	bind := func(sql string) []pgproto3.FrontendMessage {
		return join(one(parseAs("", sql), &pgproto3.Bind{DestinationPortal: "p"}), syncs)
	}
	var many []pgproto3.FrontendMessage
	for i := range 4100 {
		if many = append(many, parseAs("n"+strconv.Itoa(i), "SELECT 1")); i%100 == 99 {
			many = append(many, &pgproto3.Sync{})
		}
	}
	run, runPortal := join(executeNamed("c"), syncs), join(one(&pgproto3.Execute{Portal: "p"}), syncs)
	undropped, written := text("SELECT 1/0; DEALLOCATE c"), segments("BEGIN", "SELECT writes()")
	failed := segments("SAVEPOINT a", "SELECT 1/0", "ROLLBACK TO a")
	for name, c := range map[string]struct {
		messages []pgproto3.FrontendMessage
		want     string
	}{
		"a COMMIT that was to be dropped":   {join(parse("COMMIT"), undropped, written, run), "LF004 ZE"},
		"a cursor that was to be dropped":   {join(parse(hold), undropped, run), "LF004 ZI"},
		"a database that was to be dropped": {join(parse("CREATE DATABASE d"), undropped, run), "LF004 ZI"},
		"a COMMIT among many":               {join(parse("COMMIT"), many, written, run), "LF004 ZE"},
		"a COMMIT in a portal":              {join(segments("BEGIN"), bind("COMMIT"), segments("SELECT writes()"), failed, runPortal), "LF004 ZE"},
		"a cursor in a portal":              {join(segments("BEGIN"), bind(hold), failed, runPortal), "LF004 ZE"},
		"a COMMIT whose Close was passed over": {join(segments("BEGIN"), bind("COMMIT"), segments("SELECT writes()", "SAVEPOINT a"),
			execute("SELECT 1/0"), one(&pgproto3.Close{ObjectType: 'P', Name: "p"}, &pgproto3.Sync{}), segments("ROLLBACK TO a"), runPortal), "LF004 ZE"},
		"a COMMIT whose portal was taken": {join(segments("BEGIN"), bind("COMMIT"), segments("SELECT writes()", "SAVEPOINT a"),
			bind("SELECT 1"), segments("ROLLBACK TO a"), runPortal), "LF004 ZE"},
		"EXECUTE of a COMMIT":                 {join(parse("COMMIT"), written, text("EXECUTE c")), "LF004 ZE"},
		"EXECUTE of a COMMIT, quoted":         {join(parse("COMMIT"), written, text(`EXECUTE/**/"c"`)), "LF004 ZE"},
		"EXECUTE of a cursor":                 {join(parse(hold), segments("EXECUTE c")), "LF004 ZI"},
		"a cursor of code":                    {segments("SELECT opens('SELECT writes()')"), "SELECT 1 LF004 ZI"},
		"a cursor of code in a block":         {segments("BEGIN", "SELECT opens('SELECT writes()')", "COMMIT"), "LF004 ZI"},
		"a cursor of code behind a savepoint": {segments("BEGIN", "SAVEPOINT a", "SELECT opens('SELECT writes()')", "RELEASE a", "COMMIT"), "LF004 ZI"},
		"a cursor of code, chained":           {segments("BEGIN", "SELECT opens('SELECT writes()')", "COMMIT AND CHAIN"), "LF004 ZI"},
		"a cursor behind a view":              {text("TABLE opening"), "SELECT 1 LF004 ZI"},
		"a cursor of a DO":                    {text("DO $$BEGIN PERFORM opens('SELECT writes()'); END$$"), "DO LF004 ZI"},
	} {
		t.Run(name, func(t *testing.T) {
			f := s.frontendWith(s.addrs[0], map[string]string{"user": "chief"})
			if got := f.inTurn(c.messages); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			f.send(query("ROLLBACK"))
			f.until('Z')
			var databases int
			if err := s.admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = 'd'").Scan(&databases); err != nil {
				t.Fatal(err)
			}
			if got := s.count("v <> 'one'") + databases; got != 0 {
				t.Errorf("rows and databases left behind: %d", got)
			}
		})
	}
}

// What reads isn't refused for it.
func TestSession_RejectsNoReads(t *testing.T) {
	s := newWide(t)
	wide := join(one(parseAs("w", "COMMIT"), parseAs("i", "INSERT INTO t VALUES (1, 'x')")), syncs)
	fetch := join(one(&pgproto3.Execute{Portal: "p", MaxRows: 1}), syncs)
	for name, c := range map[string]struct {
		messages []pgproto3.FrontendMessage
		want     string
	}{
		"EXECUTE": {join(wide, segments("PREPARE p AS SELECT reads()", "EXECUTE p")), "SELECT 1 ZI"},
		"EXECUTE after all was dropped": {
			join(wide, one(query("DEALLOCATE ALL")), segments("PREPARE p AS SELECT reads()", "EXECUTE p")), "SELECT 1 ZI"},
		"a statement that was prepared by SQL": {
			join(wide, segments("PREPARE p AS SELECT reads()"), executeNamed("p"), syncs), "SELECT 1 ZI"},
		"a name that is used again": {
			join(wide, one(query("DEALLOCATE i"), parseAs("i", "SELECT reads()"), &pgproto3.Sync{}), executeNamed("i"), syncs), "SELECT 1 ZI"},
		"a portal behind a savepoint": {
			join(segments("BEGIN"), one(parseAs("", "SELECT generate_series(1, reads() + 9)"), &pgproto3.Bind{DestinationPortal: "p"}),
				fetch, segments("SAVEPOINT a", "SELECT 1/0", "ROLLBACK TO a"), fetch, segments("COMMIT")), "COMMIT ZI"},
		"a cursor of code that was closed": {
			segments("BEGIN", "SELECT opens('SELECT reads()')", "CLOSE c", "COMMIT"), "COMMIT ZI"},
	} {
		t.Run(name, func(t *testing.T) {
			f := s.frontendWith(s.addrs[0], map[string]string{"user": "chief"})
			if got := f.inTurn(c.messages); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
