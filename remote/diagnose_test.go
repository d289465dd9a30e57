package remote_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

// asked is a host that answers the diagnosis.
type asked struct {
	out   string
	err   error
	times int
	mode  string // of the last one
}

func (a *asked) Run(_ context.Context, _ remote.Host, command remote.Command) (remote.Output, error) {
	a.times++
	a.mode = command.Args[5]
	return remote.Output{Stdout: []byte(a.out)}, a.err
}

// trial is what TrySudo prints, from words such as "genv=/g/genv lists".
func trial(words string) string {
	out := "\ngenv-diagnosis uid 1001\n"
	for word := range strings.FieldsSeq(words) {
		out += "genv-diagnosis " + strings.ReplaceAll(strings.Replace(word, "=", " ", 1), "+", " ") + "\n"
	}
	return out + "genv-diagnosis end\n"
}

func TestDiagnose(t *testing.T) {
	for _, tt := range []struct {
		name  string
		class remote.Class
		says  string
		want  remote.Class
		next  string // a part of it
	}{
		{"a password", remote.Sudo, trial("user=admin genv=/usr/bin/genv"), remote.Sudo, "`admin ALL=(root) NOPASSWD: /usr/bin/genv usage snapshot, "},
		{"a password, and no genv", remote.Sudo, trial("user=admin genv="), remote.Sudo, "`genv remote install -H HOST`"},
		{"a password, in other words", remote.CommandFailed, trial("user=admin genv=/usr/bin/genv"), remote.Sudo, "`admin ALL=(root) NOPASSWD: /usr/bin/genv usage snapshot, "},
		{"the line covers something else", remote.Sudo, trial("user=admin genv=/opt/genv/bin/genv lists"), remote.SudoRefused, "/opt/genv/bin/genv usage serve`"},
		{"so it does, in other words", remote.CommandFailed, trial("user=admin genv=/opt/genv/bin/genv lists allows=usage+snapshot"), remote.SudoRefused, "/opt/genv/bin/genv usage serve`"},
		{"a later rule", remote.Sudo, trial("user=admin genv=/g/genv lists allows=usage+serve entry=/etc/sudoers.d/lab-admins:"), remote.Sudo, "the last one counts"},
		{"requiretty", remote.Sudo, trial("user=admin genv=/g/genv tty"), remote.Sudo, "`Defaults:admin !requiretty`"},
		{"requiretty, for a user of a directory", remote.CommandFailed, trial("user=CORP\\ann genv=/g/genv tty"), remote.Sudo, "`Defaults:#1001 !requiretty`"},
		{"a later rule, and it says so", remote.Sudo, trial("user=admin genv=/g/genv lists allows=usage+serve said=sudo:+a+password+is+required"), remote.Sudo, "the last one counts"},
		{"its log is full", remote.CommandFailed, trial("user=admin genv=/g/genv lists allows=usage+serve said=sudo:+error+initializing+I/O+plugin+sudoers_io"), remote.Sudo, "correct what sudo says"},
		{"sudoers can't be read", remote.CommandFailed, trial("user=admin genv=/g/genv said=sudo:+unable+to+initialize+policy+plugin"), remote.Sudo, "correct what sudo says"},
		{"no line, and it says so", remote.Sudo, trial("user=admin genv=/g/genv said=sudo:+a+password+is+required"), remote.Sudo, "allow it without a password"},
		{"no line, and another sudo says so", remote.SudoRefused, trial("user=bob genv=/g/genv said=Sorry,+user+bob+may+not+run+sudo+on+gpu."), remote.SudoRefused, "`bob ALL="},
		{"no sudo", remote.CommandFailed, trial("user=admin genv=/g/genv nosudo"), remote.Sudo, "install sudo"},
		{"the line's genv isn't there", remote.Sudo, trial("user=admin genv= lists"), remote.GenvMissing, "install genv"},
		{"it isn't there, in other words", remote.CommandFailed, trial("user=admin genv="), remote.GenvMissing, "install genv"},
		{"no line at all", remote.SudoRefused, trial("user=bob genv=/usr/local/bin/genv"), remote.SudoRefused, "`bob ALL="},
		{"a name that sudoers has to write as a uid", remote.SudoRefused, trial("user=ann@corp.example genv=/usr/local/bin/genv lists"), remote.SudoRefused, "`#1001 ALL="},
		{"sudo doesn't find it", remote.GenvMissing, trial("user=admin genv=/opt/genv/bin/genv lists allows=usage+serve"), remote.GenvMissing, "set `genv: /opt/genv/bin/genv`"},
		{"it isn't there", remote.GenvMissing, trial("user=admin genv= lists"), remote.GenvMissing, "install genv"},
		{"a banner before it", remote.Sudo, "Welcome\ngenv-diagnosis uid 9\ngenv-diagnosis genv /x\nMotd\n" + trial("user=admin genv=/g/genv lists"), remote.SudoRefused, "/g/genv usage"},
		{"names that are none", remote.Sudo, trial("user=a;b genv=/tmp/x;reboot lists"), remote.GenvMissing, "install genv"},
		{"nothing", remote.Sudo, "", remote.Sudo, "`USER ALL="},
		{"something else", remote.Sudo, "{}\ngenv-diagnosis\n", remote.Sudo, "`USER ALL="},
		{"cut", remote.SudoRefused, "genv-diagnosis uid 3\ngenv-diagnosis lists\n", remote.SudoRefused, "`USER ALL="},
		{"another failure", remote.Auth, trial("user=admin genv=/g/genv"), remote.Auth, "key"},
		{"the command's own", remote.CommandFailed, trial("user=admin genv=/g/genv lists allows=usage+serve runs=usage+serve"), remote.CommandFailed, "read the output of the host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cause := errors.New("sudo: a password is required")
			err := remote.Diagnose(t.Context(), &asked{out: tt.says}, remote.Host{Name: "gpu"}, &remote.Error{Class: tt.class, Err: cause, Stderr: "x"})
			require.Equal(t, tt.want, remote.ClassOf(err), "%v", err)
			require.ErrorIs(t, err, cause)
			if strings.HasPrefix(tt.next, "correct what sudo says") {
				require.EqualError(t, err, cause.Error(), "what sudo says comes first")
			}
			require.Contains(t, remote.NextStepOf(err), tt.next)
			var e *remote.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "x", e.Stderr)
		})
	}
}

