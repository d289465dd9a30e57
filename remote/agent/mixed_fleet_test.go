package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// earlier are the commits of versions that fleets still run. In testdata there is, for each of them, a conversation of
// its controller with its host: two snapshots, an order, a message, a snapshot.
var earlier = []string{"593d2121", "64d3d9ab"}

func recording(t *testing.T, commit, end string) []byte {
	return proctest.ReadFile(t, filepath.Join("testdata", commit, end+".frames"))
}

// framesOf are the frames of a recording after the first line, by the names of their requests.
func framesOf(t *testing.T, data []byte) (frames []*frame.Frame) {
	r := bytes.NewReader(data[max(0, bytes.Index(data, []byte("gnv1"))):])
	for {
		f, err := frame.Read(r)
		if errors.Is(err, io.EOF) {
			return frames
		}
		require.NoError(t, err)
		frames = append(frames, f)
	}
}

// olderHost is a session of `genv usage serve` that answers as the recorded host did.
type olderHost struct {
	io.Reader
	io.Writer
	close func()
}

func (h *olderHost) Close()      { h.close() }
func (h *olderHost) Wait() error { return nil }

// startOlderHost answers each request with the next recorded answer to one of its name. The host of 64d3d9ab takes its
// token as a flag.
func startOlderHost(t *testing.T, commit string, command remote.Command) agent.Session {
	answers := framesOf(t, recording(t, commit, "host"))
	requests := framesOf(t, recording(t, commit, "controller"))
	in, toHost := io.Pipe()
	fromHost, out := io.Pipe()
	var ended sync.WaitGroup
	ended.Go(func() {
		defer out.Close()
		defer in.Close()
		reader, token := bufio.NewReader(in), ""
		if i := slices.Index(command.Args, "--token"); i >= 0 {
			token = command.Args[i+1]
		} else if commit == "593d2121" {
			line, _ := reader.ReadString('\n')
			token = line[:max(len(line)-1, 0)]
		}
		if _, err := out.Write(answers[0].Append([]byte("\ngenv-serve " + token + "\n"))); err != nil {
			return
		}
		next := 0
		for {
			f, err := frame.Read(reader)
			if err != nil {
				return
			}
			for next < len(requests) && requests[next].Name != f.Name {
				next++
			}
			answer := *answers[next+1]
			answer.ID = f.ID
			next++
			if _, err := out.Write(answer.Append(nil)); err != nil {
				return
			}
		}
	})
	return &olderHost{fromHost, toHost, func() { _, _ = toHost.Close(), fromHost.Close(); ended.Wait() }}
}

// refusedSession is one that sudo refuses: sudoers of 64d3d9ab allow `usage serve *`, with an argument alone.
type refusedSession struct{ because error }

func (refusedSession) Read([]byte) (int, error)    { return 0, io.EOF }
func (refusedSession) Write(b []byte) (int, error) { return len(b), nil }
func (refusedSession) Close()                      {}
func (s refusedSession) Wait() error               { return s.because }

// failsAtOnce is a network in which nothing is reached.
type failsAtOnce struct{ neverReached }

func (failsAtOnce) Run(context.Context, remote.Host, remote.Command) (remote.Output, error) {
	return remote.Output{}, remote.Errorf(remote.Unreachable, "it is off")
}

var wantsPassword = remote.Errorf(remote.Sudo, "sudo wants a password")

// TestWhySudoFailsWithTheFlag: of two failures it is the one that says more.
func TestWhySudoFailsWithTheFlag(t *testing.T) {
	full := remote.Errorf(remote.Auth, "error initializing I/O plugin")
	for _, row := range []struct{ without, with, want error }{{wantsPassword, full, full}, {wantsPassword, wantsPassword, wantsPassword}, {full, wantsPassword, full}} {
		pool := &agent.Pool{
			Network: failsAtOnce{}, Timeout: 5 * time.Second, Log: zerolog.Nop(),
			Start: func(_ context.Context, _ remote.Host, command remote.Command) (agent.Session, error) {
				if slices.Contains(command.Args, "--token") {
					return refusedSession{row.with}, nil
				}
				return refusedSession{row.without}, nil
			},
		}
		_, err := pool.Snapshot(t.Context(), remote.Host{Name: "gpu01"})
		pool.Close()
		require.ErrorContains(t, err, row.want.Error())
	}
}

