package sshclient

import (
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
)

// spareDescriptors are for files, agents and child processes.
const spareDescriptors = 128

// EnoughDescriptors returns an error if the limit of open files is too low for
// connections to that many hosts. Package os has raised the soft limit to the hard
// limit before.
func EnoughDescriptors(hosts int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return remote.Errorf(remote.Configuration, "cannot read the limit of open files: %w", err)
	}
	need := uint64(hosts) + spareDescriptors
	if limit.Cur >= need {
		return nil
	}
	return remote.Errorf(remote.Configuration, "%d hosts need %d open files and the limit is %d: run `ulimit -n %d` first", hosts, need, limit.Cur, need)
}
