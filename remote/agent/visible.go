package agent

import (
	"context"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/readonly"
	"github.com/seed-3119e985/genv/snapshot"
)

// Visible is as much of a host's snapshot as every login sees, without sudo: the devices, as registered and as
// nvidia-smi measures them, the environments, and the processes that use devices, without the environments that they
// are in. Via says whether it comes from genv, or from nvidia-smi and /proc alone. The latter is for hosts without
// genv: where the login just doesn't find it, it is an error, since devices may be attached there.
func (c Commands) Visible(ctx context.Context, host remote.Host) (s *snapshot.Snapshot, via Via, err error) {
	host.NoSudo = true
	devices, err := c.Devices(ctx, host)
	if err != nil && remote.ClassOf(err) == remote.GenvMissing {
		s, registered, failed := c.visible(ctx, host)
		if failed == nil && registered {
			return nil, ViaReadOnly, err
		}
		return s, ViaReadOnly, failed
	}
	var environments []snapshot.Environment
	if err == nil {
		environments, err = c.Environments(ctx, host)
	}
	unread := err
	if err != nil && remote.ClassOf(err) != remote.CommandFailed {
		return nil, ViaCommands, err
	}
	s, _, err = c.visible(ctx, host)
	// it is not genv that is missing
	if s, err = c.asRoot(ctx, host, s, err, len(devices)); err != nil && remote.ClassOf(err) == remote.GenvMissing {
		err = &remote.Error{
			Class: remote.CommandFailed, Err: err,
			Next: "install NVIDIA's driver with nvidia-smi on the host, where every login finds it",
		}
	}
	if err != nil {
		return nil, ViaCommands, err
	}
	s.Devices, s.Environments = snapshot.Described(devices, s.Devices), environments
	// of older versions of genv it is unknown
	if q, _, err := usageSnapshot(ctx, c, host, snapshot.DecodeNative, "--type", "queue"); err == nil {
		s.Waits, s.Reservations = q.Waits, q.Reservations
	}
	if unread != nil {
		s.HideState(unread)
	}
	return s, ViaCommands, nil
}

// asRoot is a look with the indices of root, if nvidia-smi shows the login fewer devices than
// are registered, as a guard does.
func (c Commands) asRoot(ctx context.Context, host remote.Host, s *snapshot.Snapshot, err error,
	registered int,
) (*snapshot.Snapshot, error) {
	if err == nil && len(s.Devices) >= registered || err != nil && !readonly.ShowsNone(err) {
		return s, err
	}
	known := readonly.Reading{Runner: c.Network}.Published(ctx, host)
	switch {
	case known == nil:
		return s, err
	case err != nil:
		s = &snapshot.Snapshot{}
	}
	return readonly.Renumbered(s, known), nil
}

// visible is what nvidia-smi and /proc show, with the names of the processes' users and the time zone of the host's
// clock, in which attachments have their times. registered says that the host has genv's state files.
func (c Commands) visible(ctx context.Context, host remote.Host) (s *snapshot.Snapshot, registered bool, err error) {
	look := readonly.Reading{Runner: c.Network}
	s, err = look.Look(ctx, host)
	if err != nil {
		return nil, false, err
	}
	described := look.Describe(ctx, host, s.Processes)
	s.UTCOffset = described.UTCOffset
	for i := range s.Processes {
		if p := &s.Processes[i]; p.UID != nil {
			p.Username = described.Names[*p.UID]
		}
	}
	return s, described.Registered, nil
}
