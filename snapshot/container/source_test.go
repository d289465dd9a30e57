package container_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var id = strings.Repeat("4c01db0b339c0a1f", 4)

// engines answer from a map, after a wait.
type engines struct {
	known map[string]container.Details
	hangs bool
	asked atomic.Int32
	err   error
}

func (e *engines) Inspect(ctx context.Context, place proc.Cgroup) (container.Details, error) {
	e.asked.Add(1)
	if e.hangs {
		<-ctx.Done()
		return container.Details{}, container.ErrUnknown
	}
	if d, ok := e.known[place.ID]; ok || e.err != nil {
		return d, e.err
	}
	return container.Details{}, container.ErrNotFound
}

func (e *engines) Stop(context.Context, proc.Cgroup, time.Duration) error {
	return container.ErrNoEngine
}

// host is a machine with a container named web of which process 10 is the first.
type host struct {
	*container.Lookup
	*engines
	t   testing.TB
	now time.Time
}

func newHost(t testing.TB) *host {
	h := &host{t: t, now: time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)}
	h.engines = &engines{known: map[string]container.Details{
		id: {Name: "web", Image: "pytorch:24.10", EID: "7", Labels: map[string]string{"team": "vision"}, Init: 10},
	}}
	h.Lookup = &container.Lookup{
		Engines: h.engines, Run: filepath.Join(t.TempDir(), "run"), Proc: proc.FS{Root: t.TempDir()},
		Wait: time.Minute, Now: func() time.Time { return h.now },
	}
	h.process(1, 1, "/")
	h.process(10, 100, "/docker/"+id)
	return h
}

