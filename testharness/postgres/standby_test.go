package postgres_test

import (
	"testing"

	"github.com/fenceproxy/fenceproxy/testharness/dial"
	"github.com/fenceproxy/fenceproxy/testharness/fault"
	"github.com/fenceproxy/fenceproxy/testharness/poll"
	"github.com/fenceproxy/fenceproxy/testharness/postgres"
)

// A standby streams over the link that it is told to, and over nothing else.
func TestStart_StandbyStreamsFrom(t *testing.T) {
	primary := postgres.New(t, postgres.Options{Auth: postgres.AuthSCRAM})
	link, err := fault.NewLink(primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	standby := postgres.New(t, postgres.Options{
		Auth: postgres.AuthSCRAM, StandbyOf: primary, StreamFrom: link.Addr(), Config: []string{"wal_retrieve_retry_interval = 100ms"},
	})
	on := dial.Connect(t, primary.DSN(postgres.Superuser, "postgres"))
	streaming := func() (n int) {
		err := on.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication WHERE application_name = $1 AND state = 'streaming'",
			postgres.StandbyName).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	poll.Until(t, "the standby streams", func() bool { return streaming() == 1 })
	link.Set(fault.Cut)
	poll.Until(t, "the standby is cut off", func() bool { return streaming() == 0 })
	if _, err := on.Exec(t.Context(), "CREATE TABLE late ()"); err != nil {
		t.Fatal(err)
	}
	link.Set(fault.Open)
	there := dial.Connect(t, standby.DSN(postgres.Superuser, "postgres"))
	poll.Until(t, "the standby has caught up", func() bool {
		var ok bool
		err := there.QueryRow(t.Context(), "SELECT to_regclass('late') IS NOT NULL").Scan(&ok)
		return err == nil && ok
	})
}
