package nss_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// directory answers for accounts and groups, and counts how often.
type directory struct {
	accounts map[string]string // their gids
	groups   map[string]string // their lines
	broken   bool
	dead     bool // answers nothing
	asked    atomic.Int64
}

func (d *directory) ask(ctx context.Context, program string, args ...string) ([]byte, error) {
	d.asked.Add(1)
	if d.dead {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	answers := d.accounts
	if program == "getent" {
		answers = d.groups
	}
	answer, known := answers[args[len(args)-1]]
	if !known || d.broken {
		return nil, errors.New("exit status 2")
	}
	return []byte(answer), nil
}

// members are those of the directory, asked without a wait.
func (d *directory) members() *nss.GroupMembers {
	g := nss.NewGroups(time.Now)
	g.Ask, g.Ready = d.ask, ready
	return g
}

func ready(context.Context) error { return nil }

// bobInNLP is a directory in which bob is in the group nlp.
func bobInNLP() *directory {
	return &directory{accounts: map[string]string{"bob": "2001"}, groups: map[string]string{"nlp": "nlp:x:2001:"}}
}

func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{
			accounts: map[string]string{"bob": "100 2001\n", `LAB\eve smith`: "100\n", "carol@lab": "2001\n"},
			groups:   map[string]string{"nlp": "nlp:x:2001:" + strings.Repeat("somebody,", 10000) + "\n", "empty": "empty:x:2002:\n"},
		}
		g := d.members()
		is := func(user, group string) string {
			member, known := g.Member(user, group)
			return map[[2]bool]string{{true, true}: "yes", {false, true}: "no", {false, false}: "unknown"}[[2]bool{member, known}]
		}
		all := func() []string {
			return []string{is("bob", "nlp"), is("bob", "empty"), is(`LAB\eve smith`, "nlp"), is("carol@lab", "nlp"), is("who", "nlp"), is("bob", "missing")}
		}
		require.Equal(t, []string{"unknown", "unknown", "unknown", "unknown", "unknown", "unknown"}, all(), "nothing was asked yet")
		require.Zero(t, d.asked.Load(), "a loop never waits")
		g.Refresh(t.Context())
		known := []string{"yes", "no", "no", "yes", "unknown", "unknown"}
		require.Equal(t, known, all())

		asked := d.asked.Load()
		g.Refresh(t.Context())
		require.Equal(t, asked, d.asked.Load(), "within five minutes nothing is asked again")

		d.accounts["bob"] = "100\n" // he left the group
		time.Sleep(5 * time.Minute)
		g.Refresh(t.Context())
		require.Equal(t, known, all(), "one answer changes nothing")
		time.Sleep(5 * time.Minute)
		g.Refresh(t.Context())
		require.Equal(t, "no", is("bob", "nlp"), "two that agree do")

		delete(d.groups, "empty")
		d.accounts["bob"] = "2001\n"
		for range 14 {
			time.Sleep(5 * time.Minute)
			g.Refresh(t.Context())
		}
		require.Equal(t, "yes", all()[0], "a group that went, and that no policy names any more, keeps no answer back")
		d.broken = true
		time.Sleep(23 * time.Hour)
		g.Refresh(t.Context())
		require.Equal(t, "yes", is("carol@lab", "nlp"), "what is known is kept for a day")
		time.Sleep(2 * time.Hour)
		require.Equal(t, "unknown", is("carol@lab", "nlp"))
		d.broken = false
		g.Refresh(t.Context())
		require.Equal(t, "yes", is("carol@lab", "nlp"))
	})
}

// A flapping directory changes nothing.
func TestGroupsThatFlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := bobInNLP()
		g := d.members()
		g.Member("bob", "nlp")
		for i := range 20 {
			g.Refresh(t.Context())
			member, known := g.Member("bob", "nlp")
			require.True(t, member && known, "answer %d", i)
			time.Sleep(5 * time.Minute)
			d.accounts["bob"] = []string{"2001", "100"}[(i+1)%2]
		}
	})
}

