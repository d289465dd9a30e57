package service

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

type gpuList = []snapshot.DeviceIndex

// capsOf is a host of four GPUs that was told about one cap.
func capsOf(c Cap, u CapUse) *Server {
	if c.GPUs == nil {
		c.GPUs = gpuList{0, 1, 2, 3}
	}
	now := time.Now()
	s := &Server{Now: func() time.Time { return now }}
	s.allowed.Store(&allowanceState{
		Allowance: Allowance{Caps: []Cap{c}, People: map[snapshot.UID]Person{1001: {Caps: []CapUse{u}}}},
		at:        now.Add(-2 * time.Second), until: now.Add(time.Minute), replaced: make(chan struct{}),
	})
	return s
}

// stateWith has environments of uid 1001, each with GPUs of 80 GiB.
func stateWith(envs map[snapshot.EnvID]gpuList) *state.Files {
	f := &state.Files{}
	for i := range 4 {
		d := snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(80 << 10)}
		for eid, list := range envs {
			if slices.Contains(list, d.Index) {
				d.Attachments = append(d.Attachments, snapshot.Attachment{EID: eid})
			}
		}
		f.Devices = append(f.Devices, d)
	}
	for eid := range envs {
		f.Environments = append(f.Environments, snapshot.Environment{EID: eid, UID: 1001})
	}
	return f
}

