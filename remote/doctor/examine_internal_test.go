package doctor

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/sshclient/config"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// network is hosts that answer with what a function says.
type network struct {
	way       sshclient.Way
	wayErr    error
	connected bool
	login     time.Duration
	run       func(ctx context.Context, args []string) (string, error)
}

func (n *network) Way(context.Context, remote.Host) (sshclient.Way, error) { return n.way, n.wayErr }

func (n *network) Peer(remote.Host) (remote.Peer, bool) {
	return remote.Peer{Address: "10.0.0.7:22", HostKey: "SHA256:x"}, n.connected
}

func (n *network) LoginTook(remote.Host) time.Duration { return n.login }

func (n *network) Run(ctx context.Context, _ remote.Host, c remote.Command) (remote.Output, error) {
	out, err := n.run(ctx, c.Args)
	return remote.Output{Stdout: []byte(out)}, err
}

func direct() sshclient.Way {
	return sshclient.Way{Settings: config.HostConfig{HostName: "gpu-1", Port: 22}, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")}}
}

func examine(ctx context.Context, n *network, host remote.Host) HostReport {
	host.Name = "gpu-1"
	d := &Doctor{Client: n, Timeout: 2 * time.Second, Now: time.Now}
	return d.Examine(ctx, host)
}

// TestNoConnection: each way not to reach a host is named in the right check.
func TestNoConnection(t *testing.T) {
	jump := sshclient.Way{Settings: config.HostConfig{HostName: "gpu-1", ProxyJump: []string{"bastion"}}}
	for _, tt := range []struct {
		name         string
		way          sshclient.Way
		wayErr, err  error
		check        doctor.Name
		status       doctor.CheckStatus
		cause        doctor.Cause
		next         string
		nameIsNotYet bool
	}{
		{
			name: "bad configuration", wayErr: remote.Errorf(remote.Configuration, "x"), check: doctor.NameResolution,
			cause: "configuration", next: "--ssh-config", nameIsNotYet: true,
		},
		{name: "no route", err: remote.Errorf(remote.Unreachable, "x: %w", syscall.EHOSTUNREACH), check: doctor.TCP, cause: "no-route", next: "ip route"},
		{
			name: "packets lost", err: remote.Errorf(remote.Unreachable, "x: %w", context.DeadlineExceeded), check: doctor.TCP,
			cause: "no-answer", next: "firewall",
		},
		{
			name: "no SSH", err: remote.Errorf(remote.Unreachable, "what answers does not speak our SSH"), check: doctor.TCP,
			cause: "unreachable", next: "check that the host is up",
		},
		{
			name: "key file unusable", err: remote.Errorf(remote.Configuration, "id_x"), check: doctor.Login, cause: "configuration",
			next: "correct the named file",
		},
		{name: "stopped", err: remote.Errorf(remote.Cancelled, "x"), check: doctor.TCP, status: doctor.Skipped, cause: "cancelled", next: "again"},
		{
			name: "jump host refuses", way: jump, err: remote.Errorf(remote.Auth, "jump host bastion: no"), check: doctor.Login,
			cause: "auth", next: "ssh -v", nameIsNotYet: true,
		},
		{
			name: "behind a jump host", way: jump, err: remote.Errorf(remote.Unreachable, "no connection from jump host"), check: doctor.TCP,
			cause: "unreachable", next: "ssh HOST true", nameIsNotYet: true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &network{way: tt.way, wayErr: tt.wayErr, run: func(context.Context, []string) (string, error) { return "", tt.err }}
			if !tt.nameIsNotYet {
				n.way = direct()
			}
			h := examine(t.Context(), n, remote.Host{})
			c := h.Check(tt.check)
			require.Equal(t, cmp.Or(tt.status, doctor.Failed), c.Status, "%+v", h.Checks)
			require.Equal(t, tt.cause, c.Cause)
			require.Contains(t, c.NextStep, tt.next)
			require.NotNil(t, h.Failure)
			require.NotEqual(t, doctor.OK, h.Status, "unknown is not ok")
			require.Equal(t, doctor.Skipped, h.Check(doctor.Disk).Status)
			require.Equal(t, !tt.nameIsNotYet, h.Check(doctor.NameResolution).Status == doctor.OK)
		})
	}
	require.NotEqual(t, doctor.OK, NotBegun(remote.Host{Name: "x"}, errors.New("stopped")).Status)
}