// A directory that is dead costs a single cycle five seconds in all, and a loop nothing.
func TestDeadDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := (&directory{dead: true}).members()
		g.Wait = 5 * time.Second
		begun := time.Now()
		for _, user := range strings.Fields("a b c d e f g h") {
			_, known := g.Member(user, "nlp")
			require.False(t, known)
		}
		require.LessOrEqual(t, time.Since(begun), 6*time.Second)
	})
}

// The people whom the snapshots of a single cycle show are asked for side by side.
func TestGroupsOfManyPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := nss.NewGroups(time.Now)
		g.Wait, g.Ready = 5*time.Second, ready
		g.Ask = func(_ context.Context, program string, _ ...string) ([]byte, error) {
			time.Sleep(50 * time.Millisecond)
			return []byte(map[string]string{"getent": "nlp:x:2001:", "id": "2001"}[program]), nil
		}
		user := func(i int) string { return "user" + strconv.Itoa(i) }
		for i := range 500 {
			g.Want(user(i))
		}
		begun := time.Now()
		for i := range 500 {
			member, known := g.Member(user(i), "nlp")
			require.True(t, member && known)
		}
		require.Less(t, time.Since(begun), 5*time.Second)
	})
}

// At most 10,000 people are kept in mind. Those about whom no one asked for a day make room.
func TestGroupsForgetPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := bobInNLP().members()
		for i := range 10_000 {
			g.Want("somebody" + strconv.Itoa(i))
		}
		known := func() bool {
			g.Member("bob", "nlp")
			g.Refresh(t.Context())
			_, known := g.Member("bob", "nlp")
			return known
		}
		require.False(t, known())
		time.Sleep(25 * time.Hour)
		g.Refresh(t.Context())
		require.True(t, known())
	})
}

// The programs of this machine answer as is read here.
func TestGroupsOfThisMachine(t *testing.T) {
	g := nss.NewGroups(time.Now)
	g.Wait = 5 * time.Second
	member, known := g.Member("root", "root")
	require.True(t, member && known)
	member, known = g.Member("root", "nogroup")
	require.Equal(t, [2]bool{false, true}, [2]bool{member, known})
	_, known = g.Member("there is no such account", "root")
	require.False(t, known)
}

// Names that no directory knows, of which users of shared folders can make up many, keep no person from being asked for.
func TestGroupsOfMadeUpNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := bobInNLP().members()
		for i := range 12_000 {
			g.Want("madeup" + strconv.Itoa(i))
		}
		g.Refresh(t.Context())
		g.Member("bob", "nlp")
		g.Refresh(t.Context())
		member, known := g.Member("bob", "nlp")
		require.True(t, member && known)
	})
}

// extrausers is where libnss-extrausers has its files.
const extrausers = "/var/lib/extrausers"

func writeExtra(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(extrausers, name), []byte(text), 0o644))
}

// inExtrausers runs a test where only that test sees the accounts of a directory, which libnss-extrausers stands for.
func inExtrausers(t *testing.T) bool {
	t.Helper()
	_, err := os.Stat("/usr/lib/libnss_extrausers.so.2")
	proctest.Need(t, err == nil, "libnss-extrausers: `make test` as root installs it on Debian")
	if !proctest.InEtc(t, map[string]string{"nsswitch.conf": "passwd: files extrausers\ngroup: files extrausers\n"}) {
		return false
	}
	require.NoError(t, unix.Mount("tmpfs", extrausers, "tmpfs", 0, ""))
	writeExtra(t, "passwd", "bob:x:70001:70100::/:/bin/sh\nLAB\\eve smith:x:70002:70001::/:/bin/sh\n"+
		"carol@lab:x:70003:70001::/:/bin/sh\n20231234:x:70004:70001::/:/bin/sh\n")
	writeExtra(t, "group", "nlp:x:70100:20231234\nown:x:70001:\nLAB\\domain users:x:70101:bob,LAB\\eve smith\n4711:x:70102:carol@lab\n"+
		"all:x:70103:"+strings.Repeat("somebody,", 10_000)+"carol@lab\n")
	return true
}

