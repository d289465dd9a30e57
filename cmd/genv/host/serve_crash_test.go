package host

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent"
)

// crashVariable makes the test binary a `genv usage serve` that panics at the
// first request for a snapshot: it has no host.
const crashVariable = "GENV_TEST_CRASH"

// ServeAndCrash does so where the variable is set, for TestMain.
func ServeAndCrash() {
	if os.Getenv(crashVariable) == "" {
		return
	}
	server := &agent.Server{Token: "t", Idle: time.Minute, Handler: &agent.Answers{Backend: served{}}, Greeting: agent.NewGreeting("")}
	_ = server.Serve(context.Background(), os.Stdin, os.Stdout) // it does not return
}

// What crashes on a host says so on stderr, in its first line, and exits with
// 2: nothing on the way catches a panic.
func TestServeThatPanics(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), crashVariable+"=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := agent.OpenStream(ctx, out, in, "t")
	require.NoError(t, err)
	_, err = client.Call(ctx, agent.RequestSnapshot, []byte("{}"))
	require.Error(t, err)
	_ = cmd.Wait() // its state says more
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	first, _, _ := strings.Cut(stderr.String(), "\n")
	require.True(t, strings.HasPrefix(first, "panic: runtime error: "), stderr.String())
}