// answering is a host whose survey has these sections; other commands print nothing.
func answering(sections ...string) *network {
	return &network{way: direct(), connected: true, run: func(_ context.Context, args []string) (string, error) {
		if len(args) > 4 && args[2] == surveyScript {
			out := "motd without an end"
			for _, s := range sections {
				out += "\n" + args[4] + " " + strings.ReplaceAll(s, "TOKEN", args[4])
			}
			return out, nil
		}
		if script, tries := strings.CutSuffix(args[2], remote.TrySudo); tries && len(sections) > 0 && strings.HasPrefix(sections[0], "sudo ") {
			return tried(strings.TrimSuffix(strings.TrimPrefix(script, "m="), "; "), sections[0]), nil
		}
		return "", remote.Errorf(remote.CommandFailed, "exit status 1")
	}}
}

// tried is what remote.TrySudo prints, of words such as "sudo lists allows=usage+serve".
func tried(token, words string) string {
	out := "motd\n" + token + " uid 1000\n" + token + " user admin\n"
	for _, word := range strings.Fields(words)[1:] {
		out += token + " " + strings.ReplaceAll(strings.Replace(word, "=", " ", 1), "+", " ") + "\n"
	}
	return out + token + " end\n"
}

// TestLoginName: echo of dash would take the \c of a name of winbind for the end of the output.
func TestLoginName(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "id"), []byte("#!/bin/sh\ncat <<'E'\nLAB\\carol\nE"), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for _, args := range [][]string{
		{"-c", surveyScript, "sh", "tok", "genv", "login"}, {"-c", "m=tok; " + remote.TrySudo, "sh", "genv", "login"},
	} {
		r, _ := remote.ParseReported(proctest.Try(exec.Command("sh", args...).Output()).OK(t), "tok")
		require.Equal(t, `LAB\carol`, r.Last("user"))
	}
}

// TestSlow: what is slow before the first answer is said.
func TestSlow(t *testing.T) {
	const who = "user admin\nTOKEN uid 1000\nTOKEN kernel 6.1.0\nTOKEN arch x86_64"
	n := answering("sudo genv=/g", who, "took 20", "version \truntime/mpageall fails", "end")
	n.login = 12 * time.Second
	h := examine(t.Context(), n, remote.Host{})
	sudo, login := h.Check(doctor.Sudo), h.Check(doctor.Login)
	require.EqualValues(t, "sudo-slow", sudo.Cause)
	require.Contains(t, sudo.Detail, "20s")
	require.EqualValues(t, "login-slow", login.Cause)
	require.Equal(t, "as admin (uid 1000), after 12s", login.Detail)
	require.Empty(t, h.Genv.Version, "a genv that crashes says none")

	n = answering("sudo genv=/g lists allows=usage+serve runs=usage+serve", who, "took 1", "version 2.0.1+x", "end")
	n.login = time.Second
	h = examine(t.Context(), n, remote.Host{})
	require.Equal(t, doctor.OK, h.Check(doctor.Login).Status)
	require.NotEqualValues(t, "sudo-slow", h.Check(doctor.Sudo).Cause)
	require.Equal(t, "2.0.1+x", h.Genv.Version)
}

