package scram

import (
	"crypto/rand"
	"strconv"
)

const (
	// MechanismPlain binds the exchange to no channel.
	MechanismPlain = "SCRAM-SHA-256"
	// MechanismPlus binds it to the server's certificate.
	MechanismPlus = "SCRAM-SHA-256-PLUS"

	// gs2Plus is the header of a bound exchange; it comes back in front of the
	// binding in the client's final message.
	gs2Plus = "p=" + bindingType + ",,"

	bindingType = "tls-server-end-point"

	// nonceSize is the size of a nonce before base64 (SCRAM_RAW_NONCE_LEN in
	// scram-common.h).
	nonceSize = 18
)

// freshNonce returns our part of a nonce.
func freshNonce() string {
	var raw [nonceSize]byte
	rand.Read(raw[:]) // never fails (crypto/rand)
	return encode(string(raw[:]))
}

// A transcript is the part of an exchange that both sides sign: RFC 5802's
// AuthMessage.
type transcript struct {
	clientFirstBare string
	serverFirst     string
	finalNoProof    string
}

// sign returns the ClientSignature for a StoredKey and the ServerSignature for
// a ServerKey.
func (t transcript) sign(key Key) Key {
	return mac(key, t.clientFirstBare+","+t.serverFirst+","+t.finalNoProof)
}

// A state is where an exchange stands, on either side.
type state int

const (
	// stateInitial: the mechanism is chosen next.
	stateInitial state = iota
	// stateFirst: the client chose without a message; its first one is next.
	stateFirst
	// stateChallenge: the client's first message is out; the server's is next.
	stateChallenge
	// stateProof: the server's first message is out; the proof is next.
	stateProof
	// stateSignature: the proof is out; the server's signature is next.
	stateSignature
	// stateDone: both sides are who they claim to be.
	stateDone
	// stateFailed: nothing may follow.
	stateFailed
)

func (s state) String() string {
	switch s {
	case stateInitial:
		return "initial"
	case stateFirst:
		return "first"
	case stateChallenge:
		return "challenge"
	case stateProof:
		return "proof"
	case stateSignature:
		return "signature"
	case stateDone:
		return "done"
	case stateFailed:
		return "failed"
	default:
		return "state(" + strconv.Itoa(int(s)) + ")"
	}
}
