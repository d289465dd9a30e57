// Package recorded is a fleet of simulated hosts that answer with the snapshots of a recording (see
// remote/recording), as one is attached to a bug report: each as it was at one judgement, and then
// as at the next one.
//
//	fleet, err := recorded.Open(file)
//	…
//	defer fleet.Close()
//	for _, name := range fleet.Names() {
//		servers = append(servers, &inprocess.Server{Name: name, Address: …, Handler: fleet.Host(name)})
//	}
//	for err == nil {
//		… // look, judge, compare with fleet.Step
//		err = fleet.Next()
//	}
//
// What a controller does to the hosts lasts until the next judgement: what follows in the recording
// followed from what was done then. What is not recorded (see recording.Judged) is empty.
package recorded

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/snapshot"
)

// Fleet is the hosts of a recording.
type Fleet struct {
	// Step is the judgement of which the hosts are now.
	Step *recording.Step

	reader *recording.Reader
	hosts  map[string]*genvhost.Host
	names  []string
}

// ErrHosts says that the recording goes on with other hosts.
var ErrHosts = errors.New("the hosts of the recording are others from here on")

// Open begins with the first judgement of a file.
func Open(file io.Reader) (*Fleet, error) {
	reader, err := recording.NewReader(file)
	if err != nil {
		return nil, err
	}
	f := &Fleet{reader: reader, hosts: make(map[string]*genvhost.Host)}
	if f.Step, err = reader.Next(); err != nil {
		reader.Close()
		return nil, err
	}
	for i := range f.Step.Cluster.Hosts {
		name := string(f.Step.Cluster.Hosts[i].Name)
		f.names = append(f.names, name)
		f.hosts[name] = genvhost.New(&snapshot.Snapshot{})
	}
	f.show()
	return f, nil
}

// Close ends the fleet. It doesn't close the file, and the hosts stay as they are.
func (f *Fleet) Close() { f.reader.Close() }

// Names are the hosts, in the order of the recording.
func (f *Fleet) Names() []string { return slices.Clone(f.names) }

// Host is a host, to be served; nil for one that the recording doesn't have.
func (f *Fleet) Host(name string) *genvhost.Host { return f.hosts[name] }

// Next has the hosts be as at the next judgement. Of an early one, only those change that were
// asked. It returns what recording.Reader.Next returns, and ErrHosts if there are others.
func (f *Fleet) Next() error {
	step, err := f.reader.Next()
	if err != nil {
		return err
	}
	for i := range step.Cluster.Hosts {
		if name := string(step.Cluster.Hosts[i].Name); f.hosts[name] == nil {
			return fmt.Errorf("%w: %s", ErrHosts, name)
		}
	}
	f.Step = step
	f.show()
	return nil
}

// show has the hosts be as in the step. One that did not answer then hangs up.
func (f *Fleet) show() {
	for i := range f.Step.Cluster.Hosts {
		h := &f.Step.Cluster.Hosts[i]
		host := f.hosts[string(h.Name)]
		var behavior genvhost.Behavior
		if h.Snapshot == nil {
			behavior.Damage = genvhost.Hangup
		} else {
			host.Change(func(s *snapshot.Snapshot) { *s = clone(h.Snapshot) })
		}
		host.Behave(func(string) genvhost.Behavior { return behavior })
	}
}

// clone is a copy that reports may change.
func clone(s *snapshot.Snapshot) snapshot.Snapshot {
	c := *s
	c.Processes, c.Devices = slices.Clone(s.Processes), slices.Clone(s.Devices)
	for i := range c.Devices {
		c.Devices[i].Attachments = slices.Clone(c.Devices[i].Attachments)
	}
	return c
}
