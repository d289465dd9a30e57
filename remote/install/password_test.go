package install_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/install"
	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// given counts the commands with a secret on their stdin, by host.
type given struct {
	remote.Runner
	t      *testing.T
	secret string
	mu     sync.Mutex
	count  map[string]int
}

func (g *given) Run(ctx context.Context, h remote.Host, command remote.Command) (remote.Output, error) {
	require.NotContains(g.t, command.ShellLine(), g.secret)
	if bytes.Contains(command.Stdin, []byte(g.secret)) {
		g.mu.Lock()
		g.count[h.Name]++
		g.mu.Unlock()
	}
	return g.Runner.Run(ctx, h, command)
}

func password(t *testing.T, secret string) *install.Password {
	return proctest.Try(install.NewPassword([]byte(secret))).OK(t)
}

// TestPassword: over real sudo. It is given to hosts where sudo wants one, and after one has refused it to no other.
func TestPassword(t *testing.T) {
	t.Parallel()
	f := startFleet(t, sshd.HostOptions{Name: "a", Rights: sshd.NeedsPassword}, sshd.HostOptions{Name: "b", Rights: sshd.NeedsPassword},
		sshd.HostOptions{Name: "gpu-01"})
	current := genv(t, "v2")
	hosts := []remote.Host{{Name: "a"}, {Name: "b"}}

	t.Run("none", func(t *testing.T) {
		_, err := f.installer(current).Install(t.Context(), hosts[0])
		require.Equal(t, remote.Sudo, remote.ClassOf(err))
		require.Contains(t, remote.NextStepOf(err), "--ask-sudo-password")
	})
	t.Run("wrong", func(t *testing.T) {
		i := f.installer(current)
		i.Password = password(t, "wrong-secret")
		g := &given{Runner: f.client, t: t, secret: "wrong-secret", count: map[string]int{}}
		i.Runner = g
		results := remote.Each(t.Context(), hosts, 2, i.Install)
		require.Len(t, g.count, 1, "one host is given it")
		classes := []remote.Class{remote.ClassOf(results[0].Err), remote.ClassOf(results[1].Err)}
		require.ElementsMatch(t, []remote.Class{remote.Sudo, remote.Cancelled}, classes)
		for _, r := range results {
			require.Equal(t, min(1, g.count[r.Host.Name]), g.count[r.Host.Name], "once")
			require.Contains(t, remote.NextStepOf(r.Err), "the right password")
			require.ErrorContains(t, r.Err, "refused the password")
		}
		require.NoFileExists(t, f.place())
	})
	t.Run("right", func(t *testing.T) {
		i := f.installer(current)
		i.Password = password(t, sshd.Password)
		g := &given{Runner: f.client, t: t, secret: sshd.Password, count: map[string]int{}}
		i.Runner = changed{g, atStep("run", `cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | grep -c "[c]orrect horse" >`+f.Dir+`/seen`)}
		for _, h := range append(hosts, host) {
			done(t, i.Install, h)
		}
		seen := proctest.ReadFile(t, filepath.Join(f.Dir, "seen"))
		require.Equal(t, "0\n", string(seen), "no process has it in its arguments or variables")
		require.Zero(t, g.count["gpu-01"], "sudo wants none there")
		require.NotZero(t, g.count["b"])
		content := proctest.ReadFile(t, filepath.Join(f.SudoersFolder(), remote.SudoersFile))
		require.Equal(t, onhost.Sudoers(remote.DefaultGenv, f.sudoPath(), string(sshd.NeedsPassword), string(sshd.MaySudo)), string(content))
		f.requireWorking(current)
		i.Password.Wipe()
		require.ErrorContains(t, proctest.Try(i.Uninstall(t.Context(), hosts[0])).Err, "refused the password", "it is wiped")
	})
}

// TestSudoTakesThePassword: also where sudo remembers that the login gave it, so that it is
// on the stdin of no other program, which sudo may be configured to log.
func TestSudoTakesThePassword(t *testing.T) {
	t.Parallel()
	f := startFleet(t, sshd.HostOptions{Name: "a", Rights: sshd.NeedsPassword})
	sudoers := proctest.Try(os.OpenFile(filepath.Join(f.Dir, "etc", "sudoers"), os.O_WRONLY|os.O_APPEND, 0)).OK(t)
	proctest.Try(sudoers.WriteString("Defaults timestamp_type=global\n")).OK(t)
	require.NoError(t, sudoers.Close())
	seen := filepath.Join(f.Dir, "stdin")
	i := f.installer(genv(t, "v2"))
	i.Password = password(t, sshd.Password)
	i.Runner = changed{f.client, func(c *remote.Command) {
		if last := len(c.Args) - 1; bytes.Contains(c.Stdin, []byte(sshd.Password)) {
			c.Args[last] = "tee -a " + seen + " | sh -c '" + c.Args[last] + "'"
		}
	}}
	done(t, i.Install, remote.Host{Name: "a"})
	data, _, _ := strings.Cut(string(proctest.ReadFile(t, seen)), "\x7fELF")
	require.NotContains(t, data, sshd.Password)
	require.Contains(t, data, "step begin")
}

// TestPasswordsThatSudoCannotTake are refused before any host is asked.
func TestPasswordsThatSudoCannotTake(t *testing.T) {
	for _, secret := range []string{"", "a\nb", "a\x00"} {
		_, err := install.NewPassword([]byte(secret))
		require.Error(t, err)
	}
}

// TestAHostThatReportsThePassword: it is not in what an installation says about the host, nor in an error.
func TestAHostThatReportsThePassword(t *testing.T) {
	const secret = "top-secret"
	login := strings.Replace(honestLogin, "uid 0", "uid 7", 1)
	note := strings.Replace(honestAnswer, `"result"`, `"notes":["`+secret+`","top\u002dsecret"],"result"`, 1)
	for name, answers := range map[string][]string{
		"as a note":  {login, "", "genv-password-accepted\n", honestRoot, note},
		"refused":    {login, "", "wrong: " + secret},
		"as a cause": {login, "", "genv-password-accepted\n", honestRoot, "TOKEN why " + secret + "\nTOKEN failed write\n"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &liar{answers: answers, refusesSudo: true, fails: name == "refused"}
			i := &install.Installer{Runner: l, Programs: small(), Password: password(t, secret)}
			i.Options.Check = true
			outcome, err := i.Install(t.Context(), host)
			text := fmt.Sprintf("%v %+v", err, outcome)
			if e, ok := errors.AsType[*remote.Error](err); ok {
				text += e.Stderr
			}
			require.NotContains(t, text, secret)
			require.Contains(t, text, "********")
		})
	}
}
