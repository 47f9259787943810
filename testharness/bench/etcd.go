package main

import (
	"crypto/rand"
	"fmt"
	"os"

	"github.com/fenceproxy/fenceproxy/testharness/stack"
)

// memberRole is the first argument of a process of this program that is an etcd. In
// one process with whoever asks it by hand, etcd would answer without a change of
// process, which none of a user's can.
const memberRole = "etcd"

// startEtcd starts it.
func (r *rig) startEtcd() error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if r.etcdDir, err = os.MkdirTemp("", "fenceproxy-bench-etcd-"); err != nil {
		return fmt.Errorf("make etcd's folder: %w", err)
	}
	const name, alone = "bench", "http://127.0.0.1:1" // nobody dials the only member
	r.etcd = stack.NewMember([]string{self, memberRole}, stack.MemberConfig{
		Name: name, Dir: r.etcdDir, Peer: alone, Cluster: name + "=" + alone, Token: rand.Text(),
	})
	return r.etcd.Start()
}
