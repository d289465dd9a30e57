package checkup

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// BundleFlag is for a bug report.
func BundleFlag() cli.Flag {
	return &cli.StringFlag{Name: "bundle", Usage: "also write what a bug report needs to `FILE` (.tar.gz), without secrets"}
}

// Bundle is the file of that flag while it is written; a nil one is for a command without it. The
// caller chooses what goes into the file. What is not known to be harmless is removed.
type Bundle struct {
	program command.Program
	file    *os.File
	gzip    *gzip.Writer
	tar     *tar.Writer
	err     error // the first one
}

// OpenBundle creates the file of the flag before anything else is done; nil without it. Only its
// owner can read it. A file that exists is an error: it is not overwritten.
func OpenBundle(c *cli.Context, p command.Program) (*Bundle, error) {
	path := c.String("bundle")
	if path == "" {
		return nil, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, command.UsageError("--bundle: %s exists already: remove it, or choose another name", path)
	}
	if err != nil {
		return nil, command.UsageError("--bundle: %w", err)
	}
	b := &Bundle{program: p, file: file, gzip: gzip.NewWriter(file)}
	b.tar = tar.NewWriter(b.gzip)
	return b, nil
}

// AddText adds a text without its secrets.
func (b *Bundle) AddText(name, text string) { b.add(name, []byte(redact(text)), nil) }

// AddJSON adds a value as JSON, without its secrets.
func (b *Bundle) AddJSON(name string, value any) {
	data, err := cleanJSON(value)
	b.add(name, data, err)
}

// AddPolicy adds a policy file without its secrets, or why that isn't possible.
func (b *Bundle) AddPolicy(name string, data []byte, err error) {
	if err == nil {
		data, err = cleanPolicy(data)
	}
	if err != nil {
		b.AddText(name, "left out: "+err.Error()+"\n")
		return
	}
	b.add(name, data, nil)
}

func (b *Bundle) add(name string, data []byte, err error) {
	header := b.tar.WriteHeader(&tar.Header{Name: "genv-bundle/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.program.Now()})
	_, body := b.tar.Write(data)
	b.err = cmp.Or(b.err, err, header, body)
}

// Write adds the document and what is known about this machine, then what more adds, and
// completes the file. If that fails, no file is left.
func (b *Bundle) Write(ctx context.Context, document any, more func(*Bundle)) error {
	if b == nil {
		return nil
	}
	b.AddText("README.txt", readme)
	b.AddJSON("doctor.json", document)
	b.AddJSON("machine.json", b.machine(ctx))
	if log := journal(ctx); log != "" {
		b.AddText("journal.txt", log)
	}
	if more != nil {
		more(b)
	}
	if err := errors.Join(b.err, b.tar.Close(), b.gzip.Close(), b.file.Sync(), b.file.Close()); err != nil {
		b.Abandon() // it would be cut short
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

// Abandon removes the file, since nothing was found out.
func (b *Bundle) Abandon() {
	if b != nil {
		_ = b.file.Close()
		_ = os.Remove(b.file.Name())
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

// machine is the software of the machine on which genv runs. What is unknown is empty.
func (b *Bundle) machine(ctx context.Context) map[string]any {
	path, _ := os.Executable()
	variables := []string{} // names alone
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "GENV_") || strings.HasPrefix(name, "CUDA_") || strings.HasPrefix(name, "LC_") ||
			slices.Contains([]string{"LANG", "NO_COLOR", "TERM", "SSH_AUTH_SOCK", "SUDO_USER", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"}, name) {
			variables = append(variables, name)
		}
	}
	slices.Sort(variables)
	return map[string]any{
		"genv": doctor.Program{Path: path, Version: b.program.Version, Protocol: agent.Version}, "go": runtime.Version(),
		"platform": runtime.GOOS + "/" + runtime.GOARCH, "system": doctor.SystemHere(), "openssh": strings.TrimSpace(output(ctx, "ssh", "-V")),
		"uid": os.Geteuid(), "variables": variables,
	}
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

// Run runs a program in the C locale, and returns the end of what it printed on stdout and stderr.
func Run(ctx context.Context, program string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return out[max(0, len(out)-maxProgram):], err
}

// output is what a program printed; empty if it failed.
func output(ctx context.Context, program string, args ...string) string {
	out, err := Run(ctx, program, args...)
	if err != nil {
		return ""
	}
	return string(out)
}

// cleanJSON is a value as JSON without secrets.
func cleanJSON(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	var plain any
	if err := decoder.Decode(&plain); err != nil {
		return nil, err
	}
	cleaned, err := json.MarshalIndent(values(plain), "", "  ")
	return append(cleaned, '\n'), err
}
