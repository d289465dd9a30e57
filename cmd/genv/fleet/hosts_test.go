package fleet_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestHostsFromAPipe: hosts may come from a pipe, and a FIFO that is not written to delays no command.
func TestHostsFromAPipe(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "hosts")
	require.NoError(t, unix.Mkfifo(fifo, 0o666))
	r := genvtest.Run(t, "remote", "devices", "--hostfile", fifo)
	require.Equal(t, command.ExitFailed, r.Code)
	require.Contains(t, r.Err, "no hosts")

	config := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(config, []byte("Host *\n Port 1\n"), 0o600))
	from := genvtest.Exec(t, exec.Command("bash", "-c", genvtest.Program(t)+" remote -F "+config+" --hostfile <(sleep 0.1; echo 127.93.7.7) devices"))
	require.Equal(t, command.ExitNoneLeft, from.Code)
	require.Contains(t, from.Err, "127.93.7.7: no connection")
}

// manyDown is a fleet with hosts that answer, and the configuration for 60 that don't exist.
func manyDown(t *testing.T) (config string) {
	f, _ := monitoredFleet(t)
	hosts, err := os.ReadFile(f.SSHConfig())
	require.NoError(t, err)
	var b strings.Builder
	for i := 1; i <= 60; i++ {
		fmt.Fprintf(&b, "Host gpu-%02d.lab\n HostName 127.9.0.%d\n Port 1\n", i, i)
	}
	config = filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(config, append([]byte(b.String()), hosts...), 0o600))
	return config
}

// oneStream runs a command line with stdout and stderr in one place, as on a terminal.
func oneStream(t *testing.T, args ...string) (code int, said string) {
	var both bytes.Buffer
	p := command.Program{In: strings.NewReader(""), Out: &both, Err: &both, Getenv: genvtest.Getenv(t), Now: time.Now}
	code = command.Run(t.Context(), p, genvtest.Commands, append([]string{"genv"}, args...))
	return code, both.String()
}

// TestManyHostsThatFailAlike: in every command they are a few lines, with the next step once, in front of the result.
func TestManyHostsThatFailAlike(t *testing.T) {
	config := manyDown(t)
	for command, last := range map[string]string{
		"devices":                         "Total 2 devices with 1 available on 1 hosts; 60 hosts failed",
		"devices --format csv":            "on 1 hosts; 60 hosts failed",
		"devices --format json":           `"failed":[`,
		"envs":                            "Total 1 environments on 1 hosts; 60 hosts failed",
		"gpus":                            "; 60 hosts failed",
		"query --query hostname":          "nosudo",
		"top --plain --once --socket off": "nosudo: ",
		"wait --within 5s":                "genv: no host had",
		"enforce --interval 0":            "`ssh HOST true` connects",
	} {
		hosts := "nosudo,gpu-[01-60].lab"
		if strings.HasPrefix(command, "enforce") {
			hosts = "ours,gpu-[01-60].lab"
		}
		code, said := oneStream(t, append([]string{"remote", "-F", config, "-H", hosts}, strings.Fields(command)...)...)
		if !strings.HasPrefix(command, "wait") {
			require.Equal(t, 3, code, command)
		}
		lines := strings.Split(strings.TrimSuffix(said, "\n"), "\n")
		if n := len(lines) - 1; strings.HasPrefix(command, "enforce") {
			require.Contains(t, lines[n], "1 of 61 hosts answered, 0 findings: nothing was done")
			lines = lines[:n]
		}
		require.LessOrEqual(t, len(lines), 9, said)
		require.Contains(t, said, "gpu-[01-60].lab: connection refused (60 hosts)\n", command)
		require.Equal(t, 1, strings.Count(said, "next: "), said)
		require.Contains(t, lines[len(lines)-1], last, said)
		require.Contains(t, lines[0], "60 of 61 hosts failed:", command)
	}
}

// -v says what holds, and the help says the same of the default.
func TestTheCommandTimeoutIsSaid(t *testing.T) {
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(&snapshot.Snapshot{})})
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--interval", "0"}, "command_timeout=30s"},
		{[]string{"--interval", "20ms", "--cycles", "2"}, "command_timeout=10s"},
		{[]string{"--interval", "20ms", "--cycles", "2", "--command-timeout", "5"}, "command_timeout=5s"},
	} {
		r := genvtest.Run(t, append([]string{"remote", "enforce", "-v", "-F", f.SSHConfig(), "-H", "a"}, tt.args...)...)
		require.Zero(t, r.Code, r.Err)
		require.Contains(t, r.Err, tt.want)
	}
	require.Contains(t, genvtest.Run(t, "help", "connection").Out, "30; in a loop of enforce the interval, from 10 to 30")
}
