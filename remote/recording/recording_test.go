package recording_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/simulated"
	"github.com/seed-3119e985/genv/snapshot"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// strict is a policy with rules of each kind for everyone.
type strict struct{}

func (strict) Settings(enforce.Query) *enforce.Settings {
	devices, envs := 3, 4
	return &enforce.Settings{
		NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, MaxDevices: &devices, MaxEnvs: &envs, MaxDuration: time.Hour,
		Idle: &enforce.Idle{After: 10 * time.Minute, Below: 5}, Warn: enforce.Warn{Cycles: 1, For: 2 * time.Minute}, Grace: 10 * time.Second,
	}
}
func (strict) Exempt(enforce.Subject) (string, bool) { return "", false }
func (strict) Fleet() enforce.Fleet                  { return enforce.Fleet{TellUsers: true} }

// encoded is a snapshot as text: what is nil in one and empty in another is the same.
func encoded(t testing.TB, s *snapshot.Snapshot) string {
	data, err := snapshot.EncodeNative(s)
	require.NoError(t, err)
	return string(data)
}

// record writes so many judgements of a fleet, with a part for each, and returns where the parts end.
func record(t testing.TB, seed uint64, hosts, judgements int) (file []byte, inputs []recording.Input, ends []int) {
	fleet := simulated.New(seed, hosts, 4, noon)
	var b bytes.Buffer
	w := recording.NewWriter(&b, recording.Header{Version: "test", Zone: "UTC", Every: time.Minute})
	var memory enforce.Memory
	policy := &recording.Policy{Text: "defaults: {}\n", Digest: "abc"}
	for i := range judgements {
		now := noon.Add(time.Duration(i) * time.Minute)
		fleet.Change(now, hosts)
		if i%5 == 4 {
			fleet.Labels(i%hosts, "shift", fmt.Sprint(i))
		}
		in := recording.Input{Before: memory, Judgement: recording.Judgement{Run: "abcd", Number: i + 1, Time: now, Policy: policy, Cluster: fleet.Cluster(), DryRun: i%2 == 0}}
		plan, after, events := enforce.Judge(strict{}, in.Cluster, memory, now)
		in.After, in.Digest = after, recording.DigestOf(&plan, events)
		require.NoError(t, w.Add(&in))
		inputs = append(inputs, in)
		memory = after
		for _, r := range plan.Reports { // as if it were sent, and were still under way
			r.Report.ID = fmt.Sprint(i)
			memory = memory.Begin(r, now)
		}
		if i%3 == 2 {
			memory.UnderWay = nil
		}
		require.NoError(t, w.Flush())
		ends = append(ends, b.Len())
	}
	require.NoError(t, w.Gap(recording.Gap{Since: noon, Until: noon.Add(time.Hour), Judgements: 3, Because: "the disk is full"}))
	require.NoError(t, w.Close())
	return b.Bytes(), inputs, append(ends, b.Len())
}

// requireStep requires that a step is what was written, and that it is judged as it was. It
// returns the memory after it.
func requireStep(t *testing.T, in *recording.Input, step *recording.Step, memory enforce.Memory) enforce.Memory {
	require.Equal(t, in.Number, step.Number)
	require.Equal(t, in.Run, step.Run)
	require.Equal(t, in.DryRun, step.DryRun)
	require.True(t, in.Time.Equal(step.Time))
	require.Equal(t, in.Policy, step.Policy)
	require.Len(t, step.Cluster.Hosts, len(in.Cluster.Hosts))
	for i := range in.Cluster.Hosts {
		want, got := &in.Cluster.Hosts[i], &step.Cluster.Hosts[i]
		require.Equal(t, want.Name, got.Name)
		require.True(t, maps.Equal(want.Labels, got.Labels))
		if want.Err != nil {
			require.Nil(t, got.Snapshot)
			var kind interface{ Kind() string }
			require.ErrorAs(t, got.Err, &kind)
			require.Equal(t, want.Err.Error(), kind.Kind())
			continue
		}
		require.Equal(t, encoded(t, recording.Judged(want.Snapshot)), encoded(t, got.Snapshot))
	}
	plan, after, events := enforce.Judge(strict{}, step.Cluster, step.Memory.Apply(memory), step.Time)
	require.Equal(t, in.Digest, recording.DigestOf(&plan, events))
	return after
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	for seed := range uint64(5) {
		file, inputs, _ := record(t, seed, 1+int(seed)*3, 80)
		r, err := recording.NewReader(bytes.NewReader(file))
		require.NoError(t, err)
		defer r.Close()
		require.Equal(t, "test", r.Header.Version)
		require.Equal(t, time.Minute, r.Header.Every)
		var memory enforce.Memory
		for i := range inputs {
			step, err := r.Next()
			require.NoError(t, err)
			memory = requireStep(t, &inputs[i], step, memory)
		}
		_, err = r.Next()
		require.ErrorIs(t, err, io.EOF)
		require.Zero(t, r.Unknown)
		require.Len(t, r.Gaps(), 1)
		require.NotContains(t, string(file), "secret")
	}
}

