package proxy_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// connectRaw opens a session through the first proxy and returns its socket,
// past the first ReadyForQuery.
func (s *stack) connectRaw(key string) net.Conn {
	s.t.Helper()
	return rawSession(s.t, s.addrs[0], key, 1)
}

func rawSession(t *testing.T, addr, key string, token int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(60 * time.Second))
	params := "user\x00postgres\x00database\x00postgres\x00application_name\x00raw\x00"
	if key != "" {
		params += fmt.Sprintf("fence.key\x00%s\x00fence.token\x00%d\x00", key, token)
	}
	packet := binary.BigEndian.AppendUint32(nil, uint32(9+len(params)))
	packet = append(append(binary.BigEndian.AppendUint32(packet, 3<<16), params...), 0)
	if _, err := conn.Write(packet); err != nil {
		t.Fatal(err)
	}
	readToReady(t, conn)
	return conn
}

// readToReady reads up to a ReadyForQuery and returns the types of what came,
// and the length of the longest message.
func readToReady(t *testing.T, conn net.Conn) (types string, longest int) {
	t.Helper()
	r := bufio.NewReader(io.MultiReader(conn))
	for {
		var h [5]byte
		if _, err := io.ReadFull(r, h[:]); err != nil {
			t.Fatalf("after %q: %v", types, err)
		}
		n := int(binary.BigEndian.Uint32(h[1:])) - 4
		if h[0] == 'E' {
			body := make([]byte, n)
			io.ReadFull(r, body)
			t.Logf("error: %q", body)
		} else if _, err := io.CopyN(io.Discard, r, int64(n)); err != nil {
			t.Fatalf("after %q: %v", types, err)
		}
		types += string(h[0])
		longest = max(longest, n)
		if h[0] == 'Z' {
			return types, longest
		}
	}
}

func frame(t byte, body string) []byte {
	b := binary.BigEndian.AppendUint32([]byte{t}, uint32(4+len(body)))
	return append(b, body...)
}

// hugeMessage returns what goes before and after size bytes that make up one
// value, which the server is to send back.
func hugeMessage(mode pgx.QueryExecMode, size int) (head, tail []byte) {
	if mode == pgx.QueryExecModeSimpleProtocol {
		head = binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(4+8+size+2))
		return append(head, "SELECT '"...), []byte("'\x00")
	}
	head = frame('P', "\x00SELECT $1::text\x00\x00\x00")
	head = binary.BigEndian.AppendUint32(append(head, 'B'), uint32(4+1+1+2+2+4+size+2))
	head = append(head, "\x00\x00\x00\x00\x00\x01"...)
	head = binary.BigEndian.AppendUint32(head, uint32(size))
	tail = append([]byte{0, 0}, frame('E', "\x00\x00\x00\x00\x00")...)
	return head, append(tail, frame('S', "")...)
}
