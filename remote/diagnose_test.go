package remote_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

// asked is a host that answers the diagnosis.
type asked struct {
	out    string
	err    error
	times  int
	script string // the last one
}

func (a *asked) Run(_ context.Context, _ remote.Host, command remote.Command) (remote.Output, error) {
	a.times++
	a.script = command.Args[2]
	return remote.Output{Stdout: []byte(a.out)}, a.err
}

func TestDiagnose(t *testing.T) {
	const may = "User admin may run the following commands on gpu:\n    (root) NOPASSWD: ALL\n"
	for _, tt := range []struct {
		name  string
		class remote.Class
		says  string
		want  remote.Class
		next  string // a part of it
	}{
		{"a password", remote.Sudo, "genv-diagnosis 1 admin /usr/bin/genv\nsudo: a password is required\n", remote.Sudo, "`admin ALL=(root) NOPASSWD: /usr/bin/genv usage snapshot, "},
		{"a password, and no genv", remote.Sudo, "genv-diagnosis 1 admin \nsudo: a password is required\n", remote.Sudo, "NOPASSWD: /usr/local/bin/genv usage snapshot, "},
		{"the line covers something else", remote.Sudo, "genv-diagnosis 0 admin /opt/genv/bin/genv\n" + may, remote.SudoRefused, "/opt/genv/bin/genv usage serve *"},
		{"the line's genv isn't there", remote.Sudo, "genv-diagnosis 0 admin \n" + may, remote.GenvMissing, "install genv"},
		{"no line at all", remote.SudoRefused, "genv-diagnosis 1 bob /usr/local/bin/genv\nSorry, user bob may not run sudo on gpu.\n", remote.SudoRefused, "`bob ALL="},
		{"a password before the refusal", remote.Sudo, "genv-diagnosis 1 bob /usr/local/bin/genv\nSorry, user bob may not run sudo on gpu.\n", remote.SudoRefused, "`bob ALL="},
		{"sudo doesn't find it", remote.GenvMissing, "genv-diagnosis 0 admin /opt/genv/bin/genv\n" + may, remote.GenvMissing, "set `genv: /opt/genv/bin/genv`"},
		{"it isn't there", remote.GenvMissing, "genv-diagnosis 0 admin \n" + may, remote.GenvMissing, "install genv"},
		{"a banner before it", remote.Sudo, "Welcome\ngenv-diagnosis 9 x\nMotd\ngenv-diagnosis 0 admin /g/genv\n", remote.SudoRefused, "/g/genv usage"},
		{"names that are none", remote.Sudo, "genv-diagnosis 0 a;b /tmp/x;reboot\n", remote.GenvMissing, "install genv"},
		{"nothing", remote.Sudo, "", remote.Sudo, "`USER ALL="},
		{"something else", remote.Sudo, "{}\ngenv-diagnosis\n", remote.Sudo, "`USER ALL="},
		{"cut", remote.SudoRefused, "genv-diagnosis 0 admin", remote.SudoRefused, "`USER ALL="},
		{"another failure", remote.Auth, "genv-diagnosis 0 admin /g/genv\n", remote.Auth, "key"},
		{"the command's own", remote.CommandFailed, "genv-diagnosis 0 admin /g/genv\n", remote.CommandFailed, "read the output of the host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cause := errors.New("sudo: a password is required")
			err := remote.Diagnose(t.Context(), &asked{out: tt.says}, remote.Host{Name: "gpu"}, &remote.Error{Class: tt.class, Err: cause, Stderr: "x"})
			require.Equal(t, tt.want, remote.ClassOf(err), "%v", err)
			require.ErrorIs(t, err, cause)
			require.Contains(t, remote.NextStepOf(err), tt.next)
			var e *remote.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, "x", e.Stderr)
		})
	}
}

func TestDiagnoseChangesNothingElse(t *testing.T) {
	host, a := remote.Host{Name: "gpu"}, &asked{out: "genv-diagnosis 0 admin /g/genv\n"}
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

// A command that does without sudo: sudo isn't asked either, which would be logged.
func TestDiagnoseWithoutSudo(t *testing.T) {
	for says, next := range map[string]string{
		"genv-diagnosis - bob /opt/genv/bin/genv\n\n": "set `genv: /opt/genv/bin/genv` for the host in hosts.yaml, or have it linked to /usr/local/bin/genv",
		"genv-diagnosis - bob \n\n":                   "install genv on the host where every login finds it",
	} {
		a := &asked{out: says}
		err := remote.Diagnose(t.Context(), a, remote.Host{Name: "gpu", NoSudo: true}, remote.Errorf(remote.GenvMissing, "genv: not found"))
		require.Equal(t, remote.GenvMissing, remote.ClassOf(err))
		require.Contains(t, remote.NextStepOf(err), next)
		require.NotContains(t, a.script, "sudo -n")
	}
}
