package render

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// clusterOf is a cluster in which some hosts fail.
func clusterOf(size int, failed map[int]error) (cluster snapshot.Cluster) {
	for i := 1; i <= size; i++ {
		h := snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%02d", i)), Err: failed[i]}
		if h.Err == nil {
			h.Snapshot = &snapshot.Snapshot{}
		}
		cluster.Hosts = append(cluster.Hosts, h)
	}
	return cluster
}

func TestHostLog(t *testing.T) {
	down := func(n int) error { return remote.Errorf(remote.Unreachable, "no route to gpu-%02d", n) }
	slow := remote.Errorf(remote.Timeout, "no answer within 10s")
	const nextDown, nextSlow = "next: check that the host is up", "next: the host may be overloaded"
	begin := time.Unix(1_800_000_000, 0)
	var l HostLog
	for _, step := range []struct {
		at     time.Duration
		size   int
		failed map[int]error
		want   []string // beginnings
	}{
		{0, 4, map[int]error{4: slow}, []string{"1 of 4 hosts failed:", "  timeout (1)", "    gpu-04: no answer within 10s", "    next: "}},
		{time.Minute, 4, map[int]error{4: slow}, nil},
		{2 * time.Minute, 4, map[int]error{1: down(1), 2: down(2), 4: slow}, []string{"Lost: gpu-[01-02]: no route to … (2 hosts); 1 of 4 hosts answer", nextDown}},
		{3 * time.Minute, 4, map[int]error{1: down(1), 2: down(2), 4: slow}, nil},
		{4 * time.Minute, 4, map[int]error{1: slow, 2: down(2), 4: slow}, []string{"Still lost: gpu-01: no answer within 10s; 1 of 4 hosts answer", nextSlow}},
		{5 * time.Minute, 4, map[int]error{2: down(2), 4: slow}, []string{"Back after 3m: gpu-01; 2 of 4 hosts answer"}},
		{6 * time.Minute, 4, map[int]error{1: errors.New("x"), 4: slow}, []string{"Back after 4m: gpu-02; 2 of 4 hosts answer", "Lost: gpu-01: x", "next: read the output"}},
		{7 * time.Minute, 4, nil, []string{"Back after at least 7m: gpu-04; all hosts answer", "Back after 1m: gpu-01"}},
		{8 * time.Minute, 4, map[int]error{3: down(3)}, []string{"Lost: gpu-03: no route to gpu-03; 3 of 4 hosts answer"}},
		{9 * time.Minute, 2, nil, nil}, // a reload took it away
		{10 * time.Minute, 4, nil, nil},
		{26 * time.Hour, 4, map[int]error{3: down(3)}, []string{"Lost: gpu-03: no route to gpu-03; 3 of 4 hosts answer", nextDown}},
	} {
		got := l.Look(clusterOf(step.size, step.failed), begin.Add(step.at))
		require.Len(t, got, len(step.want), "%s: %q", step.at, got)
		for i := range got {
			require.True(t, strings.HasPrefix(got[i], step.want[i]), "%s: %q", step.at, got[i])
		}
	}
	require.Equal(t, 6, l.Lost)
	require.Equal(t, 4, l.Back)
}

// TestUnsteadyHost: one that is lost and back all the time is said once, and again when it
// stays as it is: back, or lost.
func TestUnsteadyHost(t *testing.T) {
	for _, stays := range []string{"back", "lost"} {
		t.Run(stays, func(t *testing.T) {
			var l HostLog
			now := time.Unix(1_800_000_000, 0)
			look := func(lost bool) []string {
				now = now.Add(time.Minute)
				failed := map[int]error{}
				if lost {
					failed[1] = remote.Errorf(remote.Unreachable, "no route")
				}
				return l.Look(clusterOf(2, failed), now)
			}
			var said []string
			look(false)
			for range 100 {
				said = append(said, look(true)...)
				said = append(said, look(false)...)
			}
			require.Equal(t, []string{
				"Lost: gpu-01: no route; 1 of 2 hosts answer", "next: " + remote.Unreachable.NextStep(), "Back after 1m: gpu-01; all hosts answer",
				"Lost: gpu-01: no route; 1 of 2 hosts answer", "Back after 1m: gpu-01; all hosts answer",
				"Unsteady (lost 3 times within 1h; reported again after 1h without a change): gpu-01: no route; 1 of 2 hosts answer",
			}, said)
			said = nil
			for range 200 {
				said = append(said, look(stays == "lost")...)
			}
			if stays == "lost" {
				require.Equal(t, []string{"Still lost: gpu-01: no route; 1 of 2 hosts answer"}, said)
				require.Equal(t, []string{"Back after 3h20m: gpu-01; all hosts answer"}, look(false))
				return
			}
			require.Equal(t, []string{"Steady again for 1h: gpu-01; all hosts answer"}, said)
			require.Equal(t, "Lost: gpu-01: no route; 1 of 2 hosts answer", look(true)[0])
		})
	}
}

