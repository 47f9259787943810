package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fenceproxy/fenceproxy/fencing"
	"github.com/fenceproxy/fenceproxy/leases"
)

// defaultStatusLimit is how many marks, and how many held locks, status shows.
const defaultStatusLimit = 20

// statusCommand shows marks, holders, leases and sessions.
type statusCommand struct {
	upstream upstreamFlags
	etcd     etcdFlags
	admin    string
	cert     string // of the admin port
	token    passwordFlags
	limit    count
	key      string
	config   string
	json     bool
}

func newStatus(env environment) *cobra.Command {
	c := &statusCommand{etcd: etcdFlags{prefix: leases.DefaultPrefix}, limit: defaultStatusLimit}
	cmd := &cobra.Command{
		Use:        "status --upstream DSN [--etcd URL,…] [--admin host:port]",
		SuggestFor: []string{"list", "ls", "ps", "show"},
		Short:      "Show marks, holders, leases and sessions",
		Long: `Show the marks that PostgreSQL has, the holders and leases that etcd has (--etcd), and the
sessions that a running proxy has (--admin, its --admin-listen). Nothing is changed. The
exit status is 1 if one of those that were named doesn't answer; the rest is shown.`,
		Example: `  fenceproxy status --upstream postgres://fence@127.0.0.1:5432/app --etcd http://127.0.0.1:2379 --admin 127.0.0.1:6434`,
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := settle(cmd, env, &c.upstream); err != nil {
				return err
			}
			return c.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	c.upstream.add(flags)
	c.etcd.addBeside(flags)
	addConfig(flags, &c.config)
	flags.StringVar(&c.admin, "admin", "", "`host:port` of a running proxy's admin port, or its URL")
	addAdminToken(flags, &c.token)
	addAdminCert(flags, &c.cert)
	flags.StringVar(&c.key, "key", "", "show the lock of this `key` only")
	flags.Var(&c.limit, "limit", "how many of the newest marks, and of the held locks, to show")
	flags.BoolVar(&c.json, "json", false, "print one JSON object instead of text")
	return cmd
}

func (c *statusCommand) run(ctx context.Context, out io.Writer) error {
	survey, held, err := c.survey(ctx)
	if err != nil {
		return err
	}
	var s status
	s.Etcd = survey
	s.Postgres.Where = c.upstream.where()
	marks, err := c.marks(ctx, &s, held)
	if err != nil {
		s.Postgres.Error = err.Error()
	}
	s.Locks = joined(marks, held)
	if c.admin != "" {
		asked, err := newAdminClient(c.admin, c.cert, &c.token)
		if err != nil {
			return err
		}
		s.Proxy = asked.status(ctx)
	}
	print := s.print
	if c.json {
		print = func(out io.Writer) error { return json.NewEncoder(out).Encode(s) }
	}
	if err := print(out); err != nil {
		return err
	}
	if s.Postgres.Error != "" || s.Etcd != nil && s.Etcd.Error != "" || s.Proxy != nil && s.Proxy.Error != "" {
		return exitStatus(1)
	}
	return nil
}

// status is what status --json prints.
type status struct {
	Postgres postgresStatus `json:"postgresql"`
	Etcd     *etcdStatus    `json:"etcd,omitempty"`
	Proxy    *proxyStatus   `json:"proxy,omitempty"`
	Locks    []lockStatus   `json:"locks"`
}

type postgresStatus struct {
	Where string `json:"where"`
	Error string `json:"error,omitempty"`
	Marks int64  `json:"marks"`
	About bool   `json:"marks_estimated,omitempty"`
	Epoch int32  `json:"epoch"` // of the lineage; 0 before the first claim
}

// countedMarks is how many marks are counted; the number of more is the
// estimate that PostgreSQL has, for counting reads all of them.
const countedMarks = 100_000

func (p *postgresStatus) marks() string {
	if p.About {
		return "about " + counted(int(p.Marks), "mark")
	}
	return counted(int(p.Marks), "mark")
}

func (p *postgresStatus) countMarks(ctx context.Context, conn *pgx.Conn) error {
	const estimate = "SELECT reltuples::bigint FROM pg_catalog.pg_class WHERE oid = 'fence.mark'::regclass"
	if err := conn.QueryRow(ctx, estimate).Scan(&p.Marks); err != nil {
		return err
	}
	if p.About = p.Marks > countedMarks; p.About {
		return nil
	}
	return conn.QueryRow(ctx, "SELECT count(*) FROM fence.status").Scan(&p.Marks)
}

type etcdStatus struct {
	Error    string `json:"error,omitempty"`
	Cluster  string `json:"cluster,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	Held     int    `json:"locks_held"`
}

// A lockStatus is what is known of one key.
type lockStatus struct {
	Key     string        `json:"key"`
	State   lockState     `json:"state"`
	Mark    fencing.Token `json:"mark,omitempty"`   // 0: none
	Holder  fencing.Token `json:"holder,omitempty"` // 0: nobody
	Left    *float64      `json:"lease_left_seconds,omitempty"`
	Waiting int           `json:"waiting"`
	Age     *float64      `json:"claimed_seconds_ago,omitempty"`
	By      string        `json:"claimed_by,omitempty"`
}

// A lockState compares the mark of a key with its holder.
type lockState uint8

const (
	// stateUnknown: etcd wasn't asked, or didn't answer.
	stateUnknown lockState = iota
	// stateFree: nobody holds the lock.
	stateFree
	// stateHeld: the mark is the holder's token.
	stateHeld
	// stateUnclaimed: the holder has not claimed yet, or in another database.
	stateUnclaimed
	// stateBehind: the mark is above the holder's token: etcd's history went backwards.
	stateBehind
	// stateOld: the mark is of an older lineage, and counts no more.
	stateOld
)

var lockStateNames = [...]string{"unknown", "free", "held", "unclaimed", "behind", "old"}

func (s lockState) String() string { return lockStateNames[s] }

// MarshalText is how a state stands in JSON.
func (s lockState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A markRow is a row of fence.status.
type markRow struct {
	Key     string
	Token   int64
	Current bool
	Age     float64
	By      string
}

// marks reads the newest marks, and those of the locks that are held.
func (c *statusCommand) marks(ctx context.Context, s *status, held *heldLocks) (rows []markRow, err error) {
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	err = c.upstream.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		lineage, err := fencing.LineageOf(ctx, conn)
		if err != nil {
			return errors.New(said(err).Error() + "; fenceproxy doctor tells more")
		}
		s.Postgres.Epoch = lineage.Epoch
		if err := s.Postgres.countMarks(ctx, conn); err != nil {
			return said(err)
		}
		const query = `
			SELECT resource_key, token, coalesce(current, false), extract(epoch FROM clock_timestamp() - claimed_at)::float8, claimed_by
			FROM fence.status
			WHERE resource_key = ANY ($1) OR $3 = '' AND resource_key IN (
				SELECT n.resource_key FROM fence.status AS n ORDER BY n.claimed_at DESC LIMIT $2)
			ORDER BY claimed_at DESC`
		keys := held.keys()
		if c.key != "" {
			keys = []string{c.key}
		}
		found, err := conn.Query(ctx, query, keys, int(c.limit), c.key)
		if err != nil {
			return said(err)
		}
		rows, err = pgx.CollectRows(found, pgx.RowToStructByPos[markRow])
		return err
	})
	return rows, err
}

// A heldLocks is what etcd was asked about: those locks that are to be shown.
type heldLocks struct {
	asked bool // and answered
	locks []leases.Lock
	left  map[string]time.Duration // by key
}

func (h *heldLocks) keys() []string {
	keys := make([]string, len(h.locks))
	for i, l := range h.locks {
		keys[i] = l.Key
	}
	return keys
}

// survey asks etcd, if it was named.
func (c *statusCommand) survey(ctx context.Context) (*etcdStatus, *heldLocks, error) {
	held := &heldLocks{left: map[string]time.Duration{}}
	if len(c.etcd.named()) == 0 {
		return nil, held, c.etcd.check()
	}
	client, err := c.etcd.open()
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	authority := leases.NewAuthority(client)
	authority.Prefix = c.etcd.prefix
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	survey, err := authority.Survey(ctx)
	if err != nil {
		return &etcdStatus{Error: err.Error()}, held, nil
	}
	held.asked = true
	for _, l := range survey.Locks {
		if c.key != "" && l.Key != c.key || len(held.locks) >= int(c.limit) {
			continue
		}
		held.locks = append(held.locks, l)
		if left, err := authority.Left(ctx, l); err == nil {
			held.left[l.Key] = left
		}
	}
	return &etcdStatus{Cluster: survey.Cluster, Revision: survey.Revision, Held: len(survey.Locks)}, held, nil
}

// joined puts marks and holders together: the held locks by key, and then the
// others, the newest claim first.
func joined(marks []markRow, held *heldLocks) []lockStatus {
	all := []lockStatus{}
	byKey := map[string]markRow{}
	for _, m := range marks {
		byKey[m.Key] = m
	}
	for _, l := range held.locks {
		one := lockStatus{Key: l.Key, Holder: l.Token, Waiting: l.Waiting, State: stateUnclaimed}
		if left, ok := held.left[l.Key]; ok {
			seconds := left.Seconds()
			one.Left = &seconds
		}
		if m, ok := byKey[l.Key]; ok {
			one.setMark(m)
			delete(byKey, l.Key)
		}
		all = append(all, one)
	}
	for _, m := range marks {
		if _, left := byKey[m.Key]; !left {
			continue
		}
		one := lockStatus{Key: m.Key, State: stateUnknown}
		if held.asked {
			one.State = stateFree
		}
		one.setMark(m)
		all = append(all, one)
	}
	return all
}

func (l *lockStatus) setMark(m markRow) {
	l.Mark, l.Age, l.By = fencing.Token(m.Token), &m.Age, m.By
	switch {
	case !m.Current:
		l.State = stateOld
	case l.Holder == 0:
	case l.Holder == l.Mark:
		l.State = stateHeld
	case l.Holder < l.Mark:
		l.State = stateBehind
	}
}

func (s status) print(out io.Writer) error {
	var p page
	switch {
	case s.Postgres.Error != "":
		p.hanging("PostgreSQL  ", s.Postgres.Error)
	default:
		p.hanging("PostgreSQL  ", fmt.Sprintf("%s: %s, lineage epoch %d", s.Postgres.Where, s.Postgres.marks(), s.Postgres.Epoch))
	}
	switch {
	case s.Etcd == nil:
	case s.Etcd.Error != "":
		p.hanging("etcd        ", s.Etcd.Error)
	default:
		p.hanging("etcd        ", fmt.Sprintf("cluster %s at revision %d: locks held: %d", s.Etcd.Cluster, s.Etcd.Revision, s.Etcd.Held))
	}
	if s.Proxy != nil {
		p.hanging("proxy       ", s.Proxy.String())
	}
	if len(s.Locks) > 0 {
		p.line("")
		p.table(s.rows())
	}
	return p.write(out)
}

func (s status) rows() [][]string {
	rows := [][]string{{"KEY", "STATE", "MARK", "HOLDER", "LEASE", "WAITING", "CLAIMED"}}
	for _, l := range s.Locks {
		row := []string{shown(l.Key), l.State.String(), "-", "-", "-", "-", "-"}
		if l.Mark > 0 {
			row[2] = l.Mark.String()
		}
		if l.Holder > 0 {
			row[3], row[5] = l.Holder.String(), strconv.Itoa(l.Waiting)
		}
		if l.Left != nil {
			row[4] = fmt.Sprintf("%.0fs", *l.Left)
		}
		if l.Age != nil {
			row[6] = ago(time.Duration(*l.Age * float64(time.Second)))
		}
		rows = append(rows, row)
	}
	return rows
}

// shown returns a key as it stands in a table: quoted unless it is plain.
func shown(key string) string {
	if quoted := strconv.Quote(key); quoted != `"`+key+`"` {
		return quoted
	}
	return key
}

// ago is a time that has passed, in its largest unit.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.0fs ago", max(d, 0).Truncate(time.Second).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", d/time.Hour)
	}
	return fmt.Sprintf("%dd ago", d/(24*time.Hour))
}
