package history_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNothingToShow: people read that there is nothing, and programs only the empty output.
func TestNothingToShow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	show := func(args ...string) (out, errs string) {
		var o, e bytes.Buffer
		p := &command.Program{Out: &o, Err: &e, Now: time.Now, Getenv: func(string) string { return "" }}
		flags := new(history.Options)
		app := &cli.App{Flags: flags.Flags(), Action: func(c *cli.Context) error { return flags.Show(p, c, path, "") }}
		require.NoError(t, app.Run(append([]string{"history"}, args...)))
		return o.String(), e.String()
	}
	out, errs := show("--user", "bob")
	require.Empty(t, out, "no header of an empty table")
	require.Equal(t, "No action to show in "+path+"\n", errs)
	for _, args := range [][]string{{"--no-header"}, {"--format", "csv"}, {"--format", "json"}} {
		_, errs = show(args...)
		require.Empty(t, errs, args)
	}
}

// TestTheLogOfAnotherAccount: what root's account recorded is read with sudo, or by its group where that may.
func TestTheLogOfAnotherAccount(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Dir(dir), dir} {
		require.NoError(t, os.Chmod(path, 0o755))
	}
	closed, log := filepath.Join(dir, "closed"), filepath.Join(dir, "try.jsonl")
	require.NoError(t, os.Mkdir(closed, 0))
	require.NoError(t, os.WriteFile(log, nil, 0))
	answers := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		const nobody = 65534   // root may read everything; another user stays who it is
		_, _, _ = syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody)
		for _, path := range []string{log, filepath.Join(closed, "log")} {
			_, err := showLog(path)
			answers <- err
		}
	}()
	require.EqualError(t, <-answers, "the log "+log+": permission denied; run it with sudo")
	require.ErrorContains(t, <-answers, "permission denied; run it with sudo, or as a member of the group genv")
}

// TestTheContainerIsNamed: where the findings don't.
func TestTheContainerIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const web = "container web (lab:1), started by bob"
	for i, why := range []string{"User bob is using 2 devices", "Process 2 is not running in a GPU environment (user bob, " + web + ")", "User bob has 2 environments"} {
		r := audit.Record{Kind: audit.KindOrder, Order: "r", PID: snapshot.PID(i + 1), Why: []string{why}, Container: web}
		if i == 2 {
			r.Container = ""
		}
		require.NoError(t, (&audit.Log{Path: path}).Append(r))
	}
	show := func(format string) string {
		var out bytes.Buffer
		p := &command.Program{Out: &out, Now: time.Now, Getenv: func(string) string { return "" }}
		o := new(history.Options)
		app := &cli.App{Flags: o.Flags(), Action: func(c *cli.Context) error { return o.Show(p, c, path, "") }}
		require.NoError(t, app.Run([]string{"history", "--format", format}))
		return out.String()
	}
	table := show("tui")
	require.Contains(t, table, "User bob is using 2 devices ("+web+")")
	require.Contains(t, table, "has 2 environments (genv ended")
	require.Equal(t, 2, strings.Count(table, web), table)
	require.Equal(t, 2, strings.Count(show("json"), `"container":"`+web+`"`)+strings.Count(show("json"), `"container": "`+web+`"`))
}

// showLog runs `genv remote history` on a log, and returns all that it prints.
func showLog(path string, args ...string) (string, error) {
	var out bytes.Buffer
	p := &command.Program{Out: &out, Err: &out, Now: time.Now, Getenv: func(string) string { return "" }}
	o := new(history.Options)
	app := &cli.App{Flags: o.ControllerFlags(), Action: func(c *cli.Context) error { return o.ShowController(p, c) }}
	err := app.Run(append([]string{"history", "--audit-log", path}, args...))
	return out.String(), err
}

// TestStats: a row for each user and rule, with names escaped, and the total for people.
func TestStats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	done := func(user snapshot.Username, pid snapshot.PID, rule string) audit.Record {
		return audit.Record{Kind: audit.KindOutcome, Order: "r", User: user, PID: pid, IDs: []string{rule + "/x"}, Status: order.StatusTerminated}
	}
	require.NoError(t, (&audit.Log{Path: path}).Append(done("bob", 1, "idle"), done("bob", 2, "env-devices"), done("eve\x1b[2J", 3, "idle")))
	show := func(args ...string) string {
		return proctest.Try(showLog(path, args...)).OK(t)
	}
	require.Equal(t, `USER        RULE                  WARNED  TERMINATED  DETACHED  EXEMPTED  REFUSED  FAILED
bob         env-devices           0       1           0         0         0        0
bob         idle                  0       1           0         0         0        0
eve\x1b[2J  idle                  0       1           0         0         0        0
(all)       (all)                 0       3           0         0         0        0
`, show("--stats"))
	require.Equal(t, "bob,env-devices,0,1,0,0,0,0,0,0\n", show("--stats", "--rule", "env-devices", "--format", "csv", "--no-header"))
	counts := `"warned":0,"terminated":1,"detached":0,"exempted":0,"refused":0,"failed":0}`
	require.JSONEq(t, `{"schema":"genv.history.stats/1","rows":[{"user":"bob","rule":"idle",`+counts+`],"total":{`+counts+`}`, show("--stats", "--user", "bob", "--rule", "idle", "--format", "json"))
	for flags, text := range map[string]string{"--until=soon": `--until "soon"`, "--pid=-1": "--pid -1", "--since=1h --until=2h": "is not before --until"} {
		require.ErrorContains(t, proctest.Try(showLog(path, strings.Fields(flags)...)).Err, text)
	}
}

