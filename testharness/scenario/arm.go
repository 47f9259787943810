package scenario

import "fmt"

// An Arm is how a run keeps the workers from each other.
type Arm int

// The arms, from the least to the most.
const (
	ArmNone     Arm = iota // nobody locks anything
	ArmExpiring            // a lock with an owner and an expiry, as people keep in Redis; here in a table
	ArmEtcd                // a lock in etcd, sessions straight to PostgreSQL
	ArmHomemade            // the same, and a trigger of one's own: who shows the highest number wins
	ArmFenced              // a lock in etcd, sessions through fenceproxy
)

var armNames = [...]string{"none", "expiring", "etcd", "homemade", "fenced"}

func (a Arm) String() string {
	if a < 0 || int(a) >= len(armNames) {
		return "unknown"
	}
	return armNames[a]
}

// MarshalText puts the arm's name into JSON.
func (a Arm) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (a *Arm) UnmarshalText(text []byte) error {
	for i, name := range armNames {
		if name == string(text) {
			*a = Arm(i)
			return nil
		}
	}
	return fmt.Errorf("unknown arm %q", text)
}

// Title is how a person is told of a.
func (a Arm) Title() string {
	switch a {
	case ArmNone:
		return "No lock at all"
	case ArmExpiring:
		return "A lock that expires, as in Redis, straight to PostgreSQL"
	case ArmEtcd:
		return "A lock in etcd, straight to PostgreSQL"
	case ArmHomemade:
		return "A lock in etcd, and a trigger of one's own: the highest number wins"
	case ArmFenced:
		return "Through fenceproxy, by two proxies"
	default:
		return a.String()
	}
}

// Short is Title in a word or two.
func (a Arm) Short() string {
	switch a {
	case ArmNone:
		return "no lock"
	case ArmExpiring:
		return "expiring lock"
	case ArmEtcd:
		return "etcd lock"
	case ArmHomemade:
		return "own trigger"
	case ArmFenced:
		return "fenceproxy"
	default:
		return a.String()
	}
}

// tags says whether sessions present the numbers of their locks.
func (a Arm) tags() bool { return a >= ArmEtcd }
