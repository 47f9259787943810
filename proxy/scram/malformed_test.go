package scram_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/scram"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
)

// A conversation is what a client sends in an exchange, message by message;
// %NONCE, %PROOF, %HASH and %SHORT stand for what it would have to work out.
type conversation struct {
	name string
	says []string
}

// initial is the body of a SASLInitialResponse.
func initial(mechanism, message string) string {
	return length(mechanism, len(message), message)
}

// length is initial with a length of its own choice.
func length(mechanism string, length int, message string) string {
	return mechanism + "\x00" + string(binary.BigEndian.AppendUint32(nil, uint32(length))) + message
}

const (
	plain = scram.MechanismPlain
	plus  = scram.MechanismPlus
	bound = "p=tls-server-end-point,,"
)

func conversations() []conversation {
	all := []conversation{
		{"good", []string{initial(plain, "n,,n=,r=abc"), "c=biws,r=%NONCE,p=%PROOF"}},
		{"good y", []string{initial(plain, "y,,n=,r=abc"), "c=eSws,r=%NONCE,p=%PROOF"}},
		{"good, bound", []string{initial(plus, bound+"n=,r=abc"), "c=%HASH,r=%NONCE,p=%PROOF"}},
		{"good, late", []string{length(plain, -1, ""), "n,,n=,r=abc", "c=biws,r=%NONCE,p=%PROOF"}},
		{"late and empty", []string{length(plain, -1, ""), ""}},
		{"late twice", []string{length(plain, -1, ""), length(plain, -1, "")}},
		{"late with a tail", []string{length(plain, -1, "x")}},
		{"extensions", []string{initial(plain, "n,,n=bob,r=abc,x=y,Z="), "c=biws,r=%NONCE,x=y,p=%PROOF"}},

		// The message around it: every length is hostile.
		{"nothing", []string{""}},
		{"no NUL", []string{plain}},
		{"no length", []string{plain + "\x00"}},
		{"half a length", []string{plain + "\x00\x00\x00\x00"}},
		{"length too large", []string{length(plain, 12, "n,,n=,r=abc")}},
		{"length too small", []string{length(plain, 10, "n,,n=,r=abc")}},
		{"length 0", []string{length(plain, 0, "")}},
		{"length 0 with a tail", []string{length(plain, 0, "n,,n=,r=abc")}},
		{"length −1 with a tail", []string{length(plain, -1, "n,,n=,r=abc")}},
		{"length −2", []string{length(plain, -2, "n,,n=,r=abc")}},
		{"length 2³¹−1", []string{length(plain, 1<<31-1, "n,,n=,r=abc")}},
		{"length −2³¹", []string{length(plain, -1<<31, "n,,n=,r=abc")}},
		{"length −4", []string{length(plain, -4, "n,,n=,r=abc")}},
		{"no mechanism", []string{initial("", "n,,n=,r=abc")}},
		{"mechanism unknown", []string{initial("SCRAM-SHA-1", "n,,n=,r=abc")}},
		{"mechanism in lower case", []string{initial("scram-sha-256", "n,,n=,r=abc")}},
		{"mechanism unknown and cut", []string{"PLAIN\x00"}},
		{"largest", []string{initial(plain, "n,,n=,r="+strings.Repeat("x", 1020-18-8))}},
		{"one too large", []string{initial(plain, "n,,n=,r="+strings.Repeat("x", 1020-18-8+1))}},
		{"largest proof", []string{initial(plain, "n,,n=,r=abc"), "c=biws,r=%NONCE,x=" + strings.Repeat("x", 1020-86) + ",p=%PROOF"}},
		{"proof too large", []string{initial(plain, "n,,n=,r=abc"), "c=biws,r=%NONCE,x=" + strings.Repeat("x", 1020-85) + ",p=%PROOF"}},
	}
	for _, first := range []string{
		"", "x", "n", "y", "p", "n,", "n,,", "n,,n", "n,,n=", "n,,n=,", "n,,n=,r", "n,,n=,r=", "n,,n=,r=,", "nn,,n=,r=abc", "yy,,n=,r=abc",
		"N,,n=,r=abc", "m,,n=,r=abc", "n;,n=,r=abc", "n,;n=,r=abc", "n,x=y,n=,r=abc", "n,a=bob,n=,r=abc", "n,abc", "n,\x80,", "\xff,,n=,r=abc",
		"n,,m=x,n=,r=abc", "n,,m", "n,,r=abc,n=", "n,,n=,x=y,r=abc", "n,,n:,r=abc", "n,,n=,r:abc", "n,,N=,r=abc",
		"n,,n=,r=a\x00c", "\x00", "n,,n=,r=abc\x00", "n,,n=,r=a c", "n,,n=,r=a\tc", "n,,n=,r=a\x7fc", "n,,n=,r=a\x80c", "n,,n=,r=é", "n,,n=é,r=abc",
		"n,,n=,r=abc,", "n,,n=,r=abc,,", "n,,n=,r=abc,1=x", "n,,n=,r=abc,\xe1=x", "n,,n=,r=abc,x", "n,,n=,r=abc,x:", "n,,n=,r=abc,[=x", "n,,n=,r=abc,`=x", "n,,n=,r=abc,@=x",
		"y,a=x,n=,r=abc", "y;,n=,r=abc", "p=tls-server-end-point,,n=,r=abc", "p=tls-unique,,n=,r=abc", "p=" + strings.Repeat("\xffy", 40) + ",,n=,r=abc", "p,,n=,r=abc", "p=,,n=,r=abc",
		"p=tls-server-end-point", "p=tls-server-end-point,", "p=tls-server-end-point,a=x,n=,r=abc", "p=tls-server-end-point;", "p=tls-server-end-point\x00,,n=,r=abc",
	} {
		for _, mechanism := range []string{plain, plus} {
			all = append(all, conversation{"first " + mechanism + " " + first, []string{initial(mechanism, first), "c=biws,r=%NONCE,p=%PROOF"}})
		}
	}
	for _, final := range []string{
		"", "c", "c=", "c=biws", "c=biws,", "c=biws,r", "c=biws,r=", "c=biws,r=%NONCE", "c=biws,r=%NONCE,", "c=biws,r=%NONCE,p", "c=biws,r=%NONCE,p=",
		"x=y,c=biws,r=%NONCE,p=%PROOF", "r=%NONCE,c=biws,p=%PROOF", "c=biws,p=%PROOF,r=%NONCE", "c=biws,x=y,r=%NONCE,p=%PROOF", "c=biws,p=%PROOF",
		"c=eSws,r=%NONCE,p=%PROOF", "c=BIWS,r=%NONCE,p=%PROOF", "c=biws=,r=%NONCE,p=%PROOF", "c=%HASH,r=%NONCE,p=%PROOF", "c=cD10bHMtc2VydmVyLWVuZC1wb2ludCws,r=%NONCE,p=%PROOF",
		"c=biws,r=abc,p=%PROOF", "c=biws,r=x%NONCE,p=%PROOF", "c=biws,r=%NONCEx,p=%PROOF", "c=biws,r=%NONCE ,p=%PROOF", "c=biws,r=%SHORT,p=%PROOF", "c=biws,r=,p=%PROOF",
		"c=biws,r=%NONCE,p=%PROOFx", "c=biws,r=%NONCE,p=%PROOF,", "c=biws,r=%NONCE,p=%PROOF,x=y", "c=biws,r=%NONCE,p=%PROOF,x", "c=biws,r=%NONCE,p=%PROOF,p=%PROOF", "c=biws,r=%NONCE,p=x,p=%PROOF",
		"c=biws,r=%NONCE,p=AAAA", "c=biws,r=%NONCE,p=" + strings.Repeat("A", 43) + "=", "c=biws,r=%NONCE,p=" + strings.Repeat("A", 44), "c=biws,r=%NONCE,p=" + strings.Repeat("A", 900),
		"c=biws,r=%NONCE,p=" + strings.Repeat("A", 20) + "\n" + strings.Repeat("A", 23) + "=", "c=biws,r=%NONCE,p= %PROOF", "c=biws,r=%NONCE,p=%PROOF\n", "c=biws,r=%NONCE,p=" + strings.Repeat("\x80", 44),
		"c=biws,r=%NONCE,P=%PROOF", "c=biws,r=%NONCE,1=x,p=%PROOF", "c=biws,r=%NONCE,\xe1=x,p=%PROOF", "c=biws,r=%NONCE,,p=%PROOF", "c=biws,r=%NONCE,xy=z,p=%PROOF",
		"c=biws,r=%NONCE,p=%PROOF\x00", "c=biws\x00,r=%NONCE,p=%PROOF", "\x00", "n,,n=,r=abc",
	} {
		all = append(all,
			conversation{"final " + final, []string{initial(plain, "n,,n=,r=abc"), final}},
			conversation{"bound final " + final, []string{initial(plus, bound+"n=,r=abc"), strings.ReplaceAll(final, "c=biws", "c=%HASH")}})
	}
	return all
}