func TestSudo(t *testing.T) {
	const (
		who  = "user admin\nTOKEN uid 1000\nTOKEN kernel 6.1.0"
		g    = "sudo genv=/usr/local/bin/genv "
		all  = g + "lists allows=usage+serve allows=usage+snapshot allows=usage+execute runs=usage+serve "
		most = g + "lists allows=usage+snapshot allows=usage+execute "
	)
	genv := "sudo 0 755 1:2 /usr/local/bin/genv\nTOKEN login 0 755 1:2 /usr/local/bin/genv"
	for _, tt := range []struct {
		name, who, sudo string
		noSudo          bool
		status          doctor.CheckStatus
		cause           doctor.Cause
		next            string
	}{
		{name: "narrow", sudo: all, status: doctor.OK},
		{name: "it lists nothing (listpw)", sudo: g + "runs=usage+serve", status: doctor.OK},
		{name: "no sudo", sudo: g + "nosudo", cause: "sudo", next: "install sudo"},
		{name: "a terminal", sudo: g + "tty", cause: "sudo-requires-tty", next: "`Defaults:admin !requiretty`"},
		{name: "no rights, or a password", sudo: g, cause: "sudo", next: "NOPASSWD"},
		{name: "a later rule", sudo: most + "allows=usage+serve entry=/etc/sudoers.d/lab-admins", cause: "sudo", next: "zz-genv"},
		{name: "another path", sudo: g + "lists", cause: "sudo-refused", next: "/usr/local/bin/genv usage serve"},
		{name: "only an earlier serve", sudo: g + "lists allows=usage+serve+--token+t fails", cause: "sudo-refused", next: "usage serve`"},
		{name: "without serve", sudo: most, cause: "sudo-refused", next: "usage serve`"},
		{name: "without execute", sudo: g + "lists allows=usage+serve allows=usage+snapshot runs=usage+serve", cause: "sudo-refused", next: "execute"},
		{name: "everything", sudo: all + "allows=everything", status: doctor.Warning, cause: "sudo-covers-everything", next: "of its own"},
		{name: "all of genv", sudo: all + "allows=all-of-genv", status: doctor.Warning, cause: "sudo-covers-all-of-genv", next: "sudo -l"},
		{name: "without genv", sudo: "sudo lists", status: doctor.OK},
		{name: "root without sudo", who: "user root\nTOKEN uid 0", sudo: "took 0", noSudo: true, status: doctor.OK},
		{name: "a user without sudo", sudo: "took 0", noSudo: true, status: doctor.Warning, cause: "no-root", next: "hosts.yaml"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := examine(t.Context(), answering(tt.sudo, cmp.Or(tt.who, who), genv, "version v1", "end"), remote.Host{NoSudo: tt.noSudo})
			c := h.Check(doctor.Sudo)
			require.Equal(t, cmp.Or(tt.status, doctor.Failed), c.Status, "%+v", c)
			require.Equal(t, tt.cause, c.Cause)
			require.Contains(t, c.NextStep, tt.next)
			require.Equal(t, doctor.OK, h.Check(doctor.Login).Status)
			require.Contains(t, h.Check(doctor.Disk).Detail, "only the host's")
		})
	}
}

// TestGuardOfThePolicy: what a host says of its guard is compared with what the policy wants there.
func TestGuardOfThePolicy(t *testing.T) {
	const kernel = `{"name": "guard", "status": "ok", "detail": "Linux 6.1"}`
	host := remote.Host{Name: "gpu-1", NoSudo: true}
	for name, tt := range map[string]struct {
		document string // besides its schema
		wanted   snapshot.GuardMode
		status   doctor.CheckStatus
		cause    doctor.Cause
	}{
		"as wanted":            {`"checks": [` + kernel + `], "guard": {"mode": "enforce", "ordered": "enforce"}`, snapshot.GuardEnforce, doctor.OK, ""},
		"off":                  {`"checks": [` + kernel + `], "guard": {"mode": "off"}`, snapshot.GuardWatch, doctor.Failed, "guard-not-ordered"},
		"an older genv":        {`"checks": [` + kernel + `]`, snapshot.GuardEnforce, doctor.Skipped, ""},
		"of a later genv":      {`"checks": [` + kernel + `], "guard": {"mode": "fortify", "ordered": "enforce"}`, snapshot.GuardEnforce, doctor.Skipped, ""},
		"no guard by a policy": {`"checks": [` + kernel + `], "guard": {"mode": "watch", "ordered": "watch"}`, "", doctor.OK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := answering("user a\nTOKEN uid 1", "login 0 755 1:2 /g", "end")
			survey := n.run
			n.run = func(ctx context.Context, args []string) (string, error) {
				if len(args) > 5 && args[5] == "doctor" {
					return "\n" + args[3] + "\n{\"schema\": \"genv.doctor/1\", " + tt.document + "}", nil
				}
				return survey(ctx, args)
			}
			d := &Doctor{Client: n, Timeout: 2 * time.Second, Now: time.Now, Guard: func(h remote.Host) snapshot.GuardMode {
				require.Equal(t, host.Name, h.Name)
				return tt.wanted
			}}
			h := d.Examine(t.Context(), host)
			c := h.Check(doctor.Guard)
			require.Equal(t, cmp.Or(tt.status, doctor.Failed), c.Status, "%+v", c)
			require.Equal(t, tt.cause, c.Cause)
		})
	}
}

