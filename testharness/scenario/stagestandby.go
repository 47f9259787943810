package scenario

import (
	"context"
	"fmt"
)

// Servers are a PostgreSQL with a standby.
type Servers interface {
	// StopStandby stops the standby, which has all that was written.
	StopStandby(ctx context.Context) error
	// PauseStandby stops the processes of the standby, as a machine that hangs
	// would; ResumeStandby has them go on.
	PauseStandby()
	ResumeStandby()
	// FailOver kills the primary and makes the standby the primary, with what
	// it has.
	FailOver(ctx context.Context) error
}

// StopStandby stops the standby: what is written from now on is on the
// primary alone.
func (s *Stage) StopStandby() {
	if s.err != nil {
		return
	}
	if err := s.Servers.StopStandby(s.ctx); err != nil {
		s.fail(fmt.Errorf("stop the standby: %w", err))
		return
	}
	s.record(Event{Actor: LanePostgres, Kind: KindFault, Text: "the standby stops: it has all that was written so far"})
}

// PauseStandby has the standby hang: what is to be written to it as well waits.
func (s *Stage) PauseStandby() {
	if s.err != nil {
		return
	}
	s.Servers.PauseStandby()
	s.record(Event{Actor: LanePostgres, Kind: KindFault, Text: "the standby hangs (SIGSTOP): commits wait for it"})
}

// ResumeStandby undoes PauseStandby.
func (s *Stage) ResumeStandby() {
	if s.err != nil {
		return
	}
	s.Servers.ResumeStandby()
	s.record(Event{Actor: LanePostgres, Kind: KindHeal, Text: "the standby goes on (SIGCONT)"})
}

// FailOver has the standby take over from a primary that dies, with what it has.
func (s *Stage) FailOver(has string) {
	if s.err != nil {
		return
	}
	if err := s.Servers.FailOver(s.ctx); err != nil {
		s.fail(fmt.Errorf("fail over: %w", err))
		return
	}
	s.record(Event{Actor: LanePostgres, Kind: KindCrash, Text: "the primary dies, and the standby takes over, " + has})
	s.reconnect()
}

// awaitReplication waits until the commit of an actor waits for the standby.
func (s *Stage) awaitReplication(a *Actor) {
	s.See(a.Name+"'s commit to wait for the standby", `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
		WHERE application_name = $1 AND wait_event = 'SyncRep' AND datname = pg_catalog.current_database())`, a.Name)
	s.Note("%s's commit waits for the standby, and nobody sees it yet.", a.Name)
}
