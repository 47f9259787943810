//go:build !linux

package child

import "net/netip"

// Dialled says which of several processes a connection comes from. Here it can't
// be seen, and is taken to be the first.
func Dialled(_, _ netip.AddrPort, pids ...int) (int, error) { return pids[0], nil }
