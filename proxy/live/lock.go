package live

import (
	"time"

	"github.com/fenceproxy/fenceproxy/fencing"
)

// A Lock is one that somebody holds in etcd.
type Lock struct {
	Key     string
	Token   fencing.Token // of its holder
	Waiting int           // clients that stand behind the holder
	Left    time.Duration // of the holder's lease, if it isn't renewed; 0: it has none, or that isn't known
}
