package nss_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

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

// TestGroupsWhileADirectoryHangs: it reads its accounts from a FIFO that nothing is written to.
func TestGroupsWhileADirectoryHangs(t *testing.T) {
	if !inExtrausers(t) {
		return
	}
	now := time.Now()
	g := nss.NewGroups(func() time.Time { return now })
	g.Member("bob", "nlp")
	g.Refresh(t.Context())
	require.Equal(t, []string{"true"}, memberships(g, [2]string{"bob", "nlp"}))
	require.NoError(t, os.Remove(extrausers+"/passwd"))
	require.NoError(t, unix.Mkfifo(extrausers+"/passwd", 0o644))
	now = now.Add(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	g.Want("carol@lab", "dave")
	begun := time.Now()
	g.Refresh(ctx)
	require.Less(t, time.Since(begun), 20*time.Second)
	require.Equal(t, []string{"true", "unknown"}, memberships(g, [2]string{"bob", "nlp"}, [2]string{"carol@lab", "nlp"}))
}