// TestAHostilesError: what a host prints stays on its line, and makes no escape sequence.
func TestAHostilesError(t *testing.T) {
	var l HostLog
	now := time.Unix(1_800_000_000, 0)
	l.Look(clusterOf(2, nil), now)
	for _, line := range l.Look(clusterOf(2, map[int]error{1: remote.Errorf(remote.CommandFailed, "x\n[good] Terminating\x1b[2J")}), now) {
		require.NotContains(t, line, "\n")
		require.NotContains(t, line, "\x1b")
	}
}

// TestFailuresOfAThousandHosts: hosts that fail in five ways are about as many causes.
func TestFailuresOfAThousandHosts(t *testing.T) {
	classes := []remote.Class{remote.Unreachable, remote.Timeout, remote.Sudo, remote.Auth, remote.GenvMissing}
	var failures []remote.Failure
	for i := range 1000 {
		class := classes[i*i%7%5]
		failures = append(failures, remote.FailureOf(fmt.Sprintf("gpu-%04d.lab", i), remote.Errorf(class, "gpu-%04d.lab: %s of 10.0.%d.%d after %dms", i, class, i/250, i%250, i)))
	}
	var b strings.Builder
	WriteFailures(&b, failures, 1200)
	require.LessOrEqual(t, strings.Count(b.String(), "\n"), 16, b.String())
	require.Contains(t, b.String(), "1000 of 1200 hosts failed:\n")
	for line := range strings.Lines(b.String()) {
		require.Less(t, len(line), 500)
	}

	failures = failures[:0]
	for i := range 1000 { // a thousand causes, and next steps
		f := remote.Failure{Host: fmt.Sprint("h", i), Class: remote.CommandFailed, Error: strings.Repeat("x", i), NextStep: fmt.Sprint("step ", i)}
		failures = append(failures, f)
	}
	b.Reset()
	WriteFailures(&b, failures, 1000)
	require.Equal(t, 2+maxCauses+1+maxSteps+1, strings.Count(b.String(), "\n"), b.String())
	require.Contains(t, b.String(), "… and 992 hosts with other errors; --format json has them all\n")
	b.Reset()
	WriteFailures(&b, nil, 3)
	require.Empty(t, b.String())
}

// TestDated: each line has its time, whatever is written at a time.
func TestDated(t *testing.T) {
	at := time.Date(2026, 11, 20, 2, 14, 7, 0, time.Local)
	var b strings.Builder
	w := NewDated(&b, func() time.Time { return at })
	for _, s := range []string{"", "a\nb\n", "half", " a line\n", "\n"} {
		require.Equal(t, len(s), proctest.Try(fmt.Fprint(w, s)).OK(t))
		at = at.Add(time.Second)
	}
	require.Equal(t, "2026-11-20 02:14:08 a\n2026-11-20 02:14:08 b\n2026-11-20 02:14:09 half a line\n2026-11-20 02:14:11 \n", b.String())
}

// TestDatedLog: the journal of systemd dates lines itself, and $JOURNAL_STREAM says which file it is.
func TestDatedLog(t *testing.T) {
	at := func() time.Time { return time.Date(2026, 11, 20, 2, 14, 7, 0, time.Local) }
	for stream, want := range map[string]string{"%d:%d": "line\n", "%d:1%d": "2026-11-20 02:14:07 line\n", "": "2026-11-20 02:14:07 line\n"} {
		f := proctest.Try(os.Create(filepath.Join(t.TempDir(), "journal"))).OK(t)
		defer f.Close()
		var st syscall.Stat_t
		require.NoError(t, syscall.Stat(f.Name(), &st))
		if stream != "" {
			stream = fmt.Sprintf(stream, st.Dev, st.Ino)
		}
		proctest.Try(fmt.Fprintln(DatedLog(f, at, func(string) string { return stream }), "line")).OK(t)
		require.Equal(t, want, proctest.ReadText(t, f.Name()))
	}
}
