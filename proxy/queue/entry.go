package queue

// A Kind says which replies an entry waits for.
type Kind uint8

// The kinds, after the message that causes the replies.
const (
	// Parse waits for ParseComplete.
	Parse Kind = iota
	// Bind waits for BindComplete.
	Bind
	// DescribeStatement waits for ParameterDescription, then RowDescription
	// or NoData.
	DescribeStatement
	// DescribePortal waits for RowDescription or NoData.
	DescribePortal
	// Execute waits for rows or a copy, then CommandComplete,
	// EmptyQueryResponse or PortalSuspended.
	Execute
	// Close waits for CloseComplete.
	Close
	// Sync waits for ReadyForQuery.
	Sync
	// Query waits for the replies of its statements, then ReadyForQuery.
	Query
	// Function waits for FunctionCallResponse, then ReadyForQuery.
	Function
	// CopyData waits for nothing: it marks where copy data was sent, since a
	// server in copy-in mode ignores a Sync.
	CopyData
	// CopyEnd waits for nothing: it marks a CopyDone or CopyFail.
	CopyEnd
	// Malformed waits for an error: that of a Flush which has a body.
	Malformed
)

var kindNames = [...]string{
	"Parse", "Bind", "DescribeStatement", "DescribePortal", "Execute", "Close",
	"Sync", "Query", "Function", "CopyData", "CopyEnd", "Malformed",
}

func (k Kind) String() string { return kindNames[k] }

// Ready reports whether an entry of the kind ends with a ReadyForQuery.
func (k Kind) Ready() bool { return k == Sync || k == Query || k == Function }

// marker reports whether the entry waits for nothing.
func (k Kind) marker() bool { return k == CopyData || k == CopyEnd }

// A Purpose says who wants the replies of an entry, or of one statement of a
// Query.
type Purpose uint8

// The purposes. All but Client are the proxy's own and hidden.
const (
	// Client: the client asked; forwarded.
	Client Purpose = iota
	// Prepare: the proxy makes or drops a statement of its own.
	Prepare
	// Early: the check before a statement that may write.
	Early
	// Late: the check at the end of an implicit transaction, or before the tag
	// changes.
	Late
	// LateCommit: the check before the client's COMMIT. When it fails the
	// client must find its transaction ended, so ReadyForQuery is withheld
	// until a ROLLBACK has followed.
	LateCommit
	// Raise: a statement that fails with the refusal that the client is to
	// see in place of what it sent.
	Raise
	// Examine: the client's text, parsed to hear what PostgreSQL says against
	// it. Its error is the client's; success is hidden.
	Examine
	// Probe: a check in a segment of its own; nothing of it is seen unless it
	// fails, and then its error and ReadyForQuery are.
	Probe
	// Readback: a question to the backend; its rows are captured.
	Readback
	// Resolve: a Sync and a Close behind it whose answers tell which Syncs a
	// COPY that failed had read.
	Resolve
	// Enclose: the BEGIN and COMMIT that the proxy puts around a segment.
	Enclose
	// Confirm: the proxy makes sure that a block is open.
	Confirm
	// Rollback: the end of a transaction whose late check failed; its
	// ReadyForQuery is the client's.
	Rollback
	// Grant: the proxy tells a function what it has done for it.
	Grant
)

var purposeNames = [...]string{
	"client", "prepare", "early", "late", "late-commit", "raise", "examine", "probe", "readback", "resolve", "enclose", "confirm", "rollback", "grant",
}

func (p Purpose) String() string { return purposeNames[p] }

// An Entry is one request whose replies are due.
type Entry struct {
	Kind    Kind
	Purpose Purpose
	// Plan gives, for a Query into which statements were inserted, the
	// purpose of each of its statements in order. Nil: all are the client's.
	Plan []Purpose
	// Checked is what the request side knows of the transaction that is open
	// after this entry if all of it succeeds: that a check covers it.
	Checked bool
	// Ran is what the request side knows of the same transaction: that
	// something ran under its tag that no check covers.
	Ran bool
	// Ends is what the request side knows of how transactions end within this
	// entry; it is handed back untouched.
	Ends uint8
	// Enclosed: the proxy has put a block around the segment. Where it has
	// failed the client must find it ended: see LateCommit.
	Enclosed bool
	// Tagged: a setting of the tag changes within this entry.
	Tagged bool
	// Confirms, if not 0, is what the reply to this entry shows to have come
	// about, in the numbers of whoever pushed it: a generation of the proxy's
	// own statements, a change of the client's.
	Confirms int
	// Shift maps an error position in a rewritten Query to one in the text
	// that the client sent. Nil: positions stay.
	Shift func(int) int
	// Separator is the position in a rewritten Query of the ";" that was put
	// behind the client's text; 0: none was.
	Separator int
	// Alone is what the request side knows of a statement that would be a
	// transaction by itself but for the check beside it; it is handed back
	// untouched. 0: it would be none.
	Alone uint8
}

// purposeAt returns the purpose of the entry's statement number n.
func (e *Entry) purposeAt(n int) Purpose {
	if e.Plan == nil {
		return e.Purpose
	}
	if n < len(e.Plan) {
		return e.Plan[n]
	}
	return Client
}
