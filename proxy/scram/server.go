package scram

import (
	"crypto/subtle"
	"fmt"
	"strings"
)

// MaxClientMessage is the largest length field of a message that a Server
// takes, in bytes, counting itself as the protocol does
// (PG_MAX_SASL_MESSAGE_LENGTH in auth-sasl.h).
const MaxClientMessage = 1024

// A Server is one exchange with one client, in the role of PostgreSQL. Not
// for concurrent use.
type Server struct {
	user    string
	secret  Secret
	doomed  bool // the secret is a mock one
	binding []byte
	nonce   string // our part

	state       state
	plus        bool // the client chose SCRAM-SHA-256-PLUS
	flag        byte // how the client thinks of binding: n, y or p
	clientNonce string
	transcript  transcript
	clientKey   Key
}

// NewServer begins an exchange with user, whose Secret is nil if there is no
// such user or none could be read: then it goes through all the motions with
// mock's and fails like a wrong password. binding is CertificateBinding of the
// certificate that the client was shown; nil, without TLS or for a certificate
// that has none, doesn't offer SCRAM-SHA-256-PLUS.
func NewServer(user string, secret *Secret, mock *Mock, binding []byte) *Server {
	s := &Server{user: user, binding: binding, nonce: freshNonce()}
	s.secret, s.doomed = mock.secret(user), true // made for everybody, for the time it takes
	if secret != nil {
		s.secret, s.doomed = *secret, false
	}
	return s
}

// Mechanisms returns the rest of the body of AuthenticationSASL: the names
// that are offered, best first.
func (s *Server) Mechanisms() []byte {
	const plain = MechanismPlain + "\x00\x00"
	if s.binding == nil {
		return []byte(plain)
	}
	return []byte(MechanismPlus + "\x00" + plain)
}

// Step takes the body of the client's next SASLInitialResponse or SASLResponse
// and returns the rest of the body of AuthenticationSASLContinue or, when Done,
// of AuthenticationSASLFinal. An error is an *Error to be told, and the end.
func (s *Server) Step(body []byte) ([]byte, error) {
	reply, err := s.step(body)
	if err != nil {
		s.state = stateFailed
		return nil, err
	}
	return reply, nil
}

func (s *Server) step(body []byte) ([]byte, error) {
	if len(body)+4 > MaxClientMessage {
		// PostgreSQL logs the length and tells the client just this.
		return nil, PasswordFailed(s.user)
	}
	switch s.state {
	case stateInitial:
		mechanism, message, sent, err := readInitial(body, s.choose)
		if err != nil {
			return nil, err
		}
		s.plus = mechanism == MechanismPlus
		if !sent {
			s.state = stateFirst
			return nil, nil
		}
		return s.first(message)
	case stateFirst:
		return s.first(body)
	case stateProof:
		return s.final(body)
	default:
		return nil, &Error{Code: codeInternal, Message: "invalid SCRAM exchange state"}
	}
}

// Done reports whether the client has proved that it knows the password.
func (s *Server) Done() bool { return s.state == stateDone }

// ClientKey returns the client's key, for a Client; ok is false unless Done.
func (s *Server) ClientKey() (key Key, ok bool) {
	if !s.Done() {
		return Key{}, false
	}
	return s.clientKey, true
}

// choose refuses a mechanism that isn't offered.
func (s *Server) choose(mechanism string) error {
	if mechanism == MechanismPlain || mechanism == MechanismPlus && s.binding != nil {
		return nil
	}
	return &Error{Code: codeProtocol, Message: "client selected an invalid SASL authentication mechanism"}
}

// checkText refuses what PostgreSQL, whose strings end at a NUL, refuses.
func checkText(message []byte) (string, error) {
	if len(message) == 0 {
		return "", malformed("The message is empty.")
	}
	text := string(message)
	if strings.IndexByte(text, 0) >= 0 {
		return "", malformed("Message length does not match input length.")
	}
	return text, nil
}

