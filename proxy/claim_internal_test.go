package proxy

import (
	"context"
	"net"
	"testing"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/proxy/wire"
	"github.com/fenceproxy/fenceproxy/sqlrewrite"
)

// overtaken is Claims where a higher claim comes in while one is under way.
type overtaken struct {
	srv     *Server
	evicted int
}

func (o *overtaken) Claim(_ context.Context, database string, p fencing.Pair) error {
	o.evicted += o.srv.Evict(database, p.Key, p.Token+1)
	return nil
}

func (o *overtaken) Superseded(context.Context, string, []fencing.Pair) error { return nil }

// A session whose own claim is under way is found by a higher one, although
// the backend doesn't have the tag yet.
func TestSession_EvictedWhileClaiming(t *testing.T) {
	set := func(name, value string) sqlrewrite.Setting {
		return sqlrewrite.Setting{Kind: sqlrewrite.Set, Name: name, Value: value}
	}
	claims := &overtaken{}
	srv := NewServer(TCP("nowhere"), claims)
	defer srv.Close()
	claims.srv = srv
	client, _ := net.Pipe()
	backend, server := net.Pipe()
	defer server.Close()
	s := newSession(srv, client, 1)
	s.backend, s.database, s.host = backend, "db", &Host{}
	s.toBackend = wire.NewWriter(backend)
	settings := []sqlrewrite.Setting{set(fencing.SettingKey, "k"), set(fencing.SettingToken, "1")}
	if refused := s.retag(settings, sqlrewrite.NoVerb); refused != nil {
		t.Fatal(refused)
	}
	if claims.evicted != 1 || s.victim == nil {
		t.Errorf("got %d sessions evicted, want 1", claims.evicted)
	}
	if s.coming != nil {
		t.Errorf("got %v still being claimed", s.coming)
	}
}