// TestWithinCaps: what is beyond a cap is refused, and only that.
func TestWithinCaps(t *testing.T) {
	gpus := func(c Cap) Cap { c.Counts = "gpus"; return c }
	elsewhere := CapUse{Limit: 2, Elsewhere: 1, Hosts: []snapshot.Hostname{"gpu-03"}, SeenMS: 3000}
	for name, row := range map[string]struct {
		booked  int
		cap     Cap
		use     CapUse
		envs    map[snapshot.EnvID]gpuList
		before  gpuList // of e, which was changed
		entered bool
		want    string // a part of the refusal; empty for none
	}{
		"within": {cap: gpus(Cap{}), use: CapUse{Limit: 2}, envs: map[snapshot.EnvID]gpuList{"e": {0, 1}}},
		"beyond": {
			cap: gpus(Cap{Rule: "max-devices-per-user"}), use: CapUse{Limit: 2, Here: 1, GPUs: gpuList{0}},
			envs: map[snapshot.EnvID]gpuList{"e": {0, 1, 2}}, before: gpuList{0},
			want: "max-devices-per-user allows you 2 GPUs, and with this it would be 3 GPUs: you have 1 GPU on this host (GPU 0). " +
				"Give back what you need less: genv detach --index 0 in its shell, or end its command.",
		},
		"with what is elsewhere": {
			cap: gpus(Cap{}), use: elsewhere, envs: map[snapshot.EnvID]gpuList{"e": {0, 1}},
			want: "a cap of the policy allows you 2 GPUs, and with this it would be 3 GPUs: you have 0 GPUs on this host and 1 GPU on gpu-03, as seen 5s ago. " +
				"End jobs that you need less on these hosts, then try again.",
		},
		"with another environment":  {cap: gpus(Cap{}), use: CapUse{Limit: 2}, envs: map[snapshot.EnvID]gpuList{"e": {0}, "f": {1, 2}}, want: "it would be 3 GPUs"},
		"one that has it twice":     {cap: gpus(Cap{}), use: CapUse{Limit: 1}, envs: map[snapshot.EnvID]gpuList{"e": {0}, "f": {0}}},
		"with a process outside":    {cap: gpus(Cap{}), use: CapUse{Limit: 1, Here: 1, GPUs: gpuList{3}}, envs: map[snapshot.EnvID]gpuList{"e": {0}}, want: "it would be 2 GPUs"},
		"that it uses already":      {cap: gpus(Cap{}), use: CapUse{Limit: 1, Here: 1, GPUs: gpuList{3}}, envs: map[snapshot.EnvID]gpuList{"e": {3}}},
		"who is over keeps it":      {cap: gpus(Cap{}), use: CapUse{Limit: 1, Here: 2, GPUs: gpuList{0, 1}}, envs: map[snapshot.EnvID]gpuList{"e": {0, 1}}, before: gpuList{0, 1}},
		"who is over detaches":      {cap: gpus(Cap{}), use: CapUse{Limit: 1, Here: 3, GPUs: gpuList{0, 1, 2}}, envs: map[snapshot.EnvID]gpuList{"e": {0, 1}}, before: gpuList{0, 1, 2}},
		"who is over takes another": {cap: gpus(Cap{}), use: CapUse{Limit: 1, Here: 2, GPUs: gpuList{0, 1}}, envs: map[snapshot.EnvID]gpuList{"e": {0, 1, 2}}, before: gpuList{0, 1}, want: "it would be 3 GPUs"},
		"none": {
			cap: gpus(Cap{Name: "school", Until: time.Date(2026, 12, 1, 0, 0, 0, 0, time.Local)}), envs: map[snapshot.EnvID]gpuList{"e": {0}},
			want: "cap school allows you 0 GPUs until " + snapshot.When(time.Date(2026, 12, 1, 0, 0, 0, 0, time.Local)) +
				", and with this it would be 1 GPU: you have 0 GPUs on this host. Ask your administrator if you need more.",
		},
		"others than of the cap":             {cap: gpus(Cap{GPUs: gpuList{3}}), use: CapUse{Limit: 0}, envs: map[snapshot.EnvID]gpuList{"e": {0, 1}}},
		"one of the cap":                     {cap: gpus(Cap{GPUs: gpuList{3}}), use: CapUse{Limit: 0}, envs: map[snapshot.EnvID]gpuList{"e": {0, 3}}, want: "would be 1 GPU:"},
		"while others wait":                  {cap: gpus(Cap{While: true}), use: CapUse{Limit: 0}, envs: map[snapshot.EnvID]gpuList{"e": {0}}},
		"shared":                             {cap: gpus(Cap{Name: "vision", Together: true}), use: CapUse{Limit: 3, Here: 2, Elsewhere: 1, GPUs: gpuList{1, 2}, Hosts: []snapshot.Hostname{"gpu-03"}}, envs: map[snapshot.EnvID]gpuList{"e": {0}}, want: "cap vision allows 3 GPUs to all who share it, and with this it would be 4 GPUs: they have 2 GPUs on this host and 1 GPU on gpu-03"},
		"shared, and within a reservation":   {cap: gpus(Cap{Together: true}), use: CapUse{Limit: 2, Here: 2, GPUs: gpuList{2, 3}}, envs: map[snapshot.EnvID]gpuList{"e": {0, 1}}, booked: 2},
		"shared, and beyond a reservation":   {cap: gpus(Cap{Together: true}), use: CapUse{Limit: 2, Here: 2, GPUs: gpuList{2, 3}}, envs: map[snapshot.EnvID]gpuList{"e": {0, 1}}, booked: 1, want: "it would be 3 GPUs"},
		"a GPU that another has":             {cap: gpus(Cap{Together: true}), use: CapUse{Limit: 2, Here: 2, GPUs: gpuList{0, 1}}, envs: map[snapshot.EnvID]gpuList{"e": {0}}},
		"memory":                             {cap: Cap{Counts: "memory"}, use: CapUse{Limit: 100 << 30}, envs: map[snapshot.EnvID]gpuList{"e": {0, 1}}, want: "allows you 100.0 GiB of GPU memory, and with this it would be 160.0 GiB"},
		"enough memory":                      {cap: Cap{Counts: "memory"}, use: CapUse{Limit: 160 << 30}, envs: map[snapshot.EnvID]gpuList{"e": {0, 1}}},
		"hours that are used up":             {cap: Cap{Name: "month", Counts: "gpu-hours", Until: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}, use: CapUse{Limit: 7200, Elsewhere: 7200}, envs: map[snapshot.EnvID]gpuList{"e": {0}}, want: "cap month allows 2.0 GPU hours until 1 December, and 2.0 are used. Nothing was attached: ask your administrator if you need more."},
		"hours that are left":                {cap: Cap{Counts: "gpu-hours"}, use: CapUse{Limit: 7200, Elsewhere: 7199}, envs: map[snapshot.EnvID]gpuList{"e": {0}}},
		"hours, and nothing new":             {cap: Cap{Counts: "gpu-hours"}, use: CapUse{Limit: 7200, Elsewhere: 9000}, envs: map[snapshot.EnvID]gpuList{"e": {0}}, before: gpuList{0}},
		"an environment more":                {cap: Cap{Counts: "environments"}, use: CapUse{Limit: 1, Here: 1}, envs: map[snapshot.EnvID]gpuList{"e": {}, "f": {}}, entered: true, want: "it would be 2 environments"},
		"an environment that may be entered": {cap: Cap{Counts: "environments"}, use: CapUse{Limit: 1, Here: 1}, envs: map[snapshot.EnvID]gpuList{"e": {0}, "f": {}}},
		"a cap that doesn't exist":           {cap: gpus(Cap{}), use: CapUse{Cap: 7, Limit: 0}, envs: map[snapshot.EnvID]gpuList{"e": {0}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := stateWith(row.envs)
			s := capsOf(row.cap, row.use)
			s.Reservations = &Reservations{list: []snapshot.Reservation{{UID: 1001, GPUs: row.booked, From: s.Now(), Until: s.Now().Add(time.Hour)}}}
			err := s.withinCaps(1001, true)(f, &change.Result{EID: "e", Before: row.before, Now: f.AttachedTo("e")}, row.entered)
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, state.ErrCap)
			require.ErrorContains(t, err, row.want)
		})
	}
}

