package sshd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed-3119e985/genv/remote/testfleet"
)

// Fleet is a set of hosts that listen.
type Fleet struct {
	// Client is how to reach it. All files of the fleet are in Client.Dir, which
	// Close removes.
	testfleet.Client

	options Options
	hosts   []*Host
	daemons []*daemon
}

// Host is a machine of a fleet.
type Host struct {
	*testfleet.Machine
	Name    string
	Address string // 127.x.y.z
	User    string // the login that has the rights

	rights Rights
	fleet  *Fleet
}

// Hosts lists the hosts in the order of the options.
func (f *Fleet) Hosts() []*Host { return f.hosts }

// Host returns the host with a name, or nil.
func (f *Fleet) Host(name string) *Host {
	if i := slices.IndexFunc(f.hosts, func(h *Host) bool { return h.Name == name }); i >= 0 {
		return f.hosts[i]
	}
	return nil
}

func (f *Fleet) logFile() string { return filepath.Join(f.Dir, "sshd.log") }

// log is what sshd and, where it failed to start, mount have printed so far.
func (f *Fleet) log() string {
	data, err := os.ReadFile(f.logFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	for _, d := range f.daemons {
		select {
		case <-d.ended:
			data = append(data, d.stderr.Bytes()...)
		default: // it may still write there
		}
	}
	return string(data)
}

// Close ends sshd, every session, every job, and removes the fleet's folder.
func (f *Fleet) Close() error {
	var err error
	for _, d := range f.daemons {
		err = errors.Join(err, d.stop())
	}
	for _, h := range f.hosts {
		err = errors.Join(err, h.Close())
	}
	return errors.Join(err, os.RemoveAll(f.Dir))
}

func (f *Fleet) bin() string { return filepath.Join(f.Dir, "bin") }

func (f *Fleet) bin143() string { return filepath.Join(f.Dir, "bin143") }

// Genv143 is the path of the genv on hosts with the rights MaySudo143, if there are any.
func (f *Fleet) Genv143() string { return filepath.Join(f.bin143(), "genv") }

func (f *Fleet) driver() string { return filepath.Join(f.Dir, "driver") }

func (f *Fleet) home(user string) string { return filepath.Join(f.Dir, "home", user) }
