package sshclient

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
)

// spareDescriptors are for all that is not a host's connection: files, agents,
// processes that are asked for their configuration.
const spareDescriptors = 128

// EnoughDescriptors tells whether this process may open as many files as
// connections to that many hosts need, and else what to set. Go has raised the
// soft limit to the hard one by then (package os).
func EnoughDescriptors(hosts int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return remote.Errorf(remote.Configuration, "cannot read the limit of open files: %w", err)
	}
	need := uint64(hosts) + spareDescriptors
	if limit.Cur >= need {
		return nil
	}
	return &remote.Error{Class: remote.Configuration, Err: fmt.Errorf("%d hosts need %d open files and the limit is %d: run `ulimit -n %d` first", hosts, need, limit.Cur, need)}
}
