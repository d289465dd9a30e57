package user_test

import (
	"bufio"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// On a terminal a Ctrl-C reaches the command itself. It must not come twice:
// many programs drop everything at the second one.
func TestCtrlCComesOnce(t *testing.T) {
	_, _, u := active(t)
	script := `n=0; trap 'n=$((n+1)); echo got $n' INT; trap 'echo end $n; exit 3' TERM; echo ready; while :; do sleep 0.05; done`
	cmd := u.command("genv", "lock", "sh", "-c", script)
	terminal, err := pty.Start(cmd)
	require.NoError(t, err)
	defer terminal.Close()
	lines := bufio.NewReader(terminal)
	expect := func(want string) {
		for {
			line, err := lines.ReadString('\n')
			require.NoError(t, err, "before %q", want)
			if strings.Contains(line, want) {
				return
			}
			require.NotContains(t, line, "got 2")
		}
	}
	expect("ready")
	_, err = terminal.Write([]byte{3})
	require.NoError(t, err)
	expect("got 1")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	expect("end 1")
	_ = cmd.Wait() // the status is looked at
	require.Equal(t, 3, cmd.ProcessState.ExitCode())
}