func (h *host) process(pid, start int, group string) {
	dir := filepath.Join(h.Proc.Root, fmt.Sprint(pid))
	require.NoError(h.t, os.MkdirAll(dir, 0o755))
	stat := fmt.Sprintf("%d (sleep) S 1 5 5 0 -1 0 1 0 0 0 5 6 0 0 20 0 1 0 %d 1 1 1 1 1 0 0 0 0 0 1 1 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 9 9 0\n", pid, start)
	for name, content := range map[string]string{"stat": stat, "cgroup": "0::" + group + "\n", "status": "Uid:\t0\t0\t0\t0\nNSpid:\t10\t1\n"} {
		require.NoError(h.t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
}

func member(pid snapshot.PID, group string) container.ContainedProcess {
	return container.ContainedProcess{PID: pid, Place: proc.ParsePlace([]byte("0::" + group + "\n")), InnerNamespace: true}
}

func (h *host) look(members ...container.ContainedProcess) []*snapshot.ContainerInfo {
	h.t.Helper()
	infos := h.Look(h.t.Context(), members)
	require.Len(h.t, infos, len(members))
	return infos
}

func TestLook(t *testing.T) {
	h := newHost(t)
	web := snapshot.ContainerInfo{Runtime: "docker", Name: "web", Image: "pytorch:24.10", EID: "7", Labels: map[string]string{"team": "vision"}}
	first := web
	first.Init = true
	require.Equal(t, []*snapshot.ContainerInfo{&first, &web}, h.look(member(10, "/docker/"+id), member(11, "/docker/"+id+"/sub")))
	require.EqualValues(t, 1, h.asked.Load(), "once for a container")

	uid := snapshot.UID(1001)
	require.NoError(t, container.WriteRecord(h.Run, container.Record{ID: id, EID: "8", UID: &uid, Proof: container.ProofToken, StartedAt: h.now, PID: 10, Start: 100}))
	require.Equal(t, &first, h.look(member(10, "/docker/"+id))[0], "it is known already")
	h.now = h.now.Add(11 * time.Minute) // it may have another name
	first.EID, first.UID, first.Proof = "8", &uid, snapshot.ProofRecord
	require.Equal(t, &first, h.look(member(10, "/docker/"+id))[0])

	h.process(10, 200, "/docker/"+id) // started again, by somebody else, without the hook
	first.EID, first.UID, first.Proof = "7", nil, ""
	require.Equal(t, &first, h.look(member(10, "/docker/"+id))[0], "an old record proves nothing")
}

// TestWhichRecordProvesTheUser: only that of this start of the container, by the PID and the
// start time of its first process.
func TestWhichRecordProvesTheUser(t *testing.T) {
	uid := snapshot.UID(1001)
	for name, row := range map[string]struct {
		pid    snapshot.PID // that is recorded
		start  snapshot.StartTime
		init   snapshot.PID // that the engine says
		err    error        // of the engine
		proves bool
	}{
		"of its first process":                     {10, 100, 10, nil, true},
		"of an earlier process with its PID":       {10, 99, 10, nil, false},
		"of another process of the container":      {11, 100, 10, nil, false},
		"of a process that has ended":              {12, 100, 10, nil, false},
		"without a process":                        {0, 0, 10, nil, false},
		"the engine doesn't say which is first":    {10, 100, 0, nil, true},
		"then of an earlier process":               {10, 99, 0, nil, false},
		"then of a process of another container":   {13, 100, 0, nil, false},
		"then without a process":                   {0, 0, 0, nil, false},
		"the engine doesn't answer":                {10, 100, 0, container.ErrUnknown, true},
		"then of a process that has ended":         {12, 100, 0, container.ErrUnknown, false},
		"of a process that is in no container now": {14, 100, 14, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.process(11, 100, "/docker/"+id)
			h.process(13, 100, "/docker/"+strings.Repeat("0", 64))
			h.process(14, 100, "/user.slice")
			details := h.known[id]
			details.Init = row.init
			h.known[id], h.err = details, row.err
			require.NoError(t, container.WriteRecord(h.Run, container.Record{
				ID: id, EID: "8", UID: &uid, Proof: container.ProofToken, StartedAt: h.now, PID: row.pid, Start: row.start,
			}))
			m := member(11, "/docker/"+id)
			if row.init == 14 {
				m = member(14, "/user.slice/docker/"+id)
			}
			info := h.look(m)[0]
			if !row.proves {
				require.True(t, info == nil || info.UID == nil && info.EID == "7" && info.Proof == "", "%v", info)
				return
			}
			require.Equal(t, &uid, info.UID)
			require.Equal(t, snapshot.EnvID("8"), info.EID)
			require.Equal(t, snapshot.ProofRecord, info.Proof)
		})
	}
}

// TestARestartIsSeen: a container that is started again under its id is another one, also for its first process.
func TestARestartIsSeen(t *testing.T) {
	h := newHost(t)
	first := member(10, "/docker/"+id)
	first.Start = 100
	require.Equal(t, "web", h.look(first)[0].Name)
	h.known[id] = container.Details{Name: "new", Init: 10}
	require.Equal(t, "web", h.look(first)[0].Name)
	require.EqualValues(t, 1, h.asked.Load())
	h.process(10, 200, "/docker/"+id)
	first.Start = 200
	require.Equal(t, "new", h.look(first)[0].Name)
	require.EqualValues(t, 2, h.asked.Load())
}

// TestAncestorsShowThatTheFirstProcessRuns: it needn't be read again, and only the same one counts.
func TestAncestorsShowThatTheFirstProcessRuns(t *testing.T) {
	h := newHost(t)
	m := member(11, "/docker/"+id)
	require.Equal(t, "web", h.look(m)[0].Name)
	h.known[id] = container.Details{Name: "new", Init: 10}
	require.NoError(t, os.RemoveAll(filepath.Join(h.Proc.Root, "10")))
	m.Ancestors = []proc.ID{{PID: 12, Start: 90}, {PID: 10, Start: 100}}
	require.Equal(t, "web", h.look(m)[0].Name)
	m.Ancestors = []proc.ID{{PID: 10, Start: 101}}
	require.Equal(t, "new", h.look(m)[0].Name, "another process has its PID")
}

// TestWhatIsNoContainerOfRoots: cgroups that a user has made, with whatever name, and containers of users.
func TestWhatIsNoContainerOfRoots(t *testing.T) {
	h := newHost(t)
	unknown := strings.Repeat("0", 64)
	for name, m := range map[string]container.ContainedProcess{
		"none":                          {PID: 5},
		"another PID namespace":         {PID: 5, Place: proc.Cgroup{ID: snapshot.UnnamedContainer}, InnerNamespace: true},
		"a user's cgroup with its name": member(5, "/user.slice/user-1001.slice/user@1001.service/docker-"+id+".scope"),
		"another cgroup with its name":  member(5, "/slurm/docker/"+id),
		"of an id that no engine knows": member(5, "/slurm/docker/"+unknown),
		"Apptainer's":                   member(5, "/apptainer/4711"),
	} {
		require.Nil(t, h.look(m)[0], name)
	}
	rootless := member(5, "/user.slice/user-1001.slice/user@1001.service/libpod-"+id+".scope")
	rootless.Rootless, rootless.UID = true, 1001
	require.Equal(t, &snapshot.ContainerInfo{Runtime: "podman", UID: new(snapshot.UID(1001)), Proof: snapshot.ProofRootless}, h.look(rootless)[0])
	require.Equal(t, &snapshot.ContainerInfo{Runtime: "lxc", Name: "web"}, h.look(member(5, "/lxc/web"))[0])
}

// TestAContainerOfRootsStaysOne: someone who may use root's engine can have a container made below a user's slice, or
// below another container, and make user namespaces in it as any uid. None of that makes another user pay for it.
func TestAContainerOfRootsStaysOne(t *testing.T) {
	const slice = "/user.slice/user-1001.slice/user@1001.service"
	bob, other := snapshot.UID(1001), strings.Repeat("0", 64)
	for name, row := range map[string]struct {
		group      string // of the container
		below      string // of the process
		rootless   bool
		unanswered bool // the engine doesn't say
		want       *snapshot.ContainerInfo
	}{
		"its own":                            {"/docker/" + id, "/sub", false, false, &snapshot.ContainerInfo{UID: &bob, Proof: snapshot.ProofRecord}},
		"below another container":            {"/docker/" + id, "/" + other, false, false, &snapshot.ContainerInfo{}},
		"the same of systemd":                {"/lab.slice/docker-" + id + ".scope", "/x/docker-" + other + ".scope", false, false, &snapshot.ContainerInfo{}},
		"below a user's slice":               {"/user.slice/user-1001.slice/docker-" + id + ".scope", "", false, false, &snapshot.ContainerInfo{UID: &bob, Proof: snapshot.ProofRecord}},
		"below a user's service":             {slice + "/" + id, "", false, false, &snapshot.ContainerInfo{UID: &bob, Proof: snapshot.ProofRecord}},
		"in a user namespace":                {"/docker/" + id, "", true, false, &snapshot.ContainerInfo{UID: &bob, Proof: snapshot.ProofRecord}},
		"both":                               {slice + "/docker/" + id, "", true, false, &snapshot.ContainerInfo{UID: &bob, Proof: snapshot.ProofRecord}},
		"a user's, and the engine is silent": {slice + "/docker/" + id, "", false, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.process(10, 100, row.group)
			if row.unanswered {
				h.err, h.known = container.ErrUnknown, nil
			}
			require.NoError(t, container.WriteRecord(h.Run, container.Record{ID: id, UID: &bob, Proof: container.ProofToken, StartedAt: h.now, PID: 10, Start: 100}))
			m := member(11, row.group+row.below)
			m.Rootless, m.UID = row.rootless, 1002
			info := h.look(m)[0]
			if row.want == nil {
				require.Nil(t, info)
				return
			}
			require.Equal(t, []any{"web", row.want.UID, row.want.Proof}, []any{info.Name, info.UID, info.Proof})
		})
	}
}