// TestNothingToldNothingRefused: of whom nothing is known, and who isn't told any more, is refused nothing.
func TestNothingToldNothingRefused(t *testing.T) {
	s := capsOf(Cap{Counts: "gpus"}, CapUse{Limit: 0})
	f := stateWith(map[snapshot.EnvID]gpuList{"e": {0}})
	r := &change.Result{EID: "e", Now: gpuList{0}}
	require.ErrorIs(t, s.withinCaps(1002, true)(f, r, false), errUntold, "the controller is asked first")
	require.NoError(t, s.withinCaps(1002, false)(f, r, false))
	require.ErrorIs(t, s.withinCaps(1001, false)(f, r, false), state.ErrCap)
	require.Nil(t, s.withinCaps(0, true), "root")
	over := *s.allowed.Load()
	over.until = s.Now()
	s.allowed.Store(&over)
	require.Nil(t, s.withinCaps(1001, true))
	require.Nil(t, (&Server{Now: time.Now}).withinCaps(1001, true), "no controller was heard")
}

// TestStatusOfCaps is what `genv status` says of them.
func TestStatusOfCaps(t *testing.T) {
	december := time.Date(2026, 12, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
	a := &Allowance{
		Caps: []Cap{
			{Rule: "max-devices-per-user", Counts: "gpus"},
			{Name: "a100", Model: "A100", Counts: "gpus"},
			{Name: "vision", Counts: "gpus", Together: true},
			{Name: "month", Counts: "gpu-hours", Until: december},
			{Counts: "memory"},
			{Counts: "environments", PerHost: true},
			{Counts: "gpus", While: true},
		},
		People: map[snapshot.UID]Person{1001: {Caps: []CapUse{
			{Limit: 4, Here: 1, Elsewhere: 1},
			{Cap: 1, Limit: 1, Here: 1},
			{Cap: 2, Limit: 8, Elsewhere: 7},
			{Cap: 3, Limit: 200 * 3600, Elsewhere: 112 * 3600},
			{Cap: 4, Limit: 320 << 30, Here: 80 << 30},
			{Cap: 5, Limit: 8},
			{Cap: 6},
		}}},
	}
	require.Equal(t, "2 of 4 GPUs; 1 of 1 A100; vision 7 of 8; 112 of 200 GPU hours until 1 December; 80.0 GiB of 320.0 GiB of GPU memory; "+
		"0 of 8 environments on this host; 0 of 0 GPUs, as far as others wait", a.String())
	a.People[1001] = Person{Caps: a.People[1001].Caps[:1]}
	a.ForMS, a.AgeMS = 60_000, 29_000
	require.Equal(t, "2 of 4 GPUs", a.String())
	a.AgeMS = 44_000
	require.Equal(t, "2 of 4 GPUs; the controller has said nothing for 44s", a.String())
	gone := &Allowance{Expired: true, AgeMS: 61_000, Caps: a.Caps}
	require.Equal(t, "your caps are unknown: the controller has said nothing for 1m", gone.String())
	gone.Caps = nil
	require.Empty(t, gone.String(), "there were none")
}

func TestAdmission(t *testing.T) {
	now := time.Now()
	a := admission{
		bounds: Bounds{Connections: 5, PerUser: 2, Rate: 10, Burst: 4}.withDefaults(), now: func() time.Time { return now },
		users: map[snapshot.UID]*requestCredit{},
	}
	admit := func(uid snapshot.UID) func() {
		release, ok := a.admit(uid)
		require.Equal(t, ok, release != nil)
		return release
	}
	one, two := admit(1), admit(1)
	require.NotNil(t, one)
	require.Nil(t, admit(1), "two connections are the most")
	one()
	one()
	require.Equal(t, 1, a.connections())
	two()
	admit(1)()
	admit(1)()
	require.Nil(t, admit(1), "four requests at once are the most")
	now = now.Add(100 * time.Millisecond)
	require.NotNil(t, admit(1))
	require.Nil(t, admit(1))
	for _, uid := range []snapshot.UID{2, 2, 3, 3} {
		require.NotNil(t, admit(uid))
	}
	require.Nil(t, admit(4), "five in all are the most")
	for uid := range snapshot.UID(3 * maxIdle) {
		if release, ok := a.admit(1000 + uid); ok {
			release()
		}
		now = now.Add(time.Second)
	}
	require.LessOrEqual(t, len(a.users), maxIdle+1)
}

// Without SO_PEERPIDFD the PID is looked up after the connection: a process that is younger
// than that has only got its PID.
func TestAPIDThatIsReused(t *testing.T) {
	self := snapshot.PID(os.Getpid())
	pidfd := proctest.Try(unix.PidfdOpen(int(self), 0)).OK(t)
	defer unix.Close(pidfd)
	examined := func(pid snapshot.PID, pidfd int, byPID bool, begun snapshot.StartTime) error {
		p := callerProcess{pid: pid}
		p.examine(proc.FS{}, pidfd, byPID, begun)
		return p.unknown
	}
	require.NoError(t, examined(self, pidfd, false, 0))
	require.NoError(t, examined(self, pidfd, true, proc.StartTimeNow()))
	require.ErrorIs(t, examined(self, pidfd, true, 1), errPeerGone)
	require.NoError(t, examined(self, -1, true, proc.StartTimeNow()), "a kernel without pidfds")
	require.ErrorIs(t, examined(self, -1, true, 1), errPeerGone)
	require.ErrorIs(t, examined(self, -1, false, proc.StartTimeNow()), errPeerGone)
	require.ErrorIs(t, examined(1<<22+7, pidfd, false, 0), errPeerGone)
	require.ErrorIs(t, examined(0, -1, false, 0), errForeign)
}

// However many ask at once, the newest note about them is the one that stays.
func TestWhoAskedStays(t *testing.T) {
	s := Server{
		Run: t.TempDir(), Now: time.Now,
		Username: func(context.Context, snapshot.UID) snapshot.Username { return "somebody" },
	}
	for range 20 {
		var asking sync.WaitGroup
		for uid := range snapshot.UID(20) {
			asking.Go(func() { s.lookAgain(t.Context(), uid) })
		}
		asking.Wait()
		require.Equal(t, s.asked, proctest.Try(AskedNote.Read(s.Run)).OK(t).Number)
	}
}