// first answers client-first-message. The order of the checks, here and in
// final, is PostgreSQL's (read_client_first_message in auth-scram.c).
func (s *Server) first(message []byte) ([]byte, error) {
	text, err := checkText(message)
	if err != nil {
		return nil, err
	}
	c := &cursor{text: text}
	if err := s.readFlag(c); err != nil {
		return nil, err
	}
	switch got := c.peek(); got {
	case 'a':
		return nil, &Error{Code: codeUnsupported, Message: "client uses authorization identity, but it is not supported"}
	case ',':
		c.at++
	default:
		return nil, malformed(fmt.Sprintf("Unexpected attribute \"%s\" in client-first-message.", printable(got)))
	}
	s.transcript.clientFirstBare = text[c.at:]
	if c.peek() == 'm' {
		return nil, &Error{Code: codeUnsupported, Message: "client requires an unsupported SCRAM extension"}
	}
	c.value('n') // the startup packet's user counts
	s.clientNonce = c.value('r')
	if c.detail == "" && !isNonce(s.clientNonce) {
		return nil, &Error{Code: codeProtocol, Message: "non-printable characters in SCRAM nonce"}
	}
	for c.detail == "" && !c.ended() {
		c.any() // an optional extension
	}
	if c.detail != "" {
		return nil, malformed(c.detail)
	}
	s.state = stateProof
	s.transcript.serverFirst = fmt.Sprintf("r=%s%s,s=%s,i=%d", s.clientNonce, s.nonce, encode(s.secret.Salt), s.secret.Iterations)
	return []byte(s.transcript.serverFirst), nil
}

// readFlag reads the channel-binding flag and the comma behind it.
func (s *Server) readFlag(c *cursor) error {
	s.flag = c.peek()
	switch {
	case s.flag != 'n' && s.flag != 'y' && s.flag != 'p':
		return malformed(fmt.Sprintf("Unexpected channel-binding flag \"%s\".", printable(s.flag)))
	case s.flag == 'p' && !s.plus:
		return malformed("The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding data.")
	case s.flag != 'p' && s.plus:
		return malformed("The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.")
	case s.flag == 'y' && s.binding != nil:
		// Somebody in between has taken the offer out.
		return &Error{
			Code:    codeChannel,
			Message: "SCRAM channel binding negotiation error",
			Detail: "The client supports SCRAM channel binding but thinks the server does not.  " +
				"However, this server does support channel binding.",
		}
	}
	if s.flag == 'p' {
		kind := c.value('p')
		if c.detail == "" && kind != bindingType {
			return &Error{Code: codeProtocol, Message: fmt.Sprintf("unsupported SCRAM channel-binding type \"%s\"", printableText(kind))}
		}
	} else {
		c.at++
		c.comma()
	}
	if c.detail != "" {
		return malformed(c.detail)
	}
	return nil
}

// final answers client-final-message (read_client_final_message).
func (s *Server) final(message []byte) ([]byte, error) {
	text, err := checkText(message)
	if err != nil {
		return nil, err
	}
	c := &cursor{text: text}
	channel := c.value('c')
	if c.detail == "" {
		if err := s.checkBinding(channel); err != nil {
			return nil, err
		}
	}
	nonce := c.value('r')
	var proof Key
	for attr := byte(0); attr != 'p' && c.detail == ""; {
		s.transcript.finalNoProof = text[:max(c.at-1, 0)] // up to the comma before the attribute
		var value string
		if attr, value = c.any(); attr == 'p' {
			var ok bool
			if proof, ok = decodeKey(value); !ok {
				c.fail("Malformed proof in client-final-message.")
			}
		}
	}
	if c.detail == "" && !c.ended() {
		c.fail("Garbage found at the end of client-final-message.")
	}
	if c.detail != "" {
		return nil, malformed(c.detail)
	}
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(s.clientNonce+s.nonce)) != 1 {
		return nil, &Error{Code: codeProtocol, Message: "invalid SCRAM response", Detail: "Nonce does not match."}
	}
	return s.verify(proof)
}

// checkBinding compares what the client says of the channel with what is so.
func (s *Server) checkBinding(channel string) error {
	if s.plus {
		want := encode(gs2Plus + string(s.binding))
		if subtle.ConstantTimeCompare([]byte(channel), []byte(want)) != 1 {
			return &Error{Code: codeChannel, Message: "SCRAM channel binding check failed"}
		}
		return nil
	}
	if channel != encode(string(s.flag)+",,") {
		return &Error{Code: codeProtocol, Message: "unexpected SCRAM channel-binding attribute in client-final-message"}
	}
	return nil
}

// verify does all the work for a mock secret too, and only then fails.
func (s *Server) verify(proof Key) ([]byte, error) {
	key := proof.xor(s.transcript.sign(s.secret.StoredKey))
	if !key.hash().equal(s.secret.StoredKey) || s.doomed {
		return nil, PasswordFailed(s.user)
	}
	s.clientKey, s.state = key, stateDone
	signature := s.transcript.sign(s.secret.ServerKey)
	return []byte("v=" + encode(string(signature[:]))), nil
}
