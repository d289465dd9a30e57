package agent

import (
	"context"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// Visible is as much of a host's snapshot as every login sees, without sudo: the devices,
// as registered and as nvidia-smi measures them, the environments, and the processes that
// use devices, without the environments that they are in. Via says whether it comes from
// genv, or from nvidia-smi and /proc alone.
func (c Commands) Visible(ctx context.Context, host remote.Host) (s *snapshot.Snapshot, via Via, err error) {
	host.NoSudo = true
	registered, err := c.Devices(ctx, host)
	if err != nil && remote.ClassOf(err) == remote.GenvMissing {
		s, err = c.visible(ctx, host)
		return s, ViaReadOnly, err
	}
	if err != nil {
		return nil, ViaCommands, err
	}
	environments, err := c.Environments(ctx, host)
	if err != nil {
		return nil, ViaCommands, err
	}
	s, err = c.visible(ctx, host)
	if err != nil && remote.ClassOf(err) == remote.GenvMissing { // it is not genv that is missing
		err = &remote.Error{Class: remote.CommandFailed, Err: err, Next: "install NVIDIA's driver with nvidia-smi on the host, where every login finds it"}
	}
	if err != nil {
		return nil, ViaCommands, err
	}
	s.Devices, s.Environments = snapshot.Described(registered, s.Devices), environments
	return s, ViaCommands, nil
}

// visible is what nvidia-smi and /proc show, with the names of the processes' users and the
// time zone of the host's clock, in which attachments have their times.
func (c Commands) visible(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	s, err := readOnly{c.Network}.look(ctx, host)
	if err != nil {
		return nil, err
	}
	described := readOnly{c.Network}.describe(ctx, host, s.Processes)
	s.UTCOffset = described.utcOffset
	for i := range s.Processes {
		if p := &s.Processes[i]; p.UID != nil {
			p.Username = described.names[*p.UID]
		}
	}
	return s, nil
}
