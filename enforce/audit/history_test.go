package audit_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// recorded is a log with records.
func recorded(t *testing.T, records ...audit.Record) (path string) {
	path = filepath.Join(t.TempDir(), "audit.jsonl")
	require.NoError(t, (&audit.Log{Path: path}).Append(records...))
	return path
}

func history(t *testing.T, path string, filter audit.Filter) []audit.HistoryEntry {
	entries, _, err := audit.History(path, filter)
	require.NoError(t, err)
	return entries
}

// story is a log in which bob loses a process and a device, and alice's process has an unknown fate.
func story(t *testing.T) string {
	alice, bob, device := new(snapshot.UID(1001)), new(snapshot.UID(1002)), new(snapshot.DeviceIndex(0))
	why := []string{"User bob is using 2 devices"}
	return recorded(t,
		audit.Record{Time: at(0), Kind: audit.KindFinding, IDs: []string{"cap"}, Text: why[0], Decision: enforce.DecisionWait},
		audit.Record{Time: at(1), Kind: audit.KindNotified, IDs: []string{"cap"}, Host: "a", UID: bob},
		audit.Record{Time: at(2), Kind: audit.KindNotified, IDs: []string{"out"}, Host: "a", UID: alice, Reason: "not logged in"},
		audit.Record{Time: at(5), Kind: audit.KindOrder, Order: "r/1/a", IDs: []string{"cap"}, Why: why, Host: "a", User: "bob", UID: bob, EID: "10", Device: device},
		audit.Record{Time: at(5), Kind: audit.KindOrder, Order: "r/1/a", IDs: []string{"cap"}, Why: why, Host: "a", User: "bob", UID: bob, EID: "10", PID: 5},
		audit.Record{Time: at(5), Kind: audit.KindOrder, Order: "r/1/b", IDs: []string{"out"}, Why: []string{"outside"}, Host: "b", UID: alice, PID: 5},
		audit.Record{Time: at(6), Kind: audit.KindOutcome, Order: "r/1/a", IDs: []string{"cap"}, Host: "a", User: "bob", UID: bob, EID: "10", Device: device, Status: order.StatusDetached},
		audit.Record{Time: at(7), Kind: audit.KindOutcome, Order: "r/1/a", IDs: []string{"cap"}, Host: "a", User: "bob", UID: bob, EID: "10", PID: 5, Status: order.StatusTerminated},
	)
}

func TestHistoryJoins(t *testing.T) {
	entries := history(t, story(t), audit.Filter{})
	require.Len(t, entries, 3)
	require.Equal(t, order.StatusDetached, entries[0].Status)
	require.Equal(t, at(6), entries[0].Time)
	require.Equal(t, []string{"User bob is using 2 devices"}, entries[0].Why)
	require.Equal(t, at(1), entries[0].Notified)
	require.Equal(t, order.StatusTerminated, entries[1].Status)
	require.Equal(t, order.StatusUnknown, entries[2].Status, "the controller ended before it heard")
	require.Zero(t, entries[2].Notified, "the user could not be notified")
}

// TestLastNoticeBeforeTheAction: a host doesn't record that a finding is over, and says what it does right before it
// does it.
func TestLastNoticeBeforeTheAction(t *testing.T) {
	notice := func(minute int) audit.Record {
		return audit.Record{Time: at(minute), Kind: audit.KindNotified, IDs: []string{idle}, User: "bob"}
	}
	failed, atLogin := notice(50), notice(50)
	failed.Reason, atLogin.Channel = "not logged in", audit.ChannelLogin
	action := audit.Record{Time: at(100), Kind: audit.KindOrder, Order: "r/1/a", IDs: []string{idle}, User: "bob", PID: 5}
	outcome := action
	outcome.Time, outcome.Kind, outcome.Status = at(130), audit.KindOutcome, order.StatusTerminated
	cleared := audit.Record{Time: at(30), Kind: audit.KindCleared, IDs: []string{idle}}
	for name, tt := range map[string]struct {
		records []audit.Record
		want    time.Time
	}{
		"one":                           {[]audit.Record{notice(10), action, outcome}, at(10)},
		"one that is over, and another": {[]audit.Record{notice(10), notice(60), action, outcome}, at(60)},
		"one with the action":           {[]audit.Record{notice(10), notice(60), notice(100), action, outcome}, at(60)},
		"to two users":                  {[]audit.Record{notice(10), notice(60), notice(60), notice(100), notice(100), action, outcome}, at(60)},
		"no warning":                    {[]audit.Record{notice(100), action, outcome}, at(100)},
		"one that is recorded as over":  {[]audit.Record{notice(10), cleared, notice(100), action, outcome}, at(100)},
		"after the action":              {[]audit.Record{notice(10), action, notice(101), outcome, notice(140)}, at(10)},
		"after the action only":         {[]audit.Record{action, notice(101), outcome}, time.Time{}},
		"one that failed":               {[]audit.Record{notice(10), failed, action, outcome}, at(10)},
		"one for the next login":        {[]audit.Record{notice(10), atLogin, action, outcome}, at(10)},
		"over before the action":        {[]audit.Record{notice(10), cleared, action, outcome}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			entries := history(t, recorded(t, tt.records...), audit.Filter{})
			require.Len(t, entries, 1)
			require.Equal(t, tt.want, entries[0].Notified)
		})
	}
}

