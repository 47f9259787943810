package wire

// Types of the messages that a client sends. PostgreSQL: protocol.h.
const (
	Bind         byte = 'B'
	Close        byte = 'C'
	CopyData     byte = 'd'
	CopyDone     byte = 'c'
	CopyFail     byte = 'f'
	Describe     byte = 'D'
	Execute      byte = 'E'
	Flush        byte = 'H'
	FunctionCall byte = 'F'
	Parse        byte = 'P'
	Password     byte = 'p'
	Query        byte = 'Q'
	Sync         byte = 'S'
	Terminate    byte = 'X'
)

// Types of the messages that a server sends.
const (
	Authentication       byte = 'R'
	BackendKeyData       byte = 'K'
	BindComplete         byte = '2'
	CloseComplete        byte = '3'
	CommandComplete      byte = 'C'
	CopyInResponse       byte = 'G'
	CopyOutResponse      byte = 'H'
	DataRow              byte = 'D'
	EmptyQuery           byte = 'I'
	ErrorResponse        byte = 'E'
	FunctionCallResponse byte = 'V'
	NegotiateVersion     byte = 'v'
	NoData               byte = 'n'
	NoticeResponse       byte = 'N'
	NotificationResponse byte = 'A'
	ParameterDescription byte = 't'
	ParameterStatus      byte = 'S'
	ParseComplete        byte = '1'
	PortalSuspended      byte = 's'
	ReadyForQuery        byte = 'Z'
	RowDescription       byte = 'T'
)

// Transaction status in a ReadyForQuery.
const (
	StatusIdle   byte = 'I'
	StatusBlock  byte = 'T'
	StatusFailed byte = 'E'
)

// Codes in the first packet of a connection, in place of a version.
const (
	CodeCancel uint32 = 80877102
	CodeSSL    uint32 = 80877103
	CodeGSSEnc uint32 = 80877104
	// CodePeerCancel is a cancel request that one proxy hands to another. It is
	// none of PostgreSQL's, which takes it for an unknown version ("fenc").
	CodePeerCancel uint32 = 0x66656e63
)

const (
	// HeaderLen is a type byte and a length of four bytes that counts itself.
	HeaderLen = 5
	// MaxLength is the largest length field that a client may send: the server
	// itself allocates a message in one piece of at most MaxAllocSize
	// (PQ_LARGE_MESSAGE_LIMIT in libpq.h, MaxAllocSize in memutils.h).
	MaxLength = 0x3fffffff
	// MaxServerLength is the largest that a server sends: what it allocates is
	// the body and a zero byte, and the length field counts itself too
	// (enlargeStringInfo in stringinfo.c).
	MaxServerLength = MaxLength - 1 + 4
	// MaxSmallLength bounds messages that have no body to speak of
	// (PQ_SMALL_MESSAGE_LIMIT in libpq.h).
	MaxSmallLength = 10000
	// MaxStartupLength bounds the first packet (MAX_STARTUP_PACKET_LENGTH in
	// pqcomm.h, which doesn't count the length field itself).
	MaxStartupLength = 10004
	// MaxAuthLength bounds an answer in an authentication exchange
	// (PG_MAX_AUTH_TOKEN_LENGTH in auth.c).
	MaxAuthLength = 65535
)

// ClientLimit returns the largest length field that the server takes for a
// client message of type t, or 0 for a type that it doesn't know. It is
// SocketBackend in postgres.c as a table.
func ClientLimit(t byte) int {
	switch t {
	case Query, Parse, Bind, FunctionCall, CopyData:
		return MaxLength
	case Close, Describe, Execute, Flush, Sync, Terminate, CopyDone, CopyFail:
		return MaxSmallLength
	}
	return 0
}