// TestTheControllerEnforcesOnOlderHosts: it understands what they say, and they what it orders.
func TestTheControllerEnforcesOnOlderHosts(t *testing.T) {
	for name, wantsFlag := range map[string]bool{"593d2121": false, "64d3d9ab": false, "64d3d9ab with its sudoers": true} {
		t.Run(name, func(t *testing.T) {
			commit, _, _ := strings.Cut(name, " ")
			pool := &agent.Pool{
				Network: neverReached{}, Timeout: 5 * time.Second, Log: zerolog.Nop(),
				Start: func(_ context.Context, _ remote.Host, command remote.Command) (agent.Session, error) {
					if wantsFlag && !slices.Contains(command.Args, "--token") {
						return refusedSession{wantsPassword}, nil
					}
					return startOlderHost(t, commit, command), nil
				},
			}
			defer pool.Close()
			pool.Lease(&fence.LeaseRequest{Who: fence.Folder("0123456789abcdef"), Epoch: 3, Controller: "c-1"})
			host := remote.Host{Name: "gpu01"}
			s := snapshotOf(t, pool, host)
			require.Equal(t, agent.ViaStream, pool.About(host).Via)
			require.Len(t, s.Processes, 2)
			require.Equal(t, s.Environments[0].EID, s.Processes[0].EID)
			require.NotNil(t, s.Devices[0].Attachment(s.Environments[0].EID))
			require.Same(t, s, snapshotOf(t, pool, host), "it didn't change")

			file := proctest.Try(policy.Parse("policy.yaml", []byte("defaults:\n  non-env-processes: true\n  env-devices: true\n"))).OK(t)
			cluster := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "gpu01", Snapshot: s}}}
			plan, _, _ := rules.Judge(file, cluster, enforce.Memory{}, time.Now())
			require.Len(t, plan.Orders, 1)
			o := plan.Orders[0].Order
			require.Len(t, o.Terminate, 1)
			require.Equal(t, s.Processes[1].PID, o.Terminate[0].Process.PID, "the one in no environment")
			o.Detach = []order.Detachment{{Device: 0, Environment: s.Environments[0]}}
			done := proctest.Try(pool.Execute(t.Context(), host, o)).OK(t)
			require.Equal(t, order.StatusDetached, done.Outcomes[0].Status)
			require.Equal(t, order.StatusTerminated, done.Outcomes[1].Status)
			shown := proctest.Try(pool.Notify(t.Context(), host, []agent.Message{{UID: 4242, Text: "hello"}})).OK(t)
			require.Len(t, shown, 1)
			s = snapshotOf(t, pool, host)
			require.Len(t, s.Processes, 1)
		})
	}
}

// recordingBackend is a host that keeps the orders that it gets.
type recordingBackend struct {
	snapshot []byte
	orders   []order.Order
}

func (b *recordingBackend) Snapshot(context.Context, local.Age) ([]byte, error) {
	return b.snapshot, nil
}

func (b *recordingBackend) Execute(_ context.Context, o order.Order, _ ending.Authority) (agent.Execution, error) {
	b.orders = append(b.orders, o)
	return agent.Execution{}, nil
}

func (b *recordingBackend) Notify(messages []agent.Message) ([]agent.Receipt, error) {
	return make([]agent.Receipt, len(messages)), nil
}

// TestTheHostUnderstandsOlderControllers: each request of theirs is answered, and an order is the one that they sent.
func TestTheHostUnderstandsOlderControllers(t *testing.T) {
	for _, commit := range earlier {
		t.Run(commit, func(t *testing.T) {
			encoded, err := snapshot.EncodeNative(&snapshot.Snapshot{
				Processes: []snapshot.Process{{PID: 7, EID: "1", Usage: []snapshot.DeviceUsage{{Index: 0}}}, {PID: 8}},
				Devices:   []snapshot.Device{{Index: 0}},
			})
			require.NoError(t, err)
			backend := &recordingBackend{snapshot: encoded}
			lease := &fence.LeaseFile{Path: filepath.Join(t.TempDir(), "genv", "lease"), Now: time.Now}
			server := &agent.Responder{
				ReadToken: commit == "593d2121", Token: "t", Idle: time.Minute,
				Greeting: agent.NewGreeting("v", agent.CapabilityFence), Handler: (&agent.Answers{Backend: backend, Fence: lease}).Handle,
			}
			var out bytes.Buffer
			require.NoError(t, server.Serve(t.Context(), bytes.NewReader(recording(t, commit, "controller")), &out))
			answers := framesOf(t, out.Bytes())
			require.Len(t, answers, 6)
			for _, f := range answers[1:] {
				require.Equal(t, frame.KindAnswer, f.Kind, "%s", f.Body)
			}
			var answer struct{ Snapshot map[string]any }
			require.NoError(t, json.Unmarshal(answers[1].Body, &answer))
			require.Equal(t, map[string]any{
				"pid": 7.0, "eid": "1", "used_gpu_memory": []any{map[string]any{"index": 0.0, "gpu_memory": ""}},
			}, answer.Snapshot["processes"].([]any)[0], "the keys that they know")

			require.Len(t, backend.orders, 1)
			o := backend.orders[0]
			require.Equal(t, "o-1", o.ID)
			require.True(t, o.Kill)
			require.Equal(t, 2*time.Second, o.Steps()[0].Wait)
			require.True(t, o.Terminate[0].Outside())
			require.Equal(t, snapshot.MiB(700), o.Terminate[0].Process.Usage[0].Memory)
			require.NotZero(t, o.Terminate[0].Process.Start)
			require.Equal(t, snapshot.EnvConfig{Name: "training"}, o.Detach[0].Environment.Config)
			require.Equal(t, []string{"User carol is using 1 devices"}, o.Detach[0].Why)
		})
	}
}