// TestHistoryHasDenials: those of a host say what was done, those of a controller don't.
func TestHistoryHasDenials(t *testing.T) {
	bob, device := new(snapshot.UID(1002)), new(snapshot.DeviceIndex(3))
	entries := history(t, recorded(t,
		audit.Record{Time: at(1), Kind: audit.KindDenied, Host: "a", UID: bob, Device: device, Action: audit.ActionWouldDeny, Text: "one"},
		audit.Record{Time: at(2), Kind: audit.KindDenied, Host: "a", UID: bob, Device: device, Text: "two"},
		audit.Record{Time: at(3), Kind: audit.KindDenied, Host: "a", UID: new(snapshot.UID(7)), Device: device, Text: "three"},
	), audit.Filter{User: "1002"})
	require.Len(t, entries, 2)
	require.Equal(t, audit.ActionWouldDeny, entries[0].Action)
	require.Equal(t, audit.ActionDenied, entries[1].Action)
	require.Equal(t, []string{"two"}, entries[1].Why)
}

func TestHistoryFilter(t *testing.T) {
	path := story(t)
	for _, tt := range []struct {
		query audit.Filter
		want  int
	}{
		{audit.Filter{User: "bob"}, 2},
		{audit.Filter{User: "1001"}, 1},
		{audit.Filter{Host: "b"}, 1},
		{audit.Filter{PID: 5}, 2},
		{audit.Filter{PID: 5, Host: "a"}, 1},
		{audit.Filter{Since: at(7)}, 1},
		{audit.Filter{User: "carol"}, 0},
		{audit.Filter{PID: 6}, 0},
		{audit.Filter{Since: at(8)}, 0},
	} {
		require.Len(t, history(t, path, tt.query), tt.want, "%+v", tt.query)
	}
}

func TestUsersReadOnlyTheirOwnLog(t *testing.T) {
	proctest.NeedRoot(t) // for a log of others
	dir := proctest.PublicDir(t, 0o755)
	old := unix.Umask(0o077) // as root often has
	t.Cleanup(func() { unix.Umask(old) })
	path := filepath.Join(dir, "log", "audit.jsonl")
	for _, uid := range []snapshot.UID{60001, 60002} {
		err := audit.AppendHostLog(path, nss.Passwd{}, audit.Record{Time: at(0), Kind: audit.KindOutcome, UID: &uid, PID: 5})
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skipf("this file system has no access control lists: %v", err)
		}
		require.NoError(t, err)
	}
	cat := func(uid uint32, name string) (string, error) {
		cmd := exec.Command("/bin/cat", name)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 60009}}
		out, err := cmd.Output()
		return string(out), err
	}
	own := proctest.Try(cat(60001, audit.UserLogPath(path, 60001))).OK(t)
	require.Contains(t, own, `"uid":60001`)
	require.NotContains(t, own, `"uid":60002`)
	for _, name := range []string{path, audit.UserLogPath(path, 60002)} {
		_, err := cat(60001, name)
		var exit *exec.ExitError
		require.True(t, errors.As(err, &exit), name)
	}
	sh := exec.Command("/bin/sh", "-c", "echo forged >> "+audit.UserLogPath(path, 60001)+" || rm "+audit.UserLogPath(path, 60001))
	sh.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 60001, Gid: 60009}}
	require.Error(t, sh.Run(), "the user may only read it")
}

