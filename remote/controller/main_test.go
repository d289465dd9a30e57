package controller_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is hosts in this process, and a Link to them over SSH.
type fleet struct {
	*inprocess.Fleet
	client  *sshclient.Client
	streams *agent.Pool
	hosts   []remote.Host
}

func startFleet(t *testing.T, timeout time.Duration, handlers ...inprocess.Handler) *fleet {
	var servers []*inprocess.Server
	f := &fleet{}
	for i, h := range handlers {
		name := fmt.Sprintf("h%d", i)
		servers = append(servers, &inprocess.Server{Name: name, Address: fmt.Sprintf("127.93.%d.%d", i/250, i%250+1), Handler: h})
		f.hosts = append(f.hosts, remote.Host{Name: name})
	}
	var err error
	f.Fleet, err = inprocess.Start(t.TempDir(), 0, servers...)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	f.client, err = sshclient.New(sshclient.Options{ConfigFile: f.SSHConfig(), CommandTimeout: timeout})
	require.NoError(t, err)
	t.Cleanup(f.client.Close)
	f.streams = &agent.Pool{Start: agent.StartWith(f.client.Start), Network: f.client, Timeout: timeout, Log: zerolog.Nop()}
	t.Cleanup(f.streams.Close)
	return f
}

// plain is what a Link has that only takes snapshots and carries out reports.
type plain struct{}

func (plain) Notify(context.Context, remote.Host, []agent.Message) ([]agent.Shown, error) {
	return nil, agent.ErrCannotNotify
}
func (plain) About(remote.Host) agent.About { return agent.About{} }
func (plain) Identify(context.Context, remote.Host) (agent.Identity, error) {
	return agent.Identity{}, nil
}

// busy is a host with a process in no environment on each of n devices.
func busy(n int) *snapshot.Snapshot {
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