func TestDiagnoseChangesNothingElse(t *testing.T) {
	host, a := remote.Host{Name: "gpu"}, &asked{out: trial("user=admin genv=/g/genv lists")}
	require.NoError(t, remote.Diagnose(t.Context(), a, host, nil))
	plain := errors.New("never classified")
	require.Same(t, plain, remote.Diagnose(t.Context(), a, host, plain))
	explained := error(&remote.Error{Class: remote.Sudo, Err: plain, Next: "install sudo"})
	require.Same(t, explained, remote.Diagnose(t.Context(), a, host, explained))
	require.Zero(t, a.times, "nothing is asked without need")
	password := error(remote.Errorf(remote.Sudo, "sudo wants a password"))
	require.Same(t, password, remote.Diagnose(t.Context(), nil, host, password))
	require.Same(t, password, remote.Diagnose(t.Context(), &asked{err: plain}, host, password))
}

// A login with an rc file that fails runs nothing: neither genv nor the driver is missing then.
func TestDiagnoseALoginThatRunsNothing(t *testing.T) {
	host := remote.Host{Name: "gpu"}
	for class, failed := range map[remote.Class]remote.Class{remote.GenvMissing: remote.GenvMissing, remote.CommandFailed: remote.CommandFailed} {
		cause := errors.New(".bashrc: line 1: conda: command not found")
		err := remote.Diagnose(t.Context(), &asked{err: remote.Errorf(failed, "%w", cause)}, host, remote.Errorf(class, "%w", cause))
		require.Equal(t, remote.InvalidOutput, remote.ClassOf(err))
		require.ErrorContains(t, err, "not even sh")
		require.ErrorIs(t, err, cause)
		require.Contains(t, remote.NextStepOf(err), "rc files")
	}
	for class, a := range map[remote.Class]*asked{
		remote.CommandFailed: {out: "genv-diagnosis uid 1\n", err: remote.Errorf(remote.CommandFailed, "cut")},
		remote.GenvMissing:   {err: remote.Errorf(remote.CommandFailed, "this key may run genv alone")},
		remote.Version:       {err: remote.Errorf(remote.CommandFailed, "x")},
	} {
		err := error(remote.Errorf(class, "x"))
		require.Same(t, err, remote.Diagnose(t.Context(), a, host, err))
	}
	said := error(&remote.Error{Class: remote.CommandFailed, Err: errors.New("exit status 1: genv: no"), Stderr: "genv: no"})
	require.Same(t, said, remote.Diagnose(t.Context(), &asked{err: said}, host, said), "it says why itself")
}

// A command that does without sudo: sudo isn't asked either, which would be logged.
func TestDiagnoseWithoutSudo(t *testing.T) {
	for says, next := range map[string]string{
		trial("user=bob genv=/opt/genv/bin/genv"): "set `genv: /opt/genv/bin/genv` for the host in hosts.yaml, or have it linked to /usr/local/bin/genv",
		trial("user=bob genv="):                   "install genv on the host where every login finds it",
	} {
		a := &asked{out: says}
		err := remote.Diagnose(t.Context(), a, remote.Host{Name: "gpu", NoSudo: true}, remote.Errorf(remote.GenvMissing, "genv: not found"))
		require.Equal(t, remote.GenvMissing, remote.ClassOf(err))
		require.Contains(t, remote.NextStepOf(err), next)
		require.Equal(t, "login", a.mode)
	}
}