// TestAnotherProgram: a login that doesn't run our commands is a failure of the login.
func TestAnotherProgram(t *testing.T) {
	for _, out := range []string{"", "Welcome to the menu\n", strings.Repeat("genv-X end\n", 1000)} {
		n := &network{way: direct(), connected: true, run: func(context.Context, []string) (string, error) { return out, nil }}
		h := examine(t.Context(), n, remote.Host{})
		require.Equal(t, doctor.Cause("invalid-output"), h.Check(doctor.Login).Cause)
		require.Contains(t, h.Check(doctor.Login).NextStep, "ForceCommand")
		require.Equal(t, doctor.OK, h.Check(doctor.HostKey).Status)
	}
}

// TestAHostThatStops: one that answers the survey and then nothing takes no longer than Timeout.
func TestAHostThatStops(t *testing.T) {
	n := answering("user a\nTOKEN uid 1", "login 0 755 1:2 /g", "end")
	survey := n.run
	n.run = func(ctx context.Context, args []string) (string, error) {
		if len(args) > 4 && args[2] == surveyScript {
			return survey(ctx, args)
		}
		<-ctx.Done()
		return "", remote.Errorf(remote.Timeout, "while the command ran: %w", ctx.Err())
	}
	began := time.Now()
	h := examine(t.Context(), n, remote.Host{NoSudo: true})
	require.Less(t, time.Since(began), 20*time.Second)
	require.Equal(t, doctor.Failed, h.Check(doctor.Genv).Status)
	require.Equal(t, doctor.Skipped, h.Check(doctor.Disk).Status)
}

func TestClock(t *testing.T) {
	for printed, want := range map[string]string{
		"1000": "", "1003": "", "997": "", "1004": "clock-off", "996": "clock-off", "940": "clock-off", "1061": "clock-wrong", "939": "clock-wrong",
		"9223372036854775807": "clock-wrong", "": "skipped", "now": "skipped", "1000.%N": "skipped", "99999999999999999999": "skipped",
	} {
		c := checkClock(printed, time.Unix(1000, 0))
		require.Equal(t, want == "skipped", c.Status == doctor.Skipped, printed)
		require.Equal(t, strings.TrimSuffix(want, "skipped"), string(c.Cause), printed)
	}
}

// FuzzSurvey: whatever a host prints, its checks have a status, and nothing reaches a terminal unescaped.
func FuzzSurvey(f *testing.F) {
	f.Add("\ntok user admin\ntok uid 0\ntok took 0\ntok login 0 755 1:2 /g\ntok version 1.4.3\ntok end\n")
	f.Fuzz(func(t *testing.T, output string) {
		r, _ := remote.ParseReported([]byte(output), "tok")
		e := new(Doctor).begin(remote.Host{})
		e.take(r)
		for _, c := range []doctor.Check{e.checkSudo(), e.checkProgram(), checkClock(r.Last("clock"), time.Now())} {
			require.NotEmpty(t, c.Status)
			require.False(t, strings.ContainsAny(c.Detail+c.NextStep, "\x1b\x00\n"), "%q", c)
		}
		require.False(t, strings.ContainsAny(e.Genv.Version+e.System.OS+e.user, "\x1b\n"))
	})
}
