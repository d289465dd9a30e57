package checkup

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/doctor/bundle"
)

// BundleFlag is for a bug report.
func BundleFlag() cli.Flag {
	return &cli.StringFlag{Name: "bundle", Usage: "also write what a bug report needs to `FILE` (.tar.gz), without secrets"}
}

// Bundle is the file of that flag. A nil one is for a command without it.
type Bundle struct {
	*bundle.File
	program command.Program
}

// OpenBundle creates the file of the flag before anything else is done; nil without it.
func OpenBundle(c *cli.Context, p command.Program) (*Bundle, error) {
	path := c.String("bundle")
	if path == "" {
		return nil, nil
	}
	file, err := bundle.Create(path, p.Now)
	if err != nil {
		return nil, command.UsageError("--bundle: %w", err)
	}
	return &Bundle{file, p}, nil
}

// Write adds the document and what is known about this machine, then what more adds, and
// completes the file. If that fails, no file is left.
func (b *Bundle) Write(ctx context.Context, document any, more func(*bundle.File) error) error {
	if b == nil {
		return nil
	}
	err := b.AddText("README.txt", readme)
	for _, part := range []struct {
		name  string
		value any
	}{{"doctor.json", document}, {"machine.json", b.machine(ctx)}} {
		if err == nil {
			err = b.AddJSON(part.name, part.value)
		}
	}
	if log := journal(ctx); err == nil && log != "" {
		err = b.AddText("journal.txt", log)
	}
	if err == nil && more != nil {
		err = more(b.File)
	}
	if err != nil {
		b.Discard()
		return err
	}
	return b.Close()
}

// Abandon removes the file, since nothing was found out.
func (b *Bundle) Abandon() {
	if b != nil {
		b.Discard()
	}
}

const readme = `What genv found out for a bug report. Look through it before you pass it on.

doctor.json     what genv doctor or genv remote doctor found
machine.json    the software of the machine on which it ran, and the names of the variables that are set
journal.txt     the last lines of genv's units in its journal, if there are any
hosts.json      the hosts, as the inventory has them
ssh.json        how ssh_config says that they are reached
policy.yaml     the policy file, without hooks and other texts that can hold secrets

Private keys, passwords, tokens, web addresses behind their host, values of environment variables, and
arguments of configured commands are not in here: "[removed]" is in their place.
`

// machineFacts are the software of the machine on which genv runs.
type machineFacts struct {
	Genv      doctor.Program `json:"genv"`
	Go        string         `json:"go"`
	Platform  string         `json:"platform"`
	System    doctor.System  `json:"system"`
	OpenSSH   string         `json:"openssh,omitempty"`
	UID       int            `json:"uid"`
	Variables []string       `json:"variables"` // names alone
}

func (b *Bundle) machine(ctx context.Context) machineFacts {
	m := machineFacts{
		Genv: doctor.Program{Version: b.program.Version, Protocol: agent.Version}, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, UID: os.Geteuid(), Variables: []string{},
	}
	m.Genv.Path, _ = os.Executable() // empty is unknown, as below
	release, _ := os.ReadFile("/etc/os-release")
	m.System.OS = doctor.OSName(string(release))
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.System.Kernel, m.System.Arch = unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Machine[:])
	}
	m.OpenSSH = strings.TrimSpace(output(ctx, "ssh", "-V"))
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "GENV_") || strings.HasPrefix(name, "CUDA_") || strings.HasPrefix(name, "LC_") ||
			slices.Contains([]string{"LANG", "NO_COLOR", "TERM", "SSH_AUTH_SOCK", "SUDO_USER", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"}, name) {
			m.Variables = append(m.Variables, name)
		}
	}
	slices.Sort(m.Variables)
	return m
}

// journal is the end of the logs of genv's units; empty where there is none.
func journal(ctx context.Context) string {
	args := []string{"--no-pager", "--quiet", "--lines=300", "--output=short-iso"}
	for _, unit := range doctor.Units() {
		args = append(args, "--unit="+unit)
	}
	return output(ctx, "journalctl", args...)
}

const (
	programTimeout = 5 * time.Second
	maxProgram     = 512 << 10 // of its output, the end, in bytes
)

// output is what a program printed, on stdout and stderr; empty if it failed.
func output(ctx context.Context, program string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return ""
	}
	return string(out[max(0, len(out)-maxProgram):])
}
