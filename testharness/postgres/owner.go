package postgres

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// An owner is the system user that the server runs as and that owns its
// folders. credential is nil where that is the user that we are.
type owner struct {
	uid        int
	credential *syscall.Credential
}

// serverOwner returns this process's own user, or user postgres for root,
// which the server refuses to run as.
func serverOwner() (*owner, error) {
	if os.Geteuid() != 0 {
		return &owner{uid: os.Geteuid()}, nil
	}
	account, err := user.Lookup(Superuser)
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL doesn't run as root, and this root has no user %s to run it as: "+
			"install PostgreSQL's server package, which makes one, or run this as another user: %w", Superuser, err)
	}
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the user id of %s: %w", Superuser, err)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the group id of %s: %w", Superuser, err)
	}
	return &owner{uid: int(uid), credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

// makeTemp makes a folder that only the owner may enter.
func (o *owner) makeTemp(parent, pattern string) (string, error) {
	dir, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", err
	}
	return dir, o.give(dir)
}

// give makes path the owner's.
func (o *owner) give(path string) error {
	if o.credential == nil {
		return nil
	}
	return os.Lchown(path, int(o.credential.Uid), int(o.credential.Gid))
}

// owns says whether path is a folder of the owner's that nobody else can
// write to. A folder that isn't there is not owned, and no error.
func (o *owner) owns(path string) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != o.uid || info.Mode().Perm()&0o022 != 0 {
		return false, fmt.Errorf("%s is not a folder of user %d alone; remove it", path, o.uid)
	}
	return true, nil
}

// environment is ours without libpq's variables, which would turn initdb and
// the server to somebody else's database.
func environment() []string {
	var env []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "PG") && !strings.HasPrefix(entry, "LC_") && !strings.HasPrefix(entry, "LANG=") {
			env = append(env, entry)
		}
	}
	return append(env, "LC_ALL=C")
}

func randomPassword() string { return rand.Text() }
