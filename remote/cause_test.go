package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

func TestShellLine(t *testing.T) {
	tests := []struct {
		name string
		host remote.Host
		args []string
		want string
	}{
		{"with sudo", remote.Host{}, []string{"usage", "snapshot"}, "sudo -n genv usage snapshot"},
		{"without", remote.Host{NoSudo: true}, []string{"usage", "snapshot"}, "genv usage snapshot"},
		{"elsewhere", remote.Host{GenvPath: "/opt/genv/bin/genv"}, []string{"version"}, "sudo -n /opt/genv/bin/genv version"},
		{"a path with a space", remote.Host{GenvPath: "/opt/my genv", NoSudo: true}, nil, "'/opt/my genv'"},
		{"a path that is a program", remote.Host{GenvPath: "genv; reboot"}, nil, "sudo -n 'genv; reboot'"},
		{"a quote", remote.Host{NoSudo: true}, []string{"it's"}, `genv 'it'\''s'`},
		{"nothing", remote.Host{NoSudo: true}, []string{""}, "genv ''"},
		{"substitutions", remote.Host{NoSudo: true}, []string{"$(id)", "`id`", "$HOME"}, "genv '$(id)' '`id`' '$HOME'"},
		{"what may mean something at the start", remote.Host{NoSudo: true}, []string{"~root", "A=b", "#no"}, "genv '~root' 'A=b' '#no'"},
		{"safe marks", remote.Host{NoSudo: true}, []string{"--max-devices=1", "a_b.c/d:e,f@g%h+1"}, "genv '--max-devices=1' a_b.c/d:e,f@g%h+1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, test.host.Genv(test.args...).ShellLine())
		})
	}
}

// What a shell makes of a line is what was put into it.
func TestAShellReadsBackEveryArgument(t *testing.T) {
	args := []string{
		"plain", "", " ", "a b", "'", "''", `\`, `\'`, `"`, "$HOME", "$(id)", "`id`", "*", "?", "[a]", "{a,b}", "~", "~root", "#", "a#b",
		"!", "!!", "&", "|", ";", "<", ">", "(", ")", "a=b", "-n", "--", "\n", "a\nb", "\t", "\x7f", "é", "\xff", "%s", "@", strings.Repeat("x'", 1000),
	}
	line := remote.Command{Args: append([]string{"printf", `%s\0`}, args...)}.ShellLine()
	out, err := exec.Command("/bin/sh", "-c", line).Output()
	require.NoError(t, err)
	require.Equal(t, strings.Join(args, "\x00")+"\x00", string(out))
}

