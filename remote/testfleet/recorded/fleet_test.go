package recorded_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/simulated"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/recorded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// record is a recording of a simulated fleet.
func record(t *testing.T, file *policy.File, judgements int) []byte {
	fleet := simulated.New(2, 4, 4, noon)
	var b bytes.Buffer
	w := recording.NewWriter(&b, recording.Header{Every: time.Minute})
	var memory enforce.Memory
	as := recording.PolicyOf(file)
	for i := range judgements {
		now := noon.Add(time.Duration(i) * time.Minute)
		fleet.Change(now, 8)
		in := recording.Input{Before: memory, Judgement: recording.Judgement{Run: "run", Number: i + 1, Time: now, Policy: as, Cluster: fleet.Cluster()}}
		plan, after, events := enforce.Judge(file, in.Cluster, memory, now)
		in.After, in.Digest, memory = after, recording.DigestOf(&plan, events), after
		require.NoError(t, w.Add(&in))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// What hosts answer over SSH is judged as it was when it was recorded.
func TestHostsAnswerWithWhatWasRecorded(t *testing.T) {
	file, err := policy.Parse("policy.yaml", []byte("defaults: {non-env-processes: true, idle: {after: 10m}, warn: {for: 2m}}\n"))
	require.NoError(t, err)
	fleet, err := recorded.Open(bytes.NewReader(record(t, file, 40)))
	require.NoError(t, err)
	defer fleet.Close()
	var servers []*inprocess.Server
	var hosts []remote.Host
	for i, name := range fleet.Names() {
		servers = append(servers, &inprocess.Server{Name: name, Address: fmt.Sprintf("127.97.0.%d", i+1), Handler: fleet.Host(name)})
		hosts = append(hosts, remote.Host{Name: name})
	}
	served, err := inprocess.Start(t.TempDir(), 0, servers...)
	require.NoError(t, err)
	defer served.Close()
	client, err := sshclient.New(sshclient.Options{ConfigFile: served.SSHConfig(), CommandTimeout: 10 * time.Second})
	require.NoError(t, err)
	defer client.Close()
	var memory enforce.Memory
	silent, findings := 0, 0
	for {
		pool := &agent.Pool{Start: agent.StartWith(client.Start), Network: client, Timeout: 10 * time.Second, Log: zerolog.Nop()} // one that hung up is asked again at once
		asker := controller.Asker{Hosts: hosts, Link: pool, Fanout: 4}
		cluster := asker.Collect(t.Context())
		pool.Close()
		for i := range cluster.Hosts {
			want := &fleet.Step.Cluster.Hosts[i]
			require.Equal(t, want.Snapshot == nil, cluster.Hosts[i].Err != nil, "%s: %v", want.Name, cluster.Hosts[i].Err)
			if want.Snapshot == nil {
				silent++
				cluster.Hosts[i].Err = want.Err // another class
			}
			cluster.Hosts[i].Labels = want.Labels
		}
		plan, after, events := enforce.Judge(file, cluster, fleet.Step.Memory.Apply(memory), fleet.Step.Time)
		require.Equal(t, fleet.Step.Digest, recording.DigestOf(&plan, events))
		findings += len(plan.Findings)
		memory = after
		if err = fleet.Next(); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 40, fleet.Step.Number)
	require.Positive(t, findings)
	require.Positive(t, silent)
}

func TestWhatIsNoRecording(t *testing.T) {
	for _, data := range []string{"", "x", "genvrec1"} {
		_, err := recorded.Open(bytes.NewReader([]byte(data)))
		require.Error(t, err)
		require.False(t, errors.Is(err, io.EOF))
	}
}
