package genvhost

import (
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Fleet is hosts in this process, and a Link to them over SSH.
type Fleet struct {
	*inprocess.Fleet
	Client  *sshclient.Client
	Streams *agent.Pool
	Names   []remote.Host
}

// Start starts a host for each handler: h0, h1, ….
func Start(t *testing.T, timeout time.Duration, handlers ...inprocess.Handler) *Fleet {
	var servers []*inprocess.Server
	f := &Fleet{}
	for i, h := range handlers {
		name := fmt.Sprintf("h%d", i)
		servers = append(servers, &inprocess.Server{Name: name, Address: fmt.Sprintf("127.93.%d.%d", i/250, i%250+1), Handler: h})
		f.Names = append(f.Names, remote.Host{Name: name})
	}
	f.Fleet = proctest.Try(inprocess.Start(t.TempDir(), 0, servers...)).OK(t)
	t.Cleanup(f.Close)
	f.Client = sshclient.New(sshclient.Options{ConfigFile: f.SSHConfig(), CommandTimeout: timeout})
	t.Cleanup(f.Client.Close)
	f.Streams = &agent.Pool{Start: agent.StartWith(f.Client.Start), Network: f.Client, Timeout: timeout, Log: zerolog.Nop()}
	t.Cleanup(f.Streams.Close)
	return f
}

// Busy is a host with a process in no environment on each of n devices.
func Busy(n int) *snapshot.Snapshot {
	s := &snapshot.Snapshot{BootID: "b", Environments: []snapshot.Environment{}}
	for i := range n {
		index := snapshot.DeviceIndex(i)
		s.Devices = append(s.Devices, snapshot.Device{Index: index, TotalMemory: snapshot.MiB(81559), Attachments: []snapshot.Attachment{}})
		s.Processes = append(s.Processes, snapshot.Process{
			PID: snapshot.PID(1000 + i), Start: snapshot.StartTime(77 + i),
			Usage: []snapshot.DeviceUsage{{Index: index, Memory: snapshot.MiB(10)}},
		})
	}
	return s
}
