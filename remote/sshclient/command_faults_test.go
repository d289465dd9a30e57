package sshclient_test

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

var snapshot = gpu.Genv("usage", "snapshot")

// TestCommandFaults are those of a command that was started.
func TestCommandFaults(t *testing.T) {
	flood := func(w func(ssh.Channel) io.Writer) func(ssh.Channel, string, net.Conn) {
		return func(ch ssh.Channel, _ string, _ net.Conn) {
			block := bytes.Repeat([]byte("x"), 1<<20)
			for range 1024 {
				if _, err := w(ch).Write(block); err != nil {
					return
				}
			}
			exit(ch, 0)
		}
	}
	for name, tt := range map[string]struct {
		command func(ssh.Channel, string, net.Conn)
		class   remote.Class
		says    string
	}{
		"sudo wants a password":   {says("sudo: a password is required\n", 1), remote.Sudo, "wants a password"},
		"sudo wants a terminal":   {says("sudo: a terminal is required to read the password; either use the -S option\nsudo: a password is required\n", 1), remote.Sudo, "wants a password"},
		"not in sudoers":          {says("alice is not in the sudoers file.  This incident will be reported.\n", 1), remote.SudoRefused, "does not allow"},
		"sudo for other commands": {says("Sorry, user alice is not allowed to execute '/usr/bin/genv' as root on gpu.\n", 1), remote.SudoRefused, "does not allow"},
		"no sudo":                 {says("bash: line 1: sudo: command not found\n", 127), remote.Sudo, "no sudo"},
		"no genv under sudo":      {says("sudo: genv: command not found\n", 1), remote.GenvMissing, "not there"},
		"no genv":                 {says("bash: line 1: genv: command not found\n", 127), remote.GenvMissing, "genv: command not found"},
		"genv fails":              {says("cannot read \x1b]0;x\x07state\n", 4), remote.CommandFailed, `exit status 4: cannot read \x1b]0;x\astate`},
		"genv crashes": {
			says("noise\npanic: runtime error: index out of range [3] with length 3 \x1b[2J\n\ngoroutine 1 [running]:\nmain.main()\n\t/src/main.go:7 +0x1d\nexit status 2\n", 2),
			remote.CommandFailed, `genv crashed there: panic: runtime error: index out of range [3] with length 3 \x1b[2J`,
		},
		"genv runs out of memory": {
			says("fatal error: runtime: out of memory\n\nruntime stack:\nruntime.throw()\n", 2), remote.CommandFailed, "genv crashed there: fatal error: runtime: out of memory",
		},
		"a panic that is only mentioned": {says("panic: is not what this is\nno state\n", 1), remote.CommandFailed, "exit status 1: no state"},
		"wrong usage":                    {says("usage: genv [-h]\n", 2), remote.CommandFailed, "exit status 2: usage: genv [-h]"},
		"genv is killed": {func(ch ssh.Channel, _ string, _ net.Conn) {
			_, _ = ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Name      string
				Core      bool
				Msg, Lang string
			}{Name: "KILL"}))
		}, remote.CommandFailed, "signal KILL"},
		"a flood on stdout":     {flood(func(ch ssh.Channel) io.Writer { return ch }), remote.InvalidOutput, "stdout"},
		"a flood on stderr":     {flood(func(ch ssh.Channel) io.Writer { return ch.Stderr() }), remote.InvalidOutput, "stderr"},
		"no exit status":        {func(ssh.Channel, string, net.Conn) {}, remote.OutcomeUnknown, "without a status"},
		"the connection is cut": {func(_ ssh.Channel, _ string, conn net.Conn) { _ = conn.Close() }, remote.OutcomeUnknown, "cut off"},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, func(f *fake) { f.command = tt.command })
			c := newClient(t, sshclient.Options{ConfigFile: f.config(), MaxStdout: 4 << 20})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			out, err := c.Run(t.Context(), gpu, snapshot)
			runtime.ReadMemStats(&after)
			requireClass(t, tt.class, err)
			require.ErrorContains(t, err, tt.says)
			require.LessOrEqual(t, len(out.Stdout), 4<<20)
			require.LessOrEqual(t, len(out.Stderr), 256<<10)
			require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(64<<20), "memory is bounded")
		})
	}
	t.Run("the host refuses commands", func(t *testing.T) {
		f := startFake(t, nil)
		c := newClient(t, sshclient.Options{ConfigFile: f.config()})
		_, err := c.Run(t.Context(), gpu, remote.Command{Args: []string{"refused"}})
		requireClass(t, remote.CommandFailed, err)
	})
}