// TestADryRun: what it would have done is shown as such, and counted apart from what was done.
func TestADryRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	finding := &enforce.Finding{ID: "idle/a/7", Terminate: []enforce.ProcessRef{{Host: "a", PID: 5}}, Detach: []enforce.DeviceRef{{Host: "a", Index: 0, EID: "7"}}}
	require.NoError(t, (&audit.Log{Path: path}).Append(audit.Record{
		Kind: audit.KindFinding, Decision: enforce.DecisionDryRun, IDs: []string{finding.ID}, User: "bob", Text: "Environment 7 is idle", Finding: finding,
	}))
	show := func(args ...string) string {
		return proctest.Try(showLog(path, args...)).OK(t)
	}
	require.Equal(t, `USER      RULE                  WARNED  TERMINATED  DETACHED  EXEMPTED  REFUSED  FAILED  WOULD-TERMINATE  WOULD-DETACH
bob       idle                  0       0           0         0         0        0       1                1
`, show("--stats"))
	require.Contains(t, show("--stats", "--format", "json"), `"would_terminate":1,"would_detach":1`)
	lines := strings.Split(show("--no-header", "--notices"), "\n")
	require.Regexp(t, `bob +process 5 +dry-run +[0-9a-f]{8} +Environment 7 is idle$`, lines[0])
	require.Regexp(t, `bob +GPU 0 of 7 +dry-run +[0-9a-f]{8} +Environment 7 is idle$`, lines[1])
	require.NotContains(t, show("--no-header"), "bob", "nothing was done")
}

// TestWhy: the last action, or the decision that is named.
func TestWhy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	show := func(args ...string) (string, error) {
		var out bytes.Buffer
		p := &command.Program{Out: &out, Err: &out, Now: time.Now, Getenv: func(string) string { return "" }}
		o := new(history.Options)
		app := &cli.App{Flags: o.WhyFlags(), Action: func(c *cli.Context) error { return o.Why(p, c, path) }}
		err := app.Run(append([]string{"why"}, args...))
		return out.String(), err
	}
	out := proctest.Try(show()).OK(t)
	require.Equal(t, "No action on this host is recorded in "+path+", and no warning runs here\n", out)
	item := audit.Record{Time: time.Now(), Kind: audit.KindOrder, Order: "r", PID: 7, IDs: []string{"non-env-processes/a/7"}, Text: "Terminating process 7 from environment N/A that is running on GPU(s) 0", Why: []string{"x\x1b[2J"}, Judged: []string{"process 7\x1b[2J"}}
	require.NoError(t, (&audit.Log{Path: path}).Append(item))
	out = proctest.Try(show()).OK(t)
	require.Regexp(t, `^What       Terminating process 7 in no environment that is running on GPU\(s\) 0\nOutcome    unknown: .*\nBecause    x\\x1b\[2J\nWhat to do End it, and start it in an environment.*\nTime .*\nDecision   [0-9a-f]{8}\n$`, out)
	out = proctest.Try(show("-v")).OK(t)
	require.Regexp(t, `^Decision   [0-9a-f]{8}\nTime .*\nWhat       Terminating process 7 from environment N/A that is running on GPU\(s\) 0\nOutcome    unknown: .*\nBecause    x\\x1b\[2J\nJudged     process 7\\x1b\[2J\n$`, out)
	named := proctest.Try(show("-v", out[11:19])).OK(t)
	require.Equal(t, out, named)
	out = proctest.Try(show("--format", "csv", "--no-header", named[11:19])).OK(t)
	require.Regexp(t, named[11:19]+`\n$`, out)
	for id, says := range map[string]string{"7": `"7" is not the id of a decision`, "00000000": "no decision 00000000 is recorded"} {
		require.ErrorContains(t, proctest.Try(show(id)).Err, says)
	}
}
