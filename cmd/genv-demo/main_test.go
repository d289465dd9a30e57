package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if built != "" {
			_ = os.RemoveAll(built)
		}
		os.Exit(code)
	}))
}

// built is the folder of the genv that the tests show.
var built string

// runDemo runs the whole program and looks whether anything is left of it.
func runDemo(t *testing.T, ctx context.Context, out io.Writer, args ...string) (code int, stderr string) { //nolint:revive // t first, as in all helpers
	t.Helper()
	player, folder := program(t, "genv-demo"), t.TempDir()
	t.Setenv("TMPDIR", folder)
	before := children(t)
	var errors bytes.Buffer
	code = run(ctx, args, out, &errors, func(name string) string {
		if name == playerVariable {
			return player
		}
		return ""
	})
	left := proctest.Try(os.ReadDir(folder)).OK(t)
	require.Empty(t, left)
	require.Equal(t, before, children(t), "processes are left")
	return code, errors.String()
}

// children lists this process's children, of all its threads (man 5 proc_tid_children).
func children(t *testing.T) string {
	t.Helper()
	files := proctest.Try(filepath.Glob("/proc/self/task/*/children")).OK(t)
	var all strings.Builder
	for _, file := range files {
		data, _ := os.ReadFile(file) // a thread may end meanwhile
		all.Write(data)
	}
	return all.String()
}

func genv(t *testing.T) string { return program(t, "genv") }

// program builds genv or genv-demo, once for all tests.
func program(t *testing.T, name string) string {
	t.Helper()
	if built == "" {
		built = proctest.Try(os.MkdirTemp("", "genv-demo-test-")).OK(t)
	}
	program := filepath.Join(built, name)
	if _, err := os.Stat(program); err != nil {
		require.NoError(t, testfleet.InstallProgram("cmd/"+name, program))
	}
	return program
}

func TestTheDemoEndsWellAndLeavesNothing(t *testing.T) {
	var out bytes.Buffer
	code, stderr := runDemo(t, t.Context(), &out, "-genv", genv(t))
	require.Zero(t, code, out.String()+stderr)
	for line := range strings.Lines(stderr) {
		require.Regexp(t, "Resolved after|^.* 4 hosts answered, 4 findings: 4 processes would end", line) // in a loop, and after a dry run
	}
	require.NotContains(t, out.String(), "\x1b") // no terminal, no colours
	for _, line := range []string{
		"is not running in a GPU environment", "is using non-attached GPU(s) 3", "over its capacity of 20g",
		"User erin is using 4 devices on 2 hosts which is 2 more than the maximum allowed",
		"[gpu-04] Detaching environment", "Total 24 devices with 14 available on 4 hosts",
		"0 of 4 GPUs are free on 1 host", "2 of 4 GPUs are free on 1 host",
		"the 4 processes that broke a rule have ended", "the dry run had changed nothing",
		"User frank has 2 GPUs of model H100*, and cap h100 allows 1 GPU (waits for 30m)", "allows 1 GPU\nGive back GPUs that you need less, such as these: kill ",
	} {
		require.Contains(t, out.String(), line)
	}
	require.Equal(t, 4, strings.Count(out.String(), "Terminating process"))
}

func TestAnotherPortWhenItIsTaken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.77.0.3:7722")
	for begun := time.Now(); err != nil && time.Since(begun) < 20*time.Second; time.Sleep(50 * time.Millisecond) {
		listener, err = net.Listen("tcp", "127.77.0.3:7722") // another demo may be about to end
	}
	if err == nil { // else another program keeps it, which is as good
		defer listener.Close()
	}
	var out bytes.Buffer
	code, stderr := runDemo(t, t.Context(), &out, "-genv", genv(t))
	require.Zero(t, code, out.String()+stderr)
	require.Contains(t, out.String(), "Another program listens on port 7722")
}

func TestAGenvThatDoesNothingIsFoundOut(t *testing.T) {
	var out bytes.Buffer
	code, _ := runDemo(t, t.Context(), &out, "-genv", "/bin/true")
	require.Equal(t, exitWrong, code)
	require.Equal(t, 4, strings.Count(out.String(), "still runs"), out.String())
	require.Contains(t, out.String(), "erin on gpu-04 is attached to GPUs [0 1 2], not [0]")
}

