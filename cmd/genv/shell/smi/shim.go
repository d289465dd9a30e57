package smi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// Shim answers one call of nvidia-smi.
type Shim struct {
	Real    string   // the real program, by its path
	Args    []string // without the program's name
	Environ []string
	Bypass  bool // don't read the call: outside an environment, or with GENV_BYPASS=1
	// View is asked only for calls that are understood, and before nvidia-smi runs.
	View           func() (View, error)
	Stdout, Stderr io.Writer
	// Exec becomes another program, as syscall.Exec: it returns only an error.
	Exec func(path string, argv, environ []string) error
}

// Run answers the call and returns the exit status. An error means that the real
// program could not be started.
func (s Shim) Run(ctx context.Context) (status int, err error) {
	call, ok := Parse(s.Args)
	if s.Bypass || !ok {
		return s.handOver()
	}
	view, err := s.View()
	if err != nil {
		_, _ = fmt.Fprintf(s.Stderr, "genv: showing all devices of this host: %v\n", err)
		return s.handOver()
	}
	if call.Outside(view) {
		_, err := io.WriteString(s.Stdout, NoDevices)
		return NoDevicesStatus, err
	}
	return s.rewritten(ctx, call, view)
}

// rewritten runs the real program and shows its output in the view. Errors, and what
// isn't understood, are shown as they are.
func (s Shim) rewritten(ctx context.Context, call Call, view View) (int, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, s.Real, call.Args(view)...)
	cmd.Env, cmd.Stdout, cmd.Stderr = s.Environ, &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("start %s: %w", s.Real, err)
	}
	rest, remarks, complete := nvidiasmi.Split(nvidiasmi.RunResult{Stdout: stdout.Bytes(), ExitCode: cmd.ProcessState.ExitCode()})
	out, ok := call.Rewrite(rest, view)
	switch {
	case complete && ok:
		_, err = s.Stdout.Write(append(out, remarks...))
		_, _ = s.Stderr.Write(stderr.Bytes())
		return shell.ExitStatus(cmd.ProcessState), err
	case call.form == gpus || call.form == apps:
		return s.handOver() // the output has one column more than the user wants
	}
	_, _ = s.Stderr.Write(stderr.Bytes())
	_, err = s.Stdout.Write(stdout.Bytes())
	return shell.ExitStatus(cmd.ProcessState), err
}

func (s Shim) handOver() (int, error) {
	argv := append([]string{s.Real}, s.Args...)
	if err := s.Exec(s.Real, argv, s.Environ); err != nil {
		return 0, fmt.Errorf("start %s: %w", s.Real, err)
	}
	return 0, nil
}

// Rewrite shows what of an output is in the view; not ok when the output isn't
// what it should be.
func (c Call) Rewrite(out []byte, v View) ([]byte, bool) {
	var text string
	var ok bool
	switch c.form {
	case table:
		text, ok = rewriteTable(string(out), v)
	case list:
		text, ok = rewriteList(string(out), v)
	case query:
		text, ok = c.rewriteSections(string(out), v, textDialect)
	case xml:
		text, ok = c.rewriteSections(string(out), v, xmlDialect)
	case gpus:
		text, ok = c.rewriteCSV(string(out), v.keyColumn(), v.gpuRow)
	case apps:
		text, ok = c.rewriteCSV(string(out), "pid", v.appRow)
	}
	if !ok {
		return out, false
	}
	return []byte(text), true
}