// FuzzQuote: a quoted word has no character that a shell interprets outside of
// single quotes, and taking the quotes off gives the word.
func FuzzQuote(f *testing.F) {
	for _, seed := range []string{"", "a", "it's", "$(id)", "a\nb", "'", `\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		quoted := remote.Quote(word)
		if quoted == word {
			require.Regexp(t, `^[A-Za-z0-9_./:,@%+-]+$`, word)
			return
		}
		require.Equal(t, "'", quoted[:1])
		require.Equal(t, "'", quoted[len(quoted)-1:])
		inside := strings.Split(quoted[1:len(quoted)-1], `'\''`)
		for _, piece := range inside {
			require.NotContains(t, piece, "'")
		}
		require.Equal(t, word, strings.Join(inside, "'"))
	})
}

func TestEveryClassHasItsNextStep(t *testing.T) {
	seen := map[string]remote.Class{}
	for _, class := range []remote.Class{
		remote.Unreachable, remote.HostKey, remote.HostKeyChanged, remote.Auth, remote.Sudo, remote.SudoRefused, remote.GenvMissing, remote.Version,
		remote.InvalidOutput, remote.Timeout, remote.OutcomeUnknown, remote.CommandFailed, remote.Configuration, remote.Cancelled,
	} {
		step := class.NextStep()
		require.NotEmpty(t, step, class)
		require.NotContains(t, step, "\n", class)
		require.Empty(t, seen[step], "%s and %s say the same", class, seen[step])
		seen[step] = class
	}
	require.Empty(t, remote.Class("no such class").NextStep())
}

func TestClassOf(t *testing.T) {
	refused := remote.Errorf(remote.Auth, "gpu-1: %w", io.EOF)
	require.Equal(t, remote.Auth, remote.ClassOf(refused))
	require.Equal(t, remote.Auth, remote.ClassOf(fmt.Errorf("cycle 3: %w", refused)))
	require.Equal(t, remote.Unreachable, remote.ClassOf(remote.Errorf(remote.Unreachable, "by way of the jump host: %w", refused)), "the outermost counts")
	require.Equal(t, remote.CommandFailed, remote.ClassOf(errors.New("never classified")))
}

func TestErrorKeepsItsCause(t *testing.T) {
	err := error(remote.Errorf(remote.Unreachable, "gpu-1: %w", io.EOF))
	require.EqualError(t, err, "gpu-1: EOF")
	require.ErrorIs(t, err, io.EOF)
}

// TestCauses: what is a host's own makes no other cause, and everything else does.
func TestCauses(t *testing.T) {
	for name, row := range map[string]struct {
		first, second string // of gpu-01.lab and gpu-02.lab
		want          string // empty if they are two causes
	}{
		"the same":             {"sudo: a password is required", "sudo: a password is required", "sudo: a password is required"},
		"addresses":            {"no connection to 10.0.0.1:22: dial tcp 10.0.0.1:22: connect: no route to host", "no connection to 10.0.0.2:22: dial tcp 10.0.0.2:22: connect: no route to host", "no route to host"},
		"IPv6":                 {"dial [fe80::1%eth0]:22: refused", "dial [fe80::2]:22: refused", "dial …:22: refused"},
		"ports":                {"what answers at 127.0.0.1:4123 does not speak our SSH: x", "what answers at 127.0.0.1:999 does not speak our SSH: x", "what answers at 127.0.0.1… does not speak our SSH: x"},
		"names":                {"no connection to gpu-01.lab:22: lookup gpu-01.lab: no such host", "no connection to gpu-02.lab:22: lookup GPU-02.lab: no such host", "no such host"},
		"short names":          {"lookup gpu-01 failed", "lookup gpu-02 failed", "lookup … failed"},
		"other domains":        {"lookup gpu-01.example.org failed", "lookup gpu-02.example.org failed", "lookup … failed"},
		"PIDs and durations":   {"process 17 has hung for 1m3.5s", "process 4711 has hung for 900ms", "… has hung for …"},
		"keys":                 {"the key SHA256:abc+/1 is unknown", "the key SHA256:xyz is unknown", ""},
		"a common port":        {"port 22: refused", "port 22: refused", "port 22: refused"},
		"another reason":       {"exit status 1", "exit status 2", ""},
		"another file":         {"/etc/a: refused", "/etc/b: refused", ""},
		"the other's name":     {"gpu-07.lab is the same machine", "gpu-08.lab is the same machine", ""},
		"a name within a name": {"xgpu-01 refused", "xgpu-02 refused", ""},
		"one text is longer":   {"refused", "refused: by 10.0.0.1", ""},
		"empty":                {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			causes := remote.Causes([]remote.Failure{
				{Host: "gpu-01.lab", Class: remote.Unreachable, Error: row.first, NextStep: "look"},
				{Host: "gpu-02.lab", Class: remote.Unreachable, Error: row.second, NextStep: "look"},
			})
			if row.want == "" && row.first != row.second {
				require.Len(t, causes, 2)
				return
			}
			require.Equal(t, []remote.Cause{{
				Class: remote.Unreachable, Error: row.want, Hosts: []string{"gpu-01.lab", "gpu-02.lab"}, NextSteps: []string{"look"},
			}}, causes)
		})
	}
}

// TestCausesOfAFleet: many hosts that fail in a few ways are a few causes, the biggest
// class first; a host that fails alone keeps its own text.
func TestCausesOfAFleet(t *testing.T) {
	var failures []remote.Failure
	for i := range 1000 {
		f := remote.Failure{Host: fmt.Sprintf("gpu-%04d.lab", i), Class: remote.Unreachable, NextStep: "a"}
		f.Error = fmt.Sprintf("no connection to 10.0.%d.%d:22: dial tcp 10.0.%[1]d.%[2]d:22: connect: connection refused", i/250, i%250)
		switch {
		case i == 7:
			f.Class, f.Error, f.NextStep = remote.HostKeyChanged, "the key SHA256:abc has changed", "b"
		case i%10 == 1:
			f.Class, f.Error, f.NextStep = remote.Sudo, "sudo: a password is required", "c"
		case i%10 == 2:
			f.Class, f.Error, f.NextStep = remote.Timeout, fmt.Sprintf("no answer in %d.5s", 10+i%7), "d"
		case i%10 == 3:
			f.Error = fmt.Sprintf("no connection to gpu-%04d.lab:22: lookup gpu-%04[1]d.lab: no such host", i)
		}
		failures = append(failures, f)
	}
	var lines []string
	hosts := 0
	for _, c := range remote.Causes(failures) {
		lines = append(lines, fmt.Sprintf("%s %d %s", c.Class, len(c.Hosts), c.Error))
		hosts += len(c.Hosts)
	}
	require.Equal(t, 1000, hosts)
	require.Equal(t, []string{
		"unreachable 699 connection refused", "unreachable 100 no such host", "sudo 100 sudo: a password is required",
		"timeout 100 no answer in …", "host-key-changed 1 the key SHA256:abc has changed",
	}, lines)
}

// A host that fails alone keeps its address, once.
func TestCauseOfOneHost(t *testing.T) {
	for text, want := range map[string]string{
		"no connection to 10.0.0.1:22: dial tcp 10.0.0.1:22: connect: no route to host": "no connection to 10.0.0.1:22: no route to host",
		"no connection to gpu:22: dial tcp 10.0.0.1:22: i/o timeout":                    "no connection to gpu:22: i/o timeout",
		"no connection to gpu:22: dial tcp: lookup gpu: no such host":                   "no connection to gpu:22: dial tcp: lookup gpu: no such host",
		"dial tcp 10.0.0.1:22: refused":                                                 "dial tcp 10.0.0.1:22: refused",
	} {
		causes := remote.Causes([]remote.Failure{{Host: "gpu", Error: text}})
		require.Equal(t, want, causes[0].Error)
	}
}

// FuzzCauses: whatever a host prints, it is in exactly one cause, and one host's text is shown as it is.
func FuzzCauses(f *testing.F) {
	f.Add("gpu-01.lab", "dial tcp 10.0.0.1:22: gpu-01 refused after 3s", "dial tcp 10.0.0.2:22: x")
	f.Add("", "\x00…", "no connection to …: ")
	f.Fuzz(func(t *testing.T, host, first, second string) {
		failures := []remote.Failure{{Host: host, Error: first}, {Host: "b", Error: second}, {Host: "c", Error: first}}
		var hosts []string
		for _, c := range remote.Causes(failures) {
			hosts = append(hosts, c.Hosts...)
			if len(c.Hosts) == 1 && !strings.HasPrefix(c.Error, "no connection to ") {
				require.Contains(t, []string{first, second}, c.Error)
			}
		}
		slices.Sort(hosts)
		want := []string{host, "b", "c"}
		slices.Sort(want)
		require.Equal(t, want, hosts)
		require.Len(t, remote.Causes(failures[:1]), 1)
	})
}

// People don't read Go's words for a deadline, no matter who says them.
func TestNoDeadlines(t *testing.T) {
	require.ErrorIs(t, remote.ErrLate, context.DeadlineExceeded)
	late := fmt.Errorf("gpu-1: ask: %w", context.DeadlineExceeded)
	for _, err := range []error{late, remote.Errorf(remote.Timeout, "%w", late), errors.New("ask: context deadline exceeded")} {
		require.Equal(t, "ask: no answer in time", remote.FailureOf("gpu-1", err).Error)
	}
	require.EqualError(t, remote.Errorf(remote.Unreachable, "%w", late), "gpu-1: ask: no answer in time")
}
