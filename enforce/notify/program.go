package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	maxOutput      = 4 << 10 // bytes of what a program prints that are read
	maxShownOutput = 300     // characters of these in an error
)

// RunProgram runs a program of the policy, with data on its stdin and without our environment. It ends it and its
// children with ctx. An error includes the escaped output.
func RunProgram(ctx context.Context, command []string, data []byte, env ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin = bytes.NewReader(data)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"}
	cmd.Env = append(cmd.Env, env...)
	output := &text.Head{Limit: maxOutput}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it succeeded, although a child still has its output open
		return nil
	}
	if said := text.OneLine(output.String()); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, text.Shorten(said, maxShownOutput))
	}
	return err
}
