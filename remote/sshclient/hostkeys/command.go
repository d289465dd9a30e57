package hostkeys

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Reason is why KnownHostsCommand is run (ssh_config(5), TOKENS, %I).
type Reason string

// The reasons of OpenSSH. Before the handshake the command is asked for the keys of
// the host's name without its port, which decide on the algorithms only.
const (
	Order    Reason = "ORDER"
	HostName Reason = "HOSTNAME"
	Address  Reason = "ADDRESS"
)

// Question is what KnownHostsCommand is asked.
type Question struct {
	Command []string // as config.HostConfig has it
	Reason  Reason
	Name    Name
	Key     ssh.PublicKey // nil before the handshake
}

// Ask runs ssh_config's KnownHostsCommand and returns the host with the lines that
// it printed for the name. As in ssh, a command that fails is an error, and one that
// isn't there is not.
func (s *Store) Ask(ctx context.Context, h *Host, q Question, rules Rules) (*Host, error) {
	with := *h
	command := q.expand(rules)
	if _, err := os.Stat(command[0]); err != nil || !filepath.IsAbs(command[0]) {
		missing := fmt.Errorf("KnownHostsCommand %s can't be run: it has to be the absolute path of a program", command[0])
		with.missing = slices.Concat(h.missing, []error{missing})
		return &with, nil
	}
	out, err := s.output(ctx, exec.CommandContext(ctx, command[0], command[1:]...)) //nolint:gosec // the administrator's own, and no shell
	if err != nil {
		return nil, fmt.Errorf("KnownHostsCommand %s: %w", command[0], err)
	}
	entries, _ := parse("KnownHostsCommand "+command[0], out)
	with.entries = slices.Concat(h.entries, newIndex(entries).of(q.Name.String()))
	return &with, nil
}

// expand inserts what is only known now, in place of the tokens that
// config.HostConfig has marked.
func (q Question) expand(rules Rules) []string {
	kind, blob, fingerprint := "NONE", "NONE", "NONE"
	if q.Key != nil {
		kind, blob, fingerprint = q.Key.Type(), base64.StdEncoding.EncodeToString(q.Key.Marshal()), Fingerprint(q.Key, rules.MD5)
	}
	tokens := strings.NewReplacer("\x00H", q.Name.String(), "\x00I", string(q.Reason), "\x00t", kind, "\x00K", blob, "\x00f", fingerprint)
	expanded := make([]string, len(q.Command))
	for i, argument := range q.Command {
		expanded[i] = tokens.Replace(argument)
	}
	return expanded
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