// A script plays a conversation with one server and writes down what it heard,
// with what differs from time to time taken out.
type script struct {
	binding []byte // of the certificate that the server showed
	heard   []string

	bare, challenge, nonce string
}

// fill puts what a client works out into a message.
func (s *script) fill(message string) string {
	message = strings.ReplaceAll(message, "%NONCE", s.nonce)
	message = strings.ReplaceAll(message, "%SHORT", s.nonce[:max(len(s.nonce)-1, 0)])
	message = strings.ReplaceAll(message, "%HASH", base64.StdEncoding.EncodeToString([]byte(bound+string(s.binding))))
	before, after, found := strings.Cut(message, ",p=%PROOF")
	if !found || s.challenge == "" {
		return message
	}
	return before + ",p=" + s.proof(before) + strings.ReplaceAll(after, "%PROOF", s.proof(before))
}

// proof is worked out here from the RFC, not by the code under test.
func (s *script) proof(withoutProof string) string {
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	_, rest, _ := strings.Cut(s.challenge, ",s=")
	encoded, _, _ := strings.Cut(rest, ",i=")
	salt, _ := base64.StdEncoding.DecodeString(encoded)
	key := mac([]byte(password), string(salt)+"\x00\x00\x00\x01") // one iteration is enough
	key = mac(key, "Client Key")
	stored := sha256.Sum256(key)
	signature := mac(stored[:], s.bare+","+s.challenge+","+withoutProof)
	for i := range signature {
		signature[i] ^= key[i]
	}
	return base64.StdEncoding.EncodeToString(signature)
}