func TestAGenvThatFailsEndsTheDemo(t *testing.T) {
	code, stderr := runDemo(t, t.Context(), io.Discard, "-genv", "/bin/false")
	require.Equal(t, exitWrong, code)
	require.Contains(t, stderr, "genv remote devices ended with exit status 1")
}

// interrupter stops the demo at a text.
type interrupter struct {
	bytes.Buffer
	text string
	stop func()
}

func (i *interrupter) Write(p []byte) (int, error) {
	n, err := i.Buffer.Write(p)
	if strings.Contains(i.String(), i.text) {
		i.stop()
	}
	return n, err
}

func TestInterruptLeavesNothing(t *testing.T) {
	for _, text := range []string{"4 GPU hosts", "Now for real", "Terminating"} {
		ctx, cancel := context.WithCancel(t.Context())
		code, stderr := runDemo(t, ctx, &interrupter{text: text, stop: cancel}, "-genv", genv(t))
		require.Equal(t, exitInterrupted, code, text)
		require.Contains(t, stderr, "interrupted")
	}
}

// TestKeep: the page of a kept demo is the one that it prints, and shows its fleet and
// the processes that break a rule, one of them to its user; Ctrl-C ends everything and is not a failure.
func TestKeep(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out testfleet.ProgramOutput
	go func() {
		defer cancel()
		assert.Eventually(t, func() bool {
			page := regexp.MustCompile(`page +(http\S+)`).FindStringSubmatch(out.String())
			ended := strings.Count(out.String(), "Terminating process") > 4 // of the demo, and then of the miner and of bob
			return page != nil && ended && strings.Contains(get(page[1]+"findings"), "miner") && strings.Contains(get(page[1]+"u/bob"), "is using non-attached GPU(s) 3")
		}, time.Minute, 200*time.Millisecond, "the pages never showed the miner and bob's notebook")
	}()
	code, stderr := runDemo(t, ctx, &out, "-genv", genv(t), "-keep")
	require.Zero(t, code, out.String()+stderr)
	require.NotContains(t, stderr, "was judged", "what is found can be ended")
	for _, command := range []string{"genv remote top", "gpus --free", "wait --gpus 2", "genv remote history"} {
		require.Contains(t, out.String(), command)
	}
	require.Contains(t, out.String(), "Everything that the demo started has ended.")
}

// get is the body of a page; empty while it can't be had.
func get(url string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

func TestWrongUsage(t *testing.T) {
	code, stderr := runDemo(t, t.Context(), io.Discard, "-genv", "/nonexistent/genv")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "make build")
	code, _ = runDemo(t, t.Context(), io.Discard, "-nonsense")
	require.Equal(t, exitUsage, code)
}

// The example of a hosts file works unchanged with the demo's fleet.
func TestTheExampleDescribesTheDemosHosts(t *testing.T) {
	hosts, err := inventory.Load(inventory.Selection{Hosts: []string{"../../hosts.example.yaml"}}, func(path string) (io.ReadCloser, error) { return os.Open(path) })
	require.NoError(t, err)
	require.Len(t, hosts, len(hostSpecs))
	for i, spec := range hostSpecs {
		require.Equal(t, spec.name, hosts[i].Name)
		require.Equal(t, spec.address, hosts[i].Address)
		require.Equal(t, port, hosts[i].Port)
	}
}

// An ordinary user's processes have a uid that isn't root's: one account then plays all of the demo's users.
func TestTheDemoRunsForAnOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the other tests run as an ordinary user already")
	}
	account, err := user.Lookup("nobody") // one with a name, which is not that of any of the demo's users
	if err != nil {
		t.Skip("skipped:", err)
	}
	uid := proctest.Try(strconv.Atoi(account.Uid)).OK(t)
	dir := proctest.PublicDir(t, 0o755)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tmp"), 0o700))
	require.NoError(t, os.Chown(filepath.Join(dir, "tmp"), uid, uid))
	for _, program := range []string{"genv", "genv-demo"} {
		require.NoError(t, testfleet.InstallProgram("cmd/"+program, filepath.Join(dir, program)))
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "genv-demo"), "-genv", filepath.Join(dir, "genv"))
	cmd.Dir, cmd.Env = dir, []string{"PATH=/usr/bin:/bin", "HOME=" + filepath.Join(dir, "tmp"), "TMPDIR=" + filepath.Join(dir, "tmp")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	out := proctest.Output(t, cmd)
	require.Contains(t, out, "the 4 processes that broke a rule have ended")
}
