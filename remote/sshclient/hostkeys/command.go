package hostkeys

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// nameToken is the token %H of ssh_config's KnownHostsCommand, which is only known in the handshake.
const nameToken = "\x00H"

// Ask runs ssh_config's KnownHostsCommand, as config.HostConfig has it, and returns the host with
// the lines that it printed for the name. As in ssh, a command that fails is an error, and one that
// isn't there is not.
func (s *Store) Ask(ctx context.Context, h *Host, command []string, name Name) (*Host, error) {
	with, program := *h, command[0]
	if _, err := os.Stat(program); err != nil || !filepath.IsAbs(program) {
		missing := fmt.Errorf("KnownHostsCommand %s can't be run: it has to be the absolute path of a program", program)
		with.missing = slices.Concat(h.missing, []error{missing})
		return &with, nil
	}
	var arguments []string
	for _, argument := range command[1:] {
		arguments = append(arguments, strings.ReplaceAll(argument, nameToken, name.String()))
	}
	out, err := s.output(ctx, exec.CommandContext(ctx, program, arguments...)) //nolint:gosec // the administrator's own, and no shell
	if err != nil {
		return nil, fmt.Errorf("KnownHostsCommand %s: %w", program, err)
	}
	entries, _ := parse("KnownHostsCommand "+program, out)
	with.entries = slices.Concat(h.entries, newIndex(entries).of(name.String()))
	return &with, nil
}

const (
	maxOutput = 1 << 20         // of a command, in bytes
	grace     = 2 * time.Second // for its children, after its end
)

// output runs a command, made with the same ctx, in a process group of its own, and
// returns what it wrote to stdout. The error has the last line of its stderr.
func (s *Store) output(ctx context.Context, command *exec.Cmd) ([]byte, error) {
	select {
	case s.running <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-s.running }()
	out, stderr := &limited{limit: maxOutput}, &limited{limit: 4 << 10}
	command.Stdout, command.Stderr, command.WaitDelay = out, stderr, grace
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return unix.Kill(-command.Process.Pid, unix.SIGKILL) } // its children too
	err := command.Run()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if out.overflow {
		return nil, fmt.Errorf("it wrote more than %d MiB", maxOutput>>20)
	}
	if err != nil && stderr.kept.Len() > 0 {
		lines := strings.Split(strings.TrimSpace(stderr.kept.String()), "\n")
		err = fmt.Errorf("%w: %s", err, text.Printable(lines[len(lines)-1]))
	}
	return out.kept.Bytes(), err
}

// limited keeps the beginning of what is written to it.
type limited struct {
	kept     bytes.Buffer
	limit    int
	overflow bool
}

func (l *limited) Write(p []byte) (int, error) {
	room := min(len(p), l.limit-l.kept.Len())
	l.overflow = l.overflow || room < len(p)
	_, _ = l.kept.Write(p[:room]) // it never fails
	return len(p), nil
}