// memberships are what is known of users in groups, in a single cycle.
func memberships(g *nss.GroupMembers, pairs ...[2]string) (list []string) {
	for _, pair := range pairs {
		member, known := g.Member(pair[0], pair[1])
		list = append(list, map[bool]string{true: fmt.Sprint(member), false: "unknown"}[known])
	}
	return list
}

func TestGroupsOfARealDirectory(t *testing.T) {
	if !inExtrausers(t) {
		return
	}
	g := nss.NewGroups(time.Now)
	g.Wait = 30 * time.Second
	for _, row := range [][3]string{
		{"bob", "nlp", "true"}, // it is the primary group
		{"bob", `LAB\domain users`, "true"},
		{"bob", "all", "false"},
		{`LAB\eve smith`, `LAB\domain users`, "true"},
		{`LAB\eve smith`, "nlp", "false"},
		{"carol@lab", "4711", "unknown"}, // getent takes it for a gid
		{"carol@lab", "all", "true"},     // of 10,001 members
		{"20231234", "nlp", "true"},
		{"70001", "nlp", "unknown"}, // a uid
		{"+70001", "nlp", "unknown"},
		{"bob", "70100", "unknown"}, // a gid
		{"dave", "nlp", "unknown"},
		{"-x", "nlp", "unknown"},
		{"", "nlp", "unknown"},
		{"bob", "none", "unknown"},
		{"root", "nlp", "false"},
	} {
		require.Equal(t, []string{row[2]}, memberships(g, [2]string{row[0], row[1]}), "%s in %s", row[0], row[1])
	}
}

// TestGroupsOfADirectoryThatIsDown: `id -G` leaves its groups out, and exits with 0.
func TestGroupsOfADirectoryThatIsDown(t *testing.T) {
	if !inExtrausers(t) {
		return
	}
	asked := [][2]string{{"bob", "nlp"}, {"root", "root"}}
	for _, nsswitch := range []string{
		"passwd: files dead extrausers\ngroup: files extrausers\n",
		"passwd: files extrausers\ngroup: files extrausers dead\n",
		"passwd: files extrausers\ngroup: files extrausers\ninitgroups: files dead\n",
	} {
		require.NoError(t, os.WriteFile("/etc/nsswitch.conf", []byte(nsswitch), 0o644))
		g := nss.NewGroups(time.Now)
		g.Wait = 30 * time.Second
		require.Equal(t, []string{"unknown", "unknown"}, memberships(g, asked...), nsswitch)
	}
}

// TestGroupsWhileADirectoryFails: it is wrong about one person, then has no groups, then no accounts either, then hangs,
// since it reads its accounts from a FIFO that nothing is written to.
func TestGroupsWhileADirectoryFails(t *testing.T) {
	if !inExtrausers(t) {
		return
	}
	now := time.Now()
	g := nss.NewGroups(func() time.Time { return now })
	asked := [][2]string{{`LAB\eve smith`, `LAB\domain users`}, {"carol@lab", "all"}, {"dave", "nlp"}}
	memberships(g, asked...)
	for i, want := range []string{"true", "true", "false", "false", "false", "false"} { // whether carol is a member
		switch i {
		case 1:
			writeExtra(t, "group", strings.Replace(proctest.ReadText(t, extrausers+"/group"), "somebody,carol@lab", "somebody", 1))
		case 3:
			writeExtra(t, "group", "")
		case 5:
			writeExtra(t, "passwd", "")
		}
		g.Refresh(t.Context())
		require.Equal(t, []string{"true", want, "unknown"}, memberships(g, asked...), i)
		now = now.Add(6 * time.Minute)
	}
	require.NoError(t, os.Remove(extrausers+"/passwd"))
	require.NoError(t, unix.Mkfifo(extrausers+"/passwd", 0o644))
	now = now.Add(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	begun := time.Now()
	g.Refresh(ctx)
	require.Less(t, time.Since(begun), 20*time.Second)
	require.Equal(t, []string{"true", "false", "unknown"}, memberships(g, asked...))
}
