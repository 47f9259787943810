package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// fillData makes the data folder: by initdb, as a copy of a template that an
// earlier server left, or as one of a running primary's.
func (s *Server) fillData(ctx context.Context) error {
	if s.options.StandbyOf != nil {
		return s.backup(ctx, s.options.StandbyOf)
	}
	if s.options.Template == "" {
		return s.initdb(ctx, s.DataDir())
	}
	template, err := s.template(ctx)
	if err != nil {
		return err
	}
	if err := copyTree(s.owner, template, s.DataDir()); err != nil {
		return fmt.Errorf("copy the template: %w", err)
	}
	return nil
}

func (s *Server) initdb(ctx context.Context, dir string) error {
	password := filepath.Join(s.base, "password")
	if err := os.WriteFile(password, []byte(s.options.Password+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the password file: %w", err)
	}
	defer os.Remove(password)
	if err := s.owner.give(password); err != nil {
		return fmt.Errorf("write the password file: %w", err)
	}
	args := []string{"-D", dir, "-U", Superuser, "-A", s.options.Auth.String(), "-E", "UTF8", "--locale=C", "--no-sync"}
	if s.options.Password != "" {
		args = append(args, "--pwfile="+password)
	}
	cmd := exec.CommandContext(ctx, s.Program("initdb"), args...)
	cmd.Dir, cmd.Env = s.base, environment()
	return s.finish(ctx, cmd, "run initdb")
}

// finish runs a program of PostgreSQL's as the server's user, for what it does. Its
// output is told if it fails by itself, and not if ctx ends it.
func (s *Server) finish(ctx context.Context, cmd *exec.Cmd, what string) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner.credential}
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w; the server's user must be able to enter %s (TMPDIR says where it is made)", what, err, s.base)
	default:
		return fmt.Errorf("%s: %w: %s", what, err, bytes.TrimSpace(out))
	}
}

// template returns a data folder to copy, and makes it if it isn't there.
// Several processes may do so at once: the first rename wins.
func (s *Server) template(ctx context.Context) (string, error) {
	if err := os.Mkdir(s.options.Template, 0o700); err == nil {
		if err := s.owner.give(s.options.Template); err != nil {
			return "", fmt.Errorf("make the template folder: %w", err)
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the template folder: %w", err)
	}
	if ours, err := s.owner.owns(s.options.Template); err != nil || !ours {
		return "", errors.Join(errors.New("use the template folder"), err)
	}
	version, err := exec.CommandContext(ctx, s.Program("postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask for the server's version: %w", err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", s.options.Binaries, version, s.options.Auth, s.options.Password))
	final := filepath.Join(s.options.Template, hex.EncodeToString(sum[:8]))
	if found, err := s.owner.owns(final); err != nil || found {
		return final, err
	}
	fresh, err := s.owner.makeTemp(s.options.Template, "new-")
	if err != nil {
		return "", fmt.Errorf("make the template: %w", err)
	}
	defer os.RemoveAll(fresh)
	if err := s.initdb(ctx, filepath.Join(fresh, "data")); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(fresh, "data"), final); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return "", fmt.Errorf("keep the template: %w", err)
	}
	return final, nil
}

// copyTree copies a folder of plain files. Everything in it becomes the
// owner's.
func copyTree(o *owner, from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			if err := os.Mkdir(target, 0o700); err != nil {
				return err
			}
			return o.give(target)
		}
		if err := copyFile(path, target); err != nil {
			return err
		}
		return o.give(target)
	})
}

// copyFile copies one file and leaves holes where it reads zeros, of which a
// new server's log consists almost wholly.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	size, err := copySparse(out, in)
	if err == nil {
		err = out.Truncate(size)
	}
	return errors.Join(err, out.Close())
}

func copySparse(out *os.File, in io.Reader) (int64, error) {
	const chunk = 64 << 10
	var (
		buffer = make([]byte, chunk)
		zeros  = make([]byte, chunk)
		size   int64
	)
	for {
		n, err := io.ReadFull(in, buffer)
		if n > 0 && !bytes.Equal(buffer[:n], zeros[:n]) {
			if _, err := out.WriteAt(buffer[:n], size); err != nil {
				return 0, err
			}
		}
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return size, nil
		case err != nil:
			return 0, err
		}
	}
}