// TestForgedCgroupsHideNoContainer: what a user's cgroup says of the runtime of an id is not
// what is believed of the container that has it.
func TestForgedCgroupsHideNoContainer(t *testing.T) {
	h := newHost(t)
	var members []container.ContainedProcess
	for _, name := range []string{"crio-" + id + ".scope", "libpod-" + id + ".scope", "docker-" + id + ".scope", id} {
		members = append(members, member(5, "/user.slice/user-1001.slice/user@1001.service/"+name))
	}
	infos := h.look(append(members, member(10, "/docker/"+id))...)
	require.Equal(t, []*snapshot.ContainerInfo{nil, nil, nil, nil}, infos[:4])
	require.Equal(t, "web", infos[4].Name)
}

// TestSilentEngine: it is waited for once, then left alone, and what is unknown is said.
func TestSilentEngine(t *testing.T) {
	h := newHost(t)
	h.hangs, h.Wait = true, 20*time.Millisecond
	require.True(t, h.look(member(10, "/docker/"+id))[0].Unknown)
	h.Wait = time.Hour // nothing is waited for any more
	h.now = h.now.Add(29 * time.Second)
	other := member(11, "/docker/"+strings.Repeat("0", 64))
	require.True(t, h.look(other)[0].Unknown)
	outside := other
	outside.InnerNamespace = false
	require.Nil(t, h.look(outside)[0], "a cgroup's name alone makes no container")
	h.hangs = false
	h.now = h.now.Add(2 * time.Second)
	require.Equal(t, "web", h.look(member(10, "/docker/"+id))[0].Name)
	h.err = container.ErrUnknown
	h.known = nil
	h.now = h.now.Add(11 * time.Minute)
	require.Equal(t, "web", h.look(member(10, "/docker/"+id))[0].Name, "what is known stays known")
}

func TestInit(t *testing.T) {
	h := newHost(t)
	r, err := h.Init(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, "container web (pytorch:24.10)", r.Text)
	h.process(11, 100, "/docker/"+id)
	h.process(12, 100, "/user.slice")
	for pid, want := range map[snapshot.PID]error{11: container.ErrNotInit, 12: container.ErrNotInit, 13: proc.ErrGone} {
		_, err = h.Init(t.Context(), pid)
		require.ErrorIs(t, err, want)
	}
}
