package child

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// Dialled says which of several processes of this machine has the socket that a
// connection comes from. Both its addresses are needed, IPv4, for the kernel gives
// one port to several connections that go to different places. 0 is none of them.
func Dialled(from, to netip.AddrPort, pids ...int) (int, error) {
	socket, err := socketOf(from, to)
	if err != nil || socket == "" {
		return 0, err
	}
	for _, pid := range pids {
		folder := fmt.Sprintf("/proc/%d/fd", pid)
		files, err := os.ReadDir(folder)
		if err != nil {
			continue // it has ended
		}
		if slices.ContainsFunc(files, func(file os.DirEntry) bool {
			to, err := os.Readlink(folder + "/" + file.Name())
			return err == nil && to == socket
		}) {
			return pid, nil
		}
	}
	return 0, nil
}

// socketOf is what a link to the file of a TCP socket says that is connected from
// one address to another, or "" if there is none.
func socketOf(from, to netip.AddrPort) (string, error) {
	table, err := os.Open("/proc/net/tcp")
	if err != nil {
		return "", fmt.Errorf("look for a socket: %w", err)
	}
	defer table.Close()
	local, remote := inTable(from), inTable(to)
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && fields[1] == local && fields[2] == remote {
			return "socket:[" + fields[9] + "]", nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("look for a socket: %w", err)
	}
	return "", nil
}

// inTable is an address as proc_net_tcp has it: one number in the machine's byte
// order, which is little-endian wherever this runs, and the port.
func inTable(a netip.AddrPort) string {
	ip := a.Addr().Unmap().As4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port())
}
