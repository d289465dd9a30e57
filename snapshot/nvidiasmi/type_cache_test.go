package nvidiasmi_test

import (
	"cmp"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// screens are GPU-0, which has an active display, and GPU-1, which has none.
var screens = described([]snapshot.Device{{UUID: "GPU-0", Display: new(true)}, {UUID: "GPU-1", Display: new(false)}, {UUID: "GPU-2"}})

// gpusByIndex are these, and GPU-2, of which nvidia-smi doesn't say whether its display is active.
var gpusByIndex = map[snapshot.DeviceIndex]snapshot.GPUUUID{0: "GPU-0", 1: "GPU-1", 2: "GPU-2"}

// drawn is an answer according to which these processes draw.
func drawn(pids ...snapshot.PID) map[snapshot.PID]snapshot.ProcessType {
	drawing := map[snapshot.PID]snapshot.ProcessType{}
	for _, pid := range pids {
		drawing[pid] = "C+G"
	}
	return drawing
}

// typesLook is a look at processes.
type typesLook struct {
	after time.Duration // the one before
	uses  []snapshot.PID
	on    snapshot.DeviceIndex
	asked string // what nvidia-smi is newly asked for
	// says is what it says of processes; failed and failedOfScreens are why it says nothing.
	says                    map[snapshot.PID]snapshot.ProcessType
	failed, failedOfScreens error
	before                  time.Duration // it is the answer to a question of so long ago
	mayDraw                 bool          // by more than what nvidia-smi says
	want                    []snapshot.ProcessType
}

// typeSource is nvidia-smi in a look.
type typeSource struct {
	*typesLook
	now time.Time
	got *string
}

// asks notes a new question.
func (s typeSource) asks(ctx context.Context, what string) {
	if nvidiasmi.MayCall(ctx) {
		*s.got += what
	}
}

func (s typeSource) Devices(ctx context.Context, _ time.Duration) (nvidiasmi.Listing, error) {
	if s.asks(ctx, "d"); s.failedOfScreens != nil {
		return nvidiasmi.Listing{}, s.failedOfScreens
	}
	return nvidiasmi.Listing{GPUs: screens, Time: nvidiasmi.Time{Began: s.now.Add(-s.before)}}, nil
}

func (s typeSource) Details(ctx context.Context, _ time.Duration) (nvidiasmi.Details, error) {
	if s.asks(ctx, "q"); s.failed != nil {
		return nvidiasmi.Details{}, s.failed
	}
	if s.says == nil {
		return nvidiasmi.Details{}, nvidiasmi.ErrTimeout
	}
	return nvidiasmi.Details{Drawing: s.says, Time: nvidiasmi.Time{Began: s.now.Add(-s.before)}}, nil
}

// TestTypes: one answer is for all processes, at most one in 30 s, and what it says of one is kept.
func TestTypes(t *testing.T) {
	lookForTypes(t, map[string][]typesLook{
		"nothing is there": {{}},
		"one answer for all": {
			{uses: []snapshot.PID{5, 6}, says: drawn(5), asked: "dq", want: []snapshot.ProcessType{"C+G", "C"}},
			{after: time.Hour, uses: []snapshot.PID{5, 6}, want: []snapshot.ProcessType{"C+G", "C"}},
		},
		"a process starts": {
			{uses: []snapshot.PID{5}, says: drawn(5), asked: "dq", want: []snapshot.ProcessType{"C+G"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, says: drawn(5), before: 10 * time.Second, want: []snapshot.ProcessType{"C+G", "?"}},
			{after: 20 * time.Second, uses: []snapshot.PID{5, 6}, says: drawn(), asked: "dq", want: []snapshot.ProcessType{"C+G", "C"}},
		},
		"no display is active on the GPU": {
			{uses: []snapshot.PID{5}, on: 1, asked: "d", want: []snapshot.ProcessType{""}},
			{after: time.Hour, uses: []snapshot.PID{5}, on: 1, want: []snapshot.ProcessType{""}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, on: 1, asked: "d", want: []snapshot.ProcessType{"", ""}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6, 7}, on: 1, before: 10 * time.Second, want: []snapshot.ProcessType{"", "", ""}},
		},
		"no answer": {
			{uses: []snapshot.PID{5}, failed: nvidiasmi.ErrFailed, asked: "dq", want: []snapshot.ProcessType{"?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{6}, want: []snapshot.ProcessType{"?"}},
			{after: time.Hour, uses: []snapshot.PID{6}, failed: nvidiasmi.ErrGarbled, asked: "dq", want: []snapshot.ProcessType{"?"}},
		},
		"an answer that comes after the look": {
			{uses: []snapshot.PID{5, 7}, failed: nvidiasmi.ErrTimeout, asked: "dq", want: []snapshot.ProcessType{"?", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 7, 6}, says: drawn(5), before: 10 * time.Second, want: []snapshot.ProcessType{"C+G", "C", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 7, 6}, says: drawn(5), before: 20 * time.Second, want: []snapshot.ProcessType{"C+G", "C", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 7, 6}, says: drawn(6), asked: "dq", want: []snapshot.ProcessType{"C+G", "C", "C+G"}},
		},
		"whether a display is active is unknown": {
			{uses: []snapshot.PID{5}, on: 2, says: drawn(5), asked: "dq", want: []snapshot.ProcessType{"C+G"}},
			{after: 10 * time.Second, uses: []snapshot.PID{6}, on: 2, want: []snapshot.ProcessType{"?"}},
			{after: time.Hour, uses: []snapshot.PID{6}, on: 2, failed: nvidiasmi.ErrGarbled, asked: "dq", want: []snapshot.ProcessType{"?"}},
		},
		"it has never answered, not even about displays": {
			{uses: []snapshot.PID{5}, on: 1, failedOfScreens: nvidiasmi.ErrHung, asked: "d", want: []snapshot.ProcessType{"?"}},
			{after: time.Hour, uses: []snapshot.PID{5}, on: 1, failedOfScreens: nvidiasmi.ErrHung, asked: "d", want: []snapshot.ProcessType{"?"}},
		},
		"it hangs on a desktop": {
			{uses: []snapshot.PID{5}, says: drawn(5), asked: "dq", want: []snapshot.ProcessType{"C+G"}},
			{after: 30 * time.Second, uses: []snapshot.PID{5, 6}, failed: nvidiasmi.ErrTimeout, asked: "dq", want: []snapshot.ProcessType{"C+G", "?"}},
			{after: time.Hour, uses: []snapshot.PID{5, 6, 7}, failed: nvidiasmi.ErrHung, asked: "dq", want: []snapshot.ProcessType{"C+G", "?", "?"}},
			{after: time.Minute, uses: []snapshot.PID{5, 6, 7}, says: drawn(5, 7), asked: "dq", want: []snapshot.ProcessType{"C+G", "C", "C+G"}},
		},
	})
}

// short is a look every 30 s, at another process each time, with an answer that is older than it.
func short(pid snapshot.PID, want snapshot.ProcessType) typesLook {
	return typesLook{
		after: 30 * time.Second, uses: []snapshot.PID{pid}, says: drawn(), before: 10 * time.Second, asked: "dq",
		want: []snapshot.ProcessType{want},
	}
}

// TestShortProcesses: who has only processes of which nvidia-smi never gets to say the type has no desktop.
func TestShortProcesses(t *testing.T) {
	look := func(l typesLook, change func(*typesLook)) typesLook { change(&l); return l }
	first := []typesLook{short(5, "?"), short(6, "?"), short(7, "?")}
	lookForTypes(t, map[string][]typesLook{
		"one after the other": append(first, short(8, "C"), short(9, "C")),
		"with a node of /dev/dri, or beside a desktop": append(first,
			look(short(8, "?"), func(l *typesLook) { l.mayDraw = true })),
		"without answers": append(first[:2:2],
			look(short(7, "?"), func(l *typesLook) { l.failed = nvidiasmi.ErrTimeout }),
			look(short(8, "?"), func(l *typesLook) { l.failed = nvidiasmi.ErrTimeout }),
			look(short(9, "?"), func(l *typesLook) { l.failed = nvidiasmi.ErrTimeout })),
		"many within one answer": append(first[:1:1],
			typesLook{after: 5 * time.Second, uses: []snapshot.PID{6}, says: drawn(), before: 15 * time.Second, want: []snapshot.ProcessType{"?"}},
			typesLook{after: 5 * time.Second, uses: []snapshot.PID{7}, says: drawn(), before: 20 * time.Second, want: []snapshot.ProcessType{"?"}},
			typesLook{after: 5 * time.Second, uses: []snapshot.PID{8}, says: drawn(), before: 25 * time.Second, want: []snapshot.ProcessType{"?"}}),
		"and then a longer one": append(first, short(8, "C"),
			look(short(8, "C+G"), func(l *typesLook) { l.says, l.before = drawn(8), 0 }), short(9, "?")),
		"none in between": append(first, typesLook{after: 30 * time.Second},
			look(short(8, "C"), func(l *typesLook) { l.before = 0 }),
			look(short(8, "C"), func(l *typesLook) { l.asked = "" }),
			look(short(9, "?"), func(l *typesLook) { l.after = 5 * time.Second })),
	})
}

func lookForTypes(t *testing.T, rows map[string][]typesLook) {
	t.Helper()
	for name, looks := range rows {
		t.Run(name, func(t *testing.T) {
			var types nvidiasmi.Types
			now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
			for i := range looks {
				l, asked, uid := &looks[i], "", snapshot.UID(1000)
				s := &snapshot.Snapshot{Devices: []snapshot.Device{{Index: 0}, {Index: 1}, {Index: 2}}}
				for _, pid := range l.uses {
					s.Processes = append(s.Processes, snapshot.Process{PID: pid, Start: 1, UID: &uid, Usage: []snapshot.DeviceUsage{{Index: l.on}}})
				}
				now = now.Add(l.after)
				types.Set(t.Context(), s, gpusByIndex, now, typeSource{l, now, &asked}, func(*snapshot.Process, map[snapshot.PID]snapshot.ProcessType) bool { return l.mayDraw })
				require.Equal(t, l.asked, asked, "look %d", i+1)
				for j, want := range l.want {
					require.Equal(t, want, s.Processes[j].Usage[0].Type, "look %d", i+1)
				}
				require.False(t, *cmp.Or(s.Devices[1].Display, new(bool)))
				if asked != "" && l.failedOfScreens == nil {
					require.True(t, *s.Devices[0].Display && *s.Devices[2].Display, "it is active, or may be")
				}
			}
		})
	}
}

// TestTypesOfProcessesWithoutAStartTime, as genv 1.4.3 reports them: what is said of a PID isn't kept for
// longer than the answer, and of one that computes only for the look.
func TestTypesOfProcessesWithoutAStartTime(t *testing.T) {
	var types nvidiasmi.Types
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, look := range []typesLook{
		{says: drawn(5), asked: "dq", want: []snapshot.ProcessType{"C+G", "C"}},
		{want: []snapshot.ProcessType{"C+G", "?"}},
		{failed: nvidiasmi.ErrFailed, asked: "dq", want: []snapshot.ProcessType{"?", "?"}},
	} {
		s, asked := &snapshot.Snapshot{}, ""
		for pid := range snapshot.PID(2) {
			s.Processes = append(s.Processes, snapshot.Process{PID: 5 + pid, Usage: []snapshot.DeviceUsage{{}}})
		}
		types.Set(t.Context(), s, gpusByIndex, now, typeSource{&look, now, &asked}, nil)
		require.Equal(t, look.asked, asked)
		require.Equal(t, look.want, []snapshot.ProcessType{s.Processes[0].Usage[0].Type, s.Processes[1].Usage[0].Type})
		now = now.Add(20 * time.Second)
	}
}

// hangingSource is an nvidia-smi that hangs at a question.
type hangingSource struct {
	asked, release chan struct{}
	calls          atomic.Int32
}

func (*hangingSource) Devices(context.Context, time.Duration) (nvidiasmi.Listing, error) {
	return nvidiasmi.Listing{GPUs: screens}, nil
}

func (h *hangingSource) Details(ctx context.Context, _ time.Duration) (nvidiasmi.Details, error) {
	if !nvidiasmi.MayCall(ctx) {
		return nvidiasmi.Details{}, nvidiasmi.ErrTimeout
	}
	h.calls.Add(1)
	close(h.asked)
	<-h.release
	return nvidiasmi.Details{Drawing: drawn(5), Time: nvidiasmi.Time{Began: time.Now()}}, nil
}

// TestTypesDoNotDelayOthers: a look doesn't wait for the answer to another look's question.
func TestTypesDoNotDelayOthers(t *testing.T) {
	var types nvidiasmi.Types
	now := time.Now()
	look := func() *snapshot.Snapshot {
		return &snapshot.Snapshot{Processes: []snapshot.Process{{PID: 5, Start: 1, Usage: []snapshot.DeviceUsage{{Index: 0}}}}}
	}
	source := &hangingSource{asked: make(chan struct{}), release: make(chan struct{})}
	first, done := look(), make(chan struct{})
	go func() {
		defer close(done)
		types.Set(t.Context(), first, gpusByIndex, now, source, nil)
	}()
	<-source.asked
	second := look()
	types.Set(t.Context(), second, gpusByIndex, now.Add(time.Hour), source, nil)
	require.Equal(t, snapshot.TypePending, second.Processes[0].Usage[0].Type)
	close(source.release)
	<-done
	require.Equal(t, snapshot.ProcessType("C+G"), first.Processes[0].Usage[0].Type)
	later := look()
	types.Set(t.Context(), later, gpusByIndex, now, nil, nil)
	require.Equal(t, snapshot.ProcessType("C+G"), later.Processes[0].Usage[0].Type, "the answer is kept")
	require.EqualValues(t, 1, source.calls.Load())
}

// TestProcessesThatMayDrawDoNotDelayOthers: a look doesn't wait while another one reads files of processes.
func TestProcessesThatMayDrawDoNotDelayOthers(t *testing.T) {
	var types nvidiasmi.Types
	now, asked, uid := time.Now(), "", snapshot.UID(1000)
	look := func(pid snapshot.PID, mayDraw func(*snapshot.Process, map[snapshot.PID]snapshot.ProcessType) bool) snapshot.ProcessType {
		l := short(pid, "")
		s := &snapshot.Snapshot{Processes: []snapshot.Process{{PID: pid, Start: 1, UID: &uid, Usage: []snapshot.DeviceUsage{{}}}}}
		now = now.Add(l.after)
		types.Set(t.Context(), s, gpusByIndex, now, typeSource{&l, now, &asked}, mayDraw)
		return s.Processes[0].Usage[0].Type
	}
	for pid := range snapshot.PID(3) {
		look(5+pid, nil)
	}
	entered, release, first := make(chan struct{}), make(chan struct{}), make(chan snapshot.ProcessType)
	go func() {
		first <- look(8, func(*snapshot.Process, map[snapshot.PID]snapshot.ProcessType) bool {
			close(entered)
			<-release
			return false
		})
	}()
	<-entered
	second := make(chan snapshot.ProcessType, 1)
	go func() { second <- look(9, nil) }()
	select {
	case kind := <-second:
		require.Equal(t, snapshot.TypePending, kind)
	case <-time.After(10 * time.Second):
		t.Error("it waits")
	}
	close(release)
	require.Equal(t, snapshot.TypeCompute, <-first)
}
