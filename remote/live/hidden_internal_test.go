package live

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

const secret = "mallory-secret"

// fill puts the secret into every text of a value, except for those that no user writes, and one item into each list.
func fill(v reflect.Value, field string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_800_000_000, 0)))
		return
	case snapshot.Hostname, snapshot.GPUUUID, enforce.Rule, enforce.Decision, enforce.EventKind, order.OutcomeStatus, gpus.State, gpus.Problem, remote.Class, agent.Via, snapshot.GuardMode, election.Role:
		v.SetString("harmless")
		return
	}
	switch v.Kind() {
	case reflect.String:
		if v.SetString(secret); slices.Contains([]string{"Schema", "Run", "Model", "Driver", "Profile", "Host"}, field) {
			v.SetString("harmless")
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fill(v.Field(i), f.Name)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), field)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), field)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, field)
		fill(value, field)
		v.SetMapIndex(key, value)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(7)
	default:
		panic(v.Type().String())
	}
}

func document(t *testing.T, v any) string {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}

// TestHidden: a secret name in every field of the state and of the events.
func TestHidden(t *testing.T) {
	var all FleetState
	fill(reflect.ValueOf(&all).Elem(), "")
	all.Hosts[0].Name, all.Findings[0].Host, all.Findings[0].User = "gpu-1", "gpu-1", secret
	var event FleetEvent
	fill(reflect.ValueOf(&event).Elem(), "")
	event.Number, event.Text, event.Host = 1, secret, "gpu-1"
	require.Contains(t, document(t, all), secret)
	feed := NewFeed(Options{Now: time.Now})
	feed.state.revision, feed.derived, feed.events = all.Revision, &all, []FleetEvent{event}

	for _, user := range []snapshot.Username{"", "alice"} {
		source := feed.For(user)
		got := document(t, source.Fleet()) + document(t, source.Events(0))
		require.NotContains(t, got, secret, user)
		require.NotContains(t, got, "mallory")
		f := source.Fleet()
		require.Equal(t, snapshot.Hostname("gpu-1"), f.Hosts[0].Name)
		require.Equal(t, all.Hosts[0].GPUs[0].State, f.Hosts[0].GPUs[0].State)
		require.Len(t, f.Hosts[0].GPUs[0].Processes, 1)
		require.Equal(t, all.Findings[0].Rule, f.Findings[0].Rule)
		require.Equal(t, all.Findings[0].Due, f.Findings[0].Due)
	}
	self := feed.For(secret)
	f := self.Fleet()
	require.Equal(t, all.Users, f.Users)
	require.Equal(t, all.Findings, f.Findings)
	require.Equal(t, all.Hosts[0].GPUs, f.Hosts[0].GPUs)
	require.Equal(t, []FleetEvent{event}, self.Events(0))
	require.Empty(t, f.Notes)
	require.Empty(t, f.Hosts[0].Warnings)
	require.NotContains(t, document(t, feed.For("").Fleet()), secret, "what one user sees isn't kept for the others")
}

// TestHiddenOthers: of a shared GPU a user sees the own part only.
func TestHiddenOthers(t *testing.T) {
	all := FleetState{Revision: 1, Hosts: []FleetHost{{Name: "gpu-1", GPUs: []gpus.GPU{{
		Attached:  []gpus.Attachment{{User: "alice", EID: "1"}, {User: secret, EID: secret}},
		Processes: []gpus.Process{{User: secret, PID: 9, Command: secret}, {User: "alice", PID: 8}, {Command: secret}},
	}}}}, Users: []FleetUser{{Name: "alice"}, {Name: secret}}}
	feed := NewFeed(Options{Now: time.Now})
	feed.state.revision, feed.derived = 1, &all
	f := feed.For("alice").Fleet()
	require.NotContains(t, document(t, f), secret)
	require.Equal(t, []FleetUser{{Name: "alice"}}, f.Users)
	require.Equal(t, []gpus.Attachment{{User: "alice", EID: "1"}, {}}, f.Hosts[0].GPUs[0].Attached)
	require.Equal(t, []gpus.Process{{}, {User: "alice", PID: 8}, {}}, f.Hosts[0].GPUs[0].Processes)
}

