package scram

import (
	"crypto/subtle"
	"fmt"
	"slices"
)

// MaxServerMessage is the longest part of an Authentication message that a
// Client takes, in bytes (libpq takes 2000: PQconnectPoll in fe-connect.c).
const MaxServerMessage = 2000

// A Client is one login to PostgreSQL. Its steps are Initial, Continue and
// Final, each once. Not for concurrent use.
type Client struct {
	password string // where there is no key
	secret   Secret
	key      Key
	keyed    bool
	binding  []byte
	user     string // "", as libpq does: the startup packet names the user
	nonce    string // our part

	state      state
	gs2        string // our header
	transcript transcript
}

// NewKeyClient returns a login with the ClientKey that belongs to secret.
// binding is CertificateBinding of the certificate that the server showed; nil
// without TLS or for a certificate that has none.
func NewKeyClient(secret Secret, key Key, binding []byte) *Client {
	return &Client{secret: secret, key: key, keyed: true, binding: binding, nonce: freshNonce()}
}

// NewPasswordClient is NewKeyClient for a login with a password, which costs
// the server's count of hashes; a count above MaxIterations is refused.
func NewPasswordClient(password string, binding []byte) *Client {
	return &Client{password: password, binding: binding, nonce: freshNonce()}
}

// Initial takes what follows the code in AuthenticationSASL and returns the
// body of the SASLInitialResponse. Errors: ErrMechanism, ErrMalformed,
// ErrSecretChanged where the key is not the Secret's.
func (c *Client) Initial(offered []byte) ([]byte, error) {
	if err := c.take(stateInitial, offered); err != nil {
		return nil, err
	}
	if c.keyed && !c.key.hash().equal(c.secret.StoredKey) {
		return nil, fmt.Errorf("%w: the client's key is of another one", ErrSecretChanged)
	}
	names, ok := readMechanisms(offered)
	if !ok {
		return nil, fmt.Errorf("%w: list of mechanisms", ErrMalformed)
	}
	mechanism := MechanismPlain
	switch {
	case c.binding != nil && slices.Contains(names, MechanismPlus):
		mechanism, c.gs2 = MechanismPlus, gs2Plus
	case !slices.Contains(names, MechanismPlain):
		return nil, ErrMechanism
	case c.binding != nil:
		c.gs2 = "y,," // lets the server see that its offer was taken out
	default:
		c.gs2 = "n,,"
	}
	c.transcript.clientFirstBare = "n=" + c.user + ",r=" + c.nonce
	c.state = stateChallenge
	return appendInitial(mechanism, c.gs2+c.transcript.clientFirstBare), nil
}

// Bound reports, after Initial, whether the exchange is bound to the server's
// certificate. A caller that insists on that must not send Initial's message
// otherwise.
func (c *Client) Bound() bool { return c.gs2 == gs2Plus }

// Continue takes what follows the code in AuthenticationSASLContinue and
// returns the body of the SASLResponse. Errors: ErrMalformed, ErrNonce,
// ErrSecretChanged with a key, ErrIterations with a password.
func (c *Client) Continue(serverFirst []byte) ([]byte, error) {
	if err := c.take(stateChallenge, serverFirst); err != nil {
		return nil, err
	}
	salt, iterations, nonce, err := c.readFirst(string(serverFirst))
	if err != nil {
		return nil, err
	}
	if c.keyed {
		if salt != c.secret.Salt || iterations != c.secret.Iterations {
			return nil, fmt.Errorf("%w: the server's salt or iteration count is another", ErrSecretChanged)
		}
	} else if c.secret, c.key, err = Derive(c.password, salt, iterations); err != nil {
		return nil, err
	}
	channel := c.gs2
	if c.Bound() {
		channel += string(c.binding)
	}
	c.transcript.serverFirst = string(serverFirst)
	c.transcript.finalNoProof = "c=" + encode(channel) + ",r=" + nonce
	proof := c.key.xor(c.transcript.sign(c.secret.StoredKey))
	c.state = stateSignature
	return []byte(c.transcript.finalNoProof + ",p=" + encode(string(proof[:]))), nil
}

// readFirst reads server-first-message. PostgreSQL sends no extensions, and
// libpq calls them garbage.
func (c *Client) readFirst(text string) (salt string, iterations int, nonce string, err error) {
	in := &cursor{text: text}
	nonce = in.value('r')
	encoded := in.value('s')
	count := in.value('i')
	if in.detail == "" && !in.ended() {
		in.fail("Garbage found at the end of server-first-message.")
	}
	raw, ok := decode(encoded)
	if in.detail == "" && (!ok || len(raw) == 0) {
		in.fail("Malformed salt in server-first-message.")
	}
	if in.detail != "" {
		return "", 0, "", fmt.Errorf("%w: %s", ErrMalformed, in.detail)
	}
	own := len(c.nonce)
	if len(nonce) <= own || subtle.ConstantTimeCompare([]byte(nonce[:own]), []byte(c.nonce)) != 1 || !isNonce(nonce) {
		return "", 0, "", ErrNonce
	}
	if iterations, err = parseIterations(count); err != nil {
		return "", 0, "", fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return string(raw), iterations, nonce, nil
}

// Final takes what follows the code in AuthenticationSASLFinal and verifies
// that the server knows the role's ServerKey. Errors: ErrMalformed,
// ErrSignature, ErrRefused.
func (c *Client) Final(serverFinal []byte) error {
	if err := c.take(stateSignature, serverFinal); err != nil {
		return err
	}
	in := &cursor{text: string(serverFinal)}
	if in.peek() == 'e' {
		return fmt.Errorf("%w: %s", ErrRefused, printableText(in.value('e')))
	}
	signature, ok := decodeKey(in.value('v'))
	if in.detail == "" && !ok {
		in.fail("Malformed signature in server-final-message.")
	}
	if in.detail == "" && !in.ended() {
		in.fail("Garbage found at the end of server-final-message.")
	}
	if in.detail != "" {
		return fmt.Errorf("%w: %s", ErrMalformed, in.detail)
	}
	if !signature.equal(c.transcript.sign(c.secret.ServerKey)) {
		return ErrSignature
	}
	c.state = stateDone
	return nil
}

// take begins a step: in its turn, and with a message of a size that may be
// looked at. Whatever ends the step early leaves the exchange failed.
func (c *Client) take(turn state, message []byte) error {
	now := c.state
	c.state = stateFailed
	if now != turn {
		return fmt.Errorf("%w: state %s", ErrOrder, now)
	}
	if len(message) > MaxServerMessage {
		return fmt.Errorf("%w: longer than %d bytes", ErrMalformed, MaxServerMessage)
	}
	return nil
}

// Verified reports whether the server has proved that it knows the role's
// secret. An AuthenticationOk before that is an impostor's.
func (c *Client) Verified() bool { return c.state == stateDone }

// Keys returns what this login was made with, for the next one by
// NewKeyClient, which costs no hashing; ok is false unless Verified.
func (c *Client) Keys() (secret Secret, key Key, ok bool) {
	if !c.Verified() {
		return Secret{}, Key{}, false
	}
	return c.secret, c.key, true
}