// said notes what the client sent, continued what the server answered.
func (s *script) said(message string) {
	if _, bare, ok := strings.Cut(message, ",,"); ok && s.challenge == "" {
		s.bare = bare
	}
}

func (s *script) continued(reply string) {
	if reply == "" {
		s.heard = append(s.heard, "an empty challenge")
		return
	}
	s.challenge = reply
	nonce, rest, _ := strings.Cut(strings.TrimPrefix(reply, "r="), ",")
	s.nonce = nonce
	s.heard = append(s.heard, fmt.Sprintf("r=%s+%d bytes,%s", nonce[:max(len(nonce)-24, 0)], min(len(nonce), 24), rest))
}

func (s *script) finished(reply string) {
	s.heard = append(s.heard, fmt.Sprintf("%.2s and %d bytes", reply, len(reply)))
}

func (s *script) failed(severity, code, message, detail string) {
	s.heard = append(s.heard, fmt.Sprintf("%s %s %s (%s)", severity, code, message, detail))
}

// withPostgreSQL plays the conversation with a server on the wire.
func (s *script) withPostgreSQL(t *testing.T, addr, user string, secure bool, says []string) {
	p, cert := dial(t, addr, user, secure)
	defer p.conn.Close()
	if secure {
		s.binding = scram.CertificateBinding(cert)
	}
	note := func(err error) {
		var r *refusal
		if errors.As(err, &r) {
			s.failed(r.Severity, r.Code, r.Message, r.Detail)
		} else {
			t.Errorf("PostgreSQL: %v", err)
		}
	}
	_, offer, err := p.receiveAuth(authSASL)
	if err != nil {
		note(err)
		return
	}
	s.heard = append(s.heard, string(offer))
	for _, message := range says {
		message = s.fill(message)
		s.said(message)
		if err := p.send(wire.Password, []byte(message)); err != nil {
			t.Fatal(err)
		}
		code, reply, err := p.receiveAuth(authSASLContinue, authSASLFinal)
		if err != nil {
			note(err)
			return
		}
		if code == authSASLFinal {
			s.finished(string(reply))
			return
		}
		s.continued(string(reply))
	}
}

// withServer plays it with a Server.
func (s *script) withServer(server *scram.Server, says []string) {
	s.heard = append(s.heard, string(server.Mechanisms()))
	for _, message := range says {
		message = s.fill(message)
		s.said(message)
		reply, err := server.Step([]byte(message))
		var e *scram.Error
		if errors.As(err, &e) {
			s.failed("FATAL", e.Code, e.Message, e.Detail)
			return
		}
		if server.Done() {
			s.finished(string(reply))
			return
		}
		s.continued(string(reply))
	}
}

// TestServer_AsPostgreSQL plays every conversation with PostgreSQL and with a
// Server that has the same secret: they must say the same.
func TestServer_AsPostgreSQL(t *testing.T) {
	d := newDatabase(t)
	raw := "sixteen bytes ok"
	secret, _, err := scram.Derive(password, raw, 1)
	if err != nil {
		t.Fatal(err)
	}
	d.exec("CREATE ROLE alice LOGIN PASSWORD '%s'", secret.Encode())
	for _, secure := range []bool{false, true} {
		var binding []byte
		if secure {
			cert := certificate(t, x509.SHA256WithRSA)
			d.useTLS(cert)
			binding = scram.CertificateBinding(cert.Leaf)
		}
		for _, c := range conversations() {
			t.Run(fmt.Sprintf("TLS %v, %s", secure, c.name), func(t *testing.T) {
				theirs, ours := &script{}, &script{binding: binding}
				theirs.withPostgreSQL(t, d.server.Addr(), "alice", secure, c.says)
				ours.withServer(scram.NewServer("alice", &secret, scram.NewMock(nil, 0), binding), c.says)
				if got, want := strings.Join(ours.heard, "\n"), strings.Join(theirs.heard, "\n"); got != want {
					t.Errorf("%q\ngot\n%s\nwant\n%s", c.says, got, want)
				}
			})
		}
	}
}