var midnight = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// held is a GPU that a user holds in a state.
func held(state gpus.State, users ...snapshot.Username) gpus.GPU {
	g := gpus.GPU{State: state}
	for _, user := range users {
		g.Attached = append(g.Attached, gpus.Attachment{User: user})
		if state == gpus.Busy {
			g.Processes = append(g.Processes, gpus.Process{User: user})
		}
	}
	return g
}

func oneHost(list ...gpus.GPU) *FleetState {
	for i := range list {
		list[i].Index = snapshot.DeviceIndex(i)
	}
	return &FleetState{Hosts: []FleetHost{{Name: "a", GPUs: list}}}
}

func TestTheMarkOfAStateOfALaterGenv(t *testing.T) {
	f := oneHost(held("frozen"))
	require.Equal(t, MarkUnknown, NewIndex(f).Mark("a", &f.Hosts[0].GPUs[0]))
}

func TestIdleSince(t *testing.T) {
	feed := NewFeed(Options{Now: time.Now})
	later := midnight.Add(time.Minute)
	feed.idle = idleGPUs(oneHost(held(gpus.Attached, "alice"), held(gpus.Idle, "bob"), held(gpus.Busy, "bob"), held(gpus.Free)), feed.idle, midnight)
	feed.idle = idleGPUs(oneHost(held(gpus.Idle, "alice"), held(gpus.Idle, "alice"), held(gpus.Busy, "bob"), held(gpus.Free)), feed.idle, later)
	require.Equal(t, midnight, feed.IdleSince("a", 0))
	require.Equal(t, later, feed.IdleSince("a", 1), "of another user")
	require.Zero(t, feed.IdleSince("a", 2))
	require.Zero(t, feed.IdleSince("a", 3))
	failed := oneHost(held(gpus.Unknown))
	failed.Hosts[0].Failure = &remote.Failure{}
	feed.idle = idleGPUs(failed, feed.idle, later.Add(time.Minute))
	require.Zero(t, feed.IdleSince("a", 0), "it isn't known while the host fails")
	feed.idle = idleGPUs(oneHost(held(gpus.Idle, "alice")), feed.idle, later.Add(2*time.Minute))
	require.Equal(t, later.Add(2*time.Minute), feed.IdleSince("a", 0))
}

// BenchmarkFleet is the state of 10,000 hosts with 8 GPUs, which are attached and used: from
// what hosts said to what a viewer reads. Divide by 10,000 for a host.
func BenchmarkFleet(b *testing.B) {
	round := &controller.Round{Run: "r", Number: 1, Start: midnight}
	for i := range 10_000 {
		s := &snapshot.Snapshot{}
		for j := range 8 {
			eid, user := snapshot.EnvID(fmt.Sprint(4000+j)), snapshot.Username(fmt.Sprintf("user-%d", (i+j)%300))
			s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: 1001, Username: user})
			s.Devices = append(s.Devices, snapshot.Device{
				Index: snapshot.DeviceIndex(j), UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%d-%d", i, j)), Name: "NVIDIA H100", TotalMemory: snapshot.MiB(81559),
				UsedMemory: snapshot.MiB(6000), Utilization: new(50), Attachments: []snapshot.Attachment{{EID: eid}},
			})
			s.Processes = append(s.Processes, snapshot.Process{PID: snapshot.PID(100 + j), Username: user, Name: "python", Usage: []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(j), Memory: snapshot.MiB(5000)}}})
		}
		round.Cluster.Hosts = append(round.Cluster.Hosts, snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%d", i)), Snapshot: s})
	}
	feed := NewFeed(Options{Now: time.Now})
	feed.Consume(round.AtEnd(), nil)
	fleet := feed.Fleet()
	for name, run := range map[string]func(){
		"take":   func() { feed.take(round) },
		"derive": func() { feed.state.fleet(nil) },
		"again":  func() { feed.state.fleet(fleet) },
		"hide":   func() { withoutNames(fleet) },
		"encode": func() {
			if _, err := json.Marshal(fleet); err != nil {
				b.Fatal(err)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