// read reads as many steps as there are.
func read(file []byte) (steps int, err error) {
	r, err := recording.NewReader(bytes.NewReader(file))
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		if _, err := r.Next(); err != nil {
			return steps, err
		}
		steps++
	}
}

// A file that was cut is read until its last whole part, and says that it was cut.
func TestCut(t *testing.T) {
	file, _, ends := record(t, 7, 2, 12)
	for n := range len(file) {
		steps, err := read(file[:n])
		require.ErrorIs(t, err, recording.ErrCut, n)
		whole := slices.IndexFunc(ends, func(end int) bool { return end > n })
		require.Equal(t, whole, steps, n)
	}
	steps, err := read(file)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 12, steps)
}

// A byte that is wrong is noticed, whatever is in it.
func TestDamaged(t *testing.T) {
	file, _, ends := record(t, 7, 2, 6)
	for n := 8; n < len(file); n++ {
		damaged := slices.Clone(file)
		damaged[n] ^= 0x20
		steps, err := read(damaged)
		require.Error(t, err)
		require.NotErrorIs(t, err, io.EOF, n)
		require.True(t, errors.Is(err, recording.ErrCut) || errors.Is(err, recording.ErrDamaged), err)
		require.Equal(t, slices.IndexFunc(ends, func(end int) bool { return end > n }), steps, n)
	}
	for _, other := range []string{"", "genv", "genvrec2xxxxxxxxxxxxxxxxxxxx", "SQLite format 3"} {
		_, err := read([]byte(other))
		require.Error(t, err)
		require.NotErrorIs(t, err, io.EOF)
	}
}

// Each field of a snapshot is recorded, or is not looked at by any rule: a new field has to be
// added here or to Judged.
func TestWhatIsLeftOut(t *testing.T) {
	leftOut := map[string][]string{
		"Snapshot":    {"BootID", "MachineID", "StateFolder", "Guard", "Service", "Warnings"},
		"Process":     {"Command"},
		"Environment": {"PIDs", "KernelIDs"},
		"Device":      {"Name", "UsedMemory", "Temperature", "Power"},
	}
	full := &snapshot.Snapshot{Processes: make([]snapshot.Process, 1), Environments: make([]snapshot.Environment, 1), Devices: make([]snapshot.Device, 1)}
	fill(reflect.ValueOf(full).Elem())
	kept := recording.Judged(full)
	for _, v := range []reflect.Value{reflect.ValueOf(*kept), reflect.ValueOf(kept.Processes[0]), reflect.ValueOf(kept.Environments[0]), reflect.ValueOf(kept.Devices[0])} {
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			require.Equal(t, slices.Contains(leftOut[v.Type().Name()], name), v.Field(i).IsZero(), "%s.%s", v.Type().Name(), name)
		}
	}
}

// fill sets each field to something.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if m, ok := v.Addr().Interface().(*snapshot.Memory); ok {
			*m = snapshot.MiB(1)
			return
		}
		if d, ok := v.Addr().Interface().(*snapshot.Date); ok {
			*d = snapshot.DateOf(noon)
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	}
}

// What changes costs little: a week of changes must fit into a small file.
func TestSize(t *testing.T) {
	file, _, ends := record(t, 3, 50, 60)
	changes := 50 * 59
	require.Less(t, (len(file)-ends[0])/changes, 130, "bytes for each change of a host")
}

func FuzzReader(f *testing.F) {
	file, _, ends := record(f, 7, 2, 12)
	f.Add(file)
	f.Add(file[:ends[2]])
	f.Add([]byte("genvrec1"))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = read(data) })
}