// FuzzScan: whatever a log contains, what comes out are records, and whole lines are counted.
func FuzzScan(f *testing.F) {
	line := proctest.Try(json.Marshal(audit.Record{Time: at(0), Kind: audit.KindOverLimit})).OK(f)
	f.Add(append(line, '\n'))
	f.Add([]byte("{\"kind\":\"held\"}\nnot json\n\n{}"))
	f.Add([]byte(strings.Repeat("x", 100_000)))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		lines := 0
		damage, err := audit.Scan(path, func(r *audit.Record) error {
			require.NotEmpty(t, r.Kind)
			lines++
			return nil
		})
		require.NoError(t, err)
		require.LessOrEqual(t, lines+damage.Lines, strings.Count(string(data), "\n")+1)
	})
}

// TestLatest: a warning that runs comes before actions that were earlier.
func TestLatest(t *testing.T) {
	now := at(10)
	warning := audit.HistoryEntry{Action: audit.ActionNotice, Time: now, Due: at(20), Text: "You have 3 GPUs.\nUnless this changes, in 10m process 4 will be ended.\nGive one back.", ID: "0a"}
	warning.IDs = []string{"x"}
	two := warning
	two.IDs = []string{"x", "y"}
	said := audit.HistoryEntry{Action: audit.ActionNotice, ID: "0d", IDs: []string{"x"}, Text: "It is exempt."}
	lost := said
	lost.Status = order.StatusFailed
	action, later := audit.HistoryEntry{Order: "r/1", ID: "0b"}, audit.HistoryEntry{Order: "r/2", ID: "0c"}
	later.IDs = warning.IDs
	another := audit.HistoryEntry{Order: "r/3", ID: "0e", IDs: []string{"z"}}
	over := warning
	over.Due = at(9)
	for name, row := range map[string]struct {
		list []audit.HistoryEntry
		want string
	}{
		"nothing": {nil, ""}, "an action": {[]audit.HistoryEntry{action}, "0b"}, "a warning": {[]audit.HistoryEntry{action, warning}, "0a"},
		"one that is over": {[]audit.HistoryEntry{action, over}, "0b"}, "an action after it": {[]audit.HistoryEntry{warning, later}, "0c"},
		"an action for something else": {[]audit.HistoryEntry{warning, action, another}, "0e0a"}, "one that was over then": {[]audit.HistoryEntry{over, another}, "0e"},
		"it is exempt by now": {[]audit.HistoryEntry{action, warning, said}, "0d"}, "it was, before": {[]audit.HistoryEntry{said, warning}, "0a"},
		"that didn't arrive": {[]audit.HistoryEntry{warning, lost}, "0a"}, "one of two is exempt": {[]audit.HistoryEntry{two, said}, "0a"},
		"another finding is exempt": {[]audit.HistoryEntry{warning, {Action: audit.ActionNotice, ID: "0d", IDs: []string{"y"}}}, "0a"},
		"another notice":            {[]audit.HistoryEntry{action, {Action: audit.ActionNotice}}, "0b"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, e := range audit.Latest(row.list, now) {
				got += e.ID
			}
			require.Equal(t, row.want, got)
		})
	}
	shown := warning.Answer(at(12))
	require.Equal(t, []string{"What       You have 3 GPUs.", "Follows    Unless this changes, in 10m process 4 will be ended."}, shown[1:3], "as it was said")
	require.Regexp(t, "^Warned     2026-11-20 ..:10:00 ", shown[0])
	require.Regexp(t, "^Due        2026-11-20 ..:20:00 .*, in 8m$", shown[3])
	require.Equal(t, "What to do Give one back.", shown[4])
	require.Regexp(t, "^Due        2026-11-20 ..:20:00 [^,]*$", warning.Answer(at(21))[3])

	two.Text = "You have 3 GPUs.\nIn 10m process 4 will be ended.\nIt is idle.\nIn 20m process 5 will be ended.\nEnd it."
	require.Equal(t, []string{"What       You have 3 GPUs.", "           In 10m process 4 will be ended.", "           It is idle.", "           In 20m process 5 will be ended.", "           End it."}, two.Answer(now)[:5])
	require.Contains(t, two.Answer(now)[5], "Due        ")
}

