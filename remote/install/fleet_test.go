package install_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/install"
	"github.com/seed-3119e985/genv/remote/install/onhost"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestMain is also the program that is installed: this one, see genv.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(runGenv(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

const versionMark = "\ngenv-test-version "

// genv is this program, which knows what the installation runs, with a version at its end.
func genv(t *testing.T, version string) *install.Binary {
	t.Helper()
	return program(append(proctest.ReadFile(t, "/proc/self/exe"), versionMark+version...), runtime.GOARCH)
}

func runGenv(args []string) int {
	own, err := os.ReadFile("/proc/self/exe")
	version := string(own[bytes.LastIndex(own, []byte(versionMark))+len(versionMark):])
	switch command := strings.Join(args, " "); {
	case err != nil:
	case command == "version":
		_, err = fmt.Println(version)
	case command == "usage serve" && os.Getuid() == 0:
		server := &agent.Responder{ReadToken: true, Greeting: agent.NewGreeting(version), Idle: time.Minute, Handler: func(context.Context, agent.Call) ([]byte, error) {
			return nil, errors.New("it only greets")
		}}
		err = server.Serve(context.Background(), os.Stdin, os.Stdout)
	case strings.HasPrefix(command, "host install"):
		h := onhost.Host{Program: "/proc/self/exe", Out: stepper{}, Getenv: os.Getenv, Run: (*exec.Cmd).Run}
		err = h.Serve(context.Background(), os.Stdin, slices.Contains(args, "--plan"))
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// stepper does something after a step that is reported: see atStep.
type stepper struct{}

func (stepper) Write(p []byte) (int, error) {
	n, err := os.Stdout.Write(p)
	if strings.HasSuffix(string(p), " step "+os.Getenv("AT_STEP")+"\n") {
		do := exec.Command("sh", "-c", os.Getenv("AT_DO"))
		do.Env = append(os.Environ(), fmt.Sprintf("ME=%d", os.Getpid()))
		_ = do.Run() // the program may be killed
	}
	return n, err
}

// fleet is a host, into which is installed.
type fleet struct {
	*sshd.Fleet
	t      *testing.T
	client *sshclient.Client
}

// sudoPath are the folders that sudo's own path has there.
func (f *fleet) sudoPath() string {
	return filepath.Join(f.Dir, "bin") + ":" + filepath.Join(f.Dir, "driver")
}

func startFleet(t *testing.T, hosts ...sshd.HostOptions) *fleet {
	t.Helper()
	f := &fleet{Fleet: sshd.Start(t, sshd.Options{Hosts: hosts, Installable: true}), t: t}
	f.client = sshclient.New(sshclient.Options{ConfigFile: f.SSHConfig()})
	t.Cleanup(f.client.Close)
	return f
}

// startHost is a host, an earlier genv for it, and the present one.
func startHost(t *testing.T) (f *fleet, old, current *install.Binary) {
	t.Helper()
	return startFleet(t, sshd.Named("gpu-01")...), genv(t, "v1"), genv(t, "v2")
}

// done does something with a host that succeeds.
func done(t *testing.T, do func(context.Context, remote.Host) (*onhost.Outcome, error), h remote.Host) *onhost.Outcome {
	t.Helper()
	return proctest.Try(do(t.Context(), h)).OK(t)
}

func (f *fleet) installer(programs ...*install.Binary) *install.Installer {
	i := &install.Installer{Runner: f.client, Programs: map[string]*install.Binary{}, Options: onhost.Options{Upgrade: true}, Timeout: time.Minute}
	for _, p := range programs {
		i.Programs[p.Arch] = p
	}
	return i
}

func (f *fleet) place() string { return filepath.Join(f.Local(), "bin/genv") }

// reset gives the host a genv with all that belongs to it, or none.
func (f *fleet) reset(p *install.Binary) {
	f.t.Helper()
	shims, rules := filepath.Join(f.Local(), "lib/genv/shims"), filepath.Join(f.SudoersFolder(), remote.SudoersFile)
	for _, path := range []string{f.place(), filepath.Join(f.Local(), "lib"), rules} {
		require.NoError(f.t, os.RemoveAll(path))
	}
	if p == nil {
		return
	}
	require.NoError(f.t, proctest.WriteProgram(f.place(), p.Data))
	require.NoError(f.t, os.WriteFile(rules, []byte(onhost.Sudoers(remote.DefaultGenv, "", string(sshd.MaySudo))), 0o440))
	require.NoError(f.t, os.MkdirAll(shims, 0o755))
	for _, shim := range []string{"docker", "nvidia-smi"} {
		require.NoError(f.t, os.Symlink("../../../bin/genv", filepath.Join(shims, shim)))
	}
}

// forget removes what isn't the program, so that an upgrade has all steps.
func (f *fleet) forget() {
	require.NoError(f.t, os.RemoveAll(filepath.Join(f.SudoersFolder(), remote.SudoersFile)))
	require.NoError(f.t, os.RemoveAll(filepath.Join(f.Local(), "lib")))
}

var host = remote.Host{Name: "gpu-01"}

// on runs a line on the host.
func (f *fleet) on(line string) (string, error) {
	out, err := f.client.Run(f.t.Context(), host, remote.Command{Args: []string{"sh", "-c", line}})
	return string(out.Stdout) + string(out.Stderr), err
}

// requireWorking requires that the host has one of the programs, or none if there is a nil among them, that sudo takes
// all of sudoers, and that a genv that is there works under the rules that are there.
func (f *fleet) requireWorking(programs ...*install.Binary) {
	f.t.Helper()
	data, err := os.ReadFile(f.place())
	known := false
	for _, p := range programs {
		known = known || p == nil && os.IsNotExist(err) || p != nil && bytes.Equal(p.Data, data)
	}
	require.True(f.t, known, "%d bytes are in the place of genv: %v", len(data), err)
	line := "sudo -n visudo -c"
	if data != nil {
		line += " && sudo -n genv version"
	}
	out, err := f.on(line)
	require.NoError(f.t, err, out)
}

// requireClean requires that no temporary file is left.
func (f *fleet) requireClean() {
	f.t.Helper()
	require.Empty(f.t, f.temporary())
}

func (f *fleet) temporary() (files []string) {
	for _, folder := range []string{filepath.Join(f.Local(), "bin"), filepath.Join(f.Local(), "lib/genv/shims"), f.SudoersFolder(), filepath.Join(f.Dir, "lib")} {
		found := proctest.Try(filepath.Glob(filepath.Join(folder, ".genv-*"))).OK(f.t)
		files = append(files, found...)
	}
	return files
}

// changed is a Runner that changes what is sent to a host.
type changed struct {
	remote.Runner
	change func(*remote.Command)
}

func (c changed) Run(ctx context.Context, h remote.Host, command remote.Command) (remote.Output, error) {
	c.change(&command)
	return c.Runner.Run(ctx, h, command)
}

// atStep has the script, or the program that it runs, do something at a step. $ME is its PID.
func atStep(name, do string) func(*remote.Command) {
	const report = `step() { say step "$1"; }`
	do = "export AT_STEP=" + name + " AT_DO=" + remote.Quote(do) + `; step() { say step "$1"; [ "$1" != ` + name + " ] || { ME=$$; " + do + "; }; }"
	return func(c *remote.Command) { c.Stdin = bytes.ReplaceAll(c.Stdin, []byte(report), []byte(do)) }
}

var steps = []string{"begin", "upload", "checksum", "run", "visudo", "lock", "binary", "sudoers", "shims", "sync"}

// TestKilledAtEachStep: the shell or the program on the host is killed after each step. The host has the old genv or the new one, and
// valid sudoers; and the next installation succeeds and leaves nothing behind.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	f, old, current := startHost(t)
	killed := func(name, step string, before *install.Binary, reset func()) {
		t.Run(name+" "+step, func(t *testing.T) {
			f.t = t
			reset()
			i := f.installer(current)
			i.Runner = changed{f.client, atStep(step, "kill -9 $ME")}
			require.ErrorContains(t, proctest.Try(i.Install(t.Context(), host)).Err, "interrupted after the step "+step)
			f.requireWorking(before, current)

			require.Equal(t, "v2", done(t, f.installer(current).Install, host).Now.Version)
			f.requireWorking(current)
			f.requireClean()
		})
	}
	for _, step := range steps {
		killed("upgrade", step, old, func() { f.reset(old); f.forget() })
	}
	for _, step := range []string{"upload", "binary", "sudoers"} {
		killed("first", step, nil, func() { f.reset(nil) })
	}
	killed("program alone", "binary", old, func() { f.reset(old) })
}

// TestCutConnection: the connection is cut in a step. The host carries on or gives up, but does no half work.
func TestCutConnection(t *testing.T) {
	t.Parallel()
	f, old, current := startHost(t)
	for _, step := range []string{"upload", "run", "lock", "binary", "sudoers", "sync"} {
		t.Run(step, func(t *testing.T) {
			f.t = t
			f.reset(old)
			f.forget()
			arrived, ended := filepath.Join(f.Dir, "arrived"), filepath.Join(f.Dir, "ended")
			i := f.installer(current)
			i.Runner = changed{f.client, atStep(step, ": >"+arrived+"; while [ -e "+arrived+" ]; do sleep 0.02; done; : >"+ended)}
			failed := make(chan error, 1)
			go func() {
				_, err := i.Install(t.Context(), host)
				failed <- err
			}()
			awaitFile(t, arrived)
			require.NoError(t, f.CutConnections())
			require.Error(t, <-failed)
			f.requireWorking(old, current)
			require.NoError(t, os.Remove(arrived))
			awaitFile(t, ended)
			require.NoError(t, os.Remove(ended))

			done(t, f.installer(current).Install, host)
			f.requireWorking(current)
			require.Eventually(t, func() bool { return len(f.temporary()) == 0 }, 20*time.Second, 20*time.Millisecond)
		})
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := os.Stat(path)
		return err == nil
	}, 30*time.Second, 5*time.Millisecond)
}

// TestAtTheSameTime: several installations on one host, of two versions, end with one of them whole.
func TestAtTheSameTime(t *testing.T) {
	t.Parallel()
	f := startFleet(t, sshd.Named("gpu-01")...)
	programs := []*install.Binary{genv(t, "v1"), genv(t, "v2")}
	for _, before := range []*install.Binary{nil, genv(t, "v0")} {
		f.reset(before)
		var running sync.WaitGroup
		errs := make([]error, 4)
		for n := range errs {
			i := f.installer(programs[n%2])
			i.Options.Account = []string{"operator", "alice"}[n/2]
			running.Go(func() { _, errs[n] = i.Install(t.Context(), host) })
		}
		running.Wait()
		done := 0
		for _, err := range errs {
			if err == nil {
				done++
				continue
			}
			require.Regexp(t, "another process changed the program meanwhile|runs genv v[12] there", err.Error())
		}
		require.NotZero(t, done)
		for n, err := range errs { // which all say that they are done, or not
			rules := proctest.ReadFile(t, filepath.Join(f.SudoersFolder(), remote.SudoersFile))
			if account := []string{"operator", "alice"}[n/2]; err == nil {
				require.Contains(t, string(rules), remote.SudoersLine(account, remote.DefaultGenv)[:len(account)])
			}
		}
		f.requireWorking(programs...)
		f.requireClean()
	}
}

// TestHostsThatShareThePlace: /usr/local may be that of a file server, and all hosts install at the same time.
func TestHostsThatShareThePlace(t *testing.T) {
	t.Parallel()
	f, old, current := startHost(t)
	const run = `"$1" host install`
	const onOther = `unshare -mu sh -c 'echo $$ >/proc/sys/kernel/hostname; for d in /run /etc/sudoers.d; do mount -t tmpfs -o mode=755 none $d; done; exec "$@"' sh `
	for _, before := range []*install.Binary{nil, old} {
		f.reset(before)
		i := f.installer(current)
		i.Runner = changed{f.client, func(c *remote.Command) { c.Stdin = bytes.ReplaceAll(c.Stdin, []byte(run), []byte(onOther+run)) }}
		for _, r := range remote.Each(t.Context(), []remote.Host{host, host, host, host, host, host}, 6, i.Install) {
			require.NoError(t, r.Err)
		}
		f.requireWorking(current)
		f.requireClean()
	}
}

// TestAnUploadThatIsChanged: what arrives with another checksum, or cut short, is not installed.
func TestAnUploadThatIsChanged(t *testing.T) {
	t.Parallel()
	f, old, current := startHost(t)
	f.reset(old)
	for name, upload := range map[string]func(io.Reader) io.Reader{
		"cut":   func(r io.Reader) io.Reader { return io.LimitReader(r, 100_000) },
		"more":  func(r io.Reader) io.Reader { return io.MultiReader(r, strings.NewReader("x")) },
		"noise": func(io.Reader) io.Reader { return io.LimitReader(rand.Reader, int64(len(current.Data))) },
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			i := f.installer(current)
			i.Runner = changed{f.client, func(c *remote.Command) {
				if c.Upload != nil {
					c.Upload = upload(c.Upload)
				}
			}}
			require.ErrorContains(t, proctest.Try(i.Install(t.Context(), host)).Err, "another checksum")
			f.requireWorking(old)
			f.requireClean()
		})
	}
}

// TestUsersCannotPreventAnInstallation: any user of the host can open the folder of the program and lock it. That
// prevents neither an installation nor, above all, the end of the right to run genv.
func TestUsersCannotPreventAnInstallation(t *testing.T) {
	t.Parallel()
	f := startFleet(t, sshd.Named("gpu-01")...)
	current := genv(t, "v2")
	f.reset(genv(t, "v1"))
	out, err := f.on("for d in /usr/local/bin /etc/sudoers.d /run; do flock -x $d sleep 60 </dev/null >/dev/null 2>&1 & echo $!; done; sleep 0.3")
	require.NoError(t, err, out)
	defer func() {
		out, err := f.on("kill " + strings.Join(strings.Fields(out), " "))
		require.NoError(t, err, out)
	}()
	i := f.installer(current)
	i.Timeout = 50 * time.Second
	done(t, i.Install, host)
	f.requireWorking(current)
	f.requireClean()
	done(t, i.Uninstall, host)
	require.NoFileExists(t, f.place())
}
