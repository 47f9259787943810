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
// connection comes from, an IPv4 address. 0 is none of them.
func Dialled(from netip.AddrPort, pids ...int) (int, error) {
	socket, err := socketAt(from)
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

// socketAt is what a link to the file of a TCP socket says whose own address is
// at, or "" if there is none.
func socketAt(at netip.AddrPort) (string, error) {
	table, err := os.Open("/proc/net/tcp")
	if err != nil {
		return "", fmt.Errorf("look for a socket: %w", err)
	}
	defer table.Close()
	// proc_net_tcp: the address is one number in the machine's byte order,
	// which is little-endian wherever this runs.
	ip := at.Addr().Unmap().As4()
	local := fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], at.Port())
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && fields[1] == local {
			return "socket:[" + fields[9] + "]", nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("look for a socket: %w", err)
	}
	return "", nil
}