// TestLatestOfAHost: a warning that the controller said to be over is none any more; one about two findings is, once both
// are over.
func TestLatestOfAHost(t *testing.T) {
	warning := audit.Record{Time: at(1), Kind: audit.KindNotified, IDs: []string{idle}, Text: "It is idle.", Due: at(20)}
	both := warning
	both.IDs = []string{idle, outside}
	over := func(id string) audit.Record {
		return audit.Record{Time: at(2), Kind: audit.KindCleared, IDs: []string{id}}
	}
	for name, row := range map[string]struct {
		records []audit.Record
		want    int
	}{
		"it runs": {[]audit.Record{warning}, 1}, "it is over": {[]audit.Record{warning, over(idle)}, 0},
		"one of two is": {[]audit.Record{both, over(idle)}, 1}, "both are": {[]audit.Record{both, over(idle), over(outside)}, 0},
		"another is": {[]audit.Record{warning, over(outside)}, 1}, "it came again": {[]audit.Record{warning, over(idle), warning}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, audit.Latest(history(t, recorded(t, row.records...), audit.Filter{Notices: true}), at(10)), row.want)
		})
	}
}

// TestDecided: an action is found by its id, a warning by that of its finding, with what was
// done afterwards. The lines that were judged are kept once, and cut.
func TestDecided(t *testing.T) {
	item := audit.Record{
		Time: at(2), Kind: audit.KindOrder, Order: "r/1/a", IDs: []string{idle}, User: "bob", EID: "10", Device: new(snapshot.DeviceIndex(0)),
		Text: "Detaching", Judged: slices.Repeat([]string{strings.Repeat("x", 5000)}, 50),
	}
	notice := audit.Record{Time: at(1), Kind: audit.KindNotified, IDs: []string{idle}, User: "bob", Text: "It is idle.\nAdvice"}
	records := append([]audit.Record{notice, item}, audit.OutcomeRecords([]audit.Record{item}, []order.Outcome{{Status: order.StatusDetached}})...)
	path := recorded(t, records...)
	entries := history(t, path, audit.Filter{Notices: true})
	require.Len(t, entries, 2)
	action := audit.Decided(entries, audit.DecisionID("r/1/a", 0, "10", item.Device))
	require.Len(t, action, 1)
	require.Equal(t, audit.Latest(entries, time.Now()), action)
	require.Len(t, action[0].Judged, audit.MaxJudgedLines)
	require.Len(t, action[0].Judged[0], audit.MaxJudgedBytes)
	require.Equal(t, "Detaching", action[0].Text)
	require.Len(t, audit.Decided(entries, audit.WarningID(idle)), 2)
	require.Contains(t, entries[0].Lines(), "What       It is idle. Advice")
	require.Empty(t, audit.Decided(entries, "00000000"))
	require.Len(t, records[1].Judged, 50, "others see it whole")
	list, _ := read(t, path)
	require.Empty(t, list[2].Judged)
}

// A uid may be given to somebody else: what is recorded of a former account is for root alone then.
func TestALogOfAFormerAccount(t *testing.T) {
	proctest.NeedRoot(t)
	path := filepath.Join(t.TempDir(), "log", "audit.jsonl")
	uid, passwd := snapshot.UID(60001), filepath.Join(t.TempDir(), "passwd")
	record := func(pid snapshot.PID, accounts string) string {
		require.NoError(t, os.WriteFile(passwd, []byte(accounts), 0o600))
		noDirectory := func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("no directory") }
		err := audit.AppendHostLog(path, nss.Passwd{File: passwd, Getent: noDirectory}, audit.Record{Time: at(0), Kind: audit.KindOutcome, UID: &uid, PID: pid})
		require.NoError(t, err)
		kept := proctest.ReadFile(t, audit.UserLogPath(path, uid))
		return string(kept)
	}
	const alice, al, bob = "alice:x:60001:1::/:/bin/sh\n", "al:x:60001:1::/:/bin/sh\n", "bob:x:60001:1::/:/bin/sh\n"
	record(1, alice)
	require.Contains(t, record(2, al+alice), `"pid":1`, "a second name of the same person")
	require.Contains(t, record(3, al), `"pid":1`, "renamed, and known by the second name")
	require.Contains(t, record(4, ""), `"pid":1`, "it is unknown who has the uid")
	require.NotContains(t, record(5, bob), `"pid":1`)
	former := proctest.Try(filepath.Glob(filepath.Join(filepath.Dir(audit.UserLogPath(path, uid)), "former-*"))).OK(t)
	require.Len(t, former, 1)
	require.Equal(t, os.FileMode(0o700), proctest.Try(os.Stat(former[0])).OK(t).Mode().Perm())
	require.Contains(t, proctest.ReadText(t, filepath.Join(former[0], "60001.jsonl")), `"pid":4`)
}
