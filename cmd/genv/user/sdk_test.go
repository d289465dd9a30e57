package user_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// python is Debian's own, which has python3-psutil.
const python = "/usr/bin/python3"

// sdkClient is testdata/sdk/client.py at work.
type sdkClient struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (u *account) sdk(args ...string) *sdkClient {
	u.t.Helper()
	file, err := filepath.Abs("testdata/sdk/client.py")
	require.NoError(u.t, err)
	cmd := u.command(append([]string{python, "-B", file}, args...)...)
	in, err := cmd.StdinPipe()
	require.NoError(u.t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(u.t, err)
	cmd.Stderr = os.Stderr
	require.NoError(u.t, cmd.Start())
	c := &sdkClient{t: u.t, cmd: cmd, in: in, out: bufio.NewReader(out)}
	u.t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() }) // it has ended, or ends with its input
	return c
}

// says waits for what the client prints.
func (c *sdkClient) says(line string) {
	c.t.Helper()
	got, err := c.out.ReadString('\n')
	require.NoError(c.t, err, "the client has failed")
	require.Equal(c.t, line+"\n", got)
}

// end has the client go on after its last line.
func (c *sdkClient) end() {
	c.t.Helper()
	_, err := io.WriteString(c.in, "\n")
	require.NoError(c.t, err)
	require.NoError(c.t, c.cmd.Wait())
}

func needsPsutil(t *testing.T) {
	t.Helper()
	proctest.Need(t, exec.Command(python, "-c", "import psutil").Run() == nil, "python3-psutil")
}

// workLikeTheSDK does with genv's commands what `client.py work` does, and returns an error
// if a change of its own was lost.
func (u *account) workLikeTheSDK(pid snapshot.PID, eid, index string, rounds int) error {
	genv := func(want string, args ...string) error {
		out, err := u.command(append([]string{"genv"}, args...)...).Output()
		if err != nil || string(out) != want {
			return fmt.Errorf("%s: genv %q printed %q instead of %q: %w", eid, args, out, want, err)
		}
		return nil
	}
	if err := genv("", "envs", "activate", "--pid", pidText(pid), "--eid", eid); err != nil {
		return err
	}
	last, attached := "", ""
	for n := 1; n <= rounds; n++ {
		step, next := []string{"devices", "attach", "--eid", eid, "--index", index}, index
		if attached != "" {
			step, next = []string{"devices", "detach", "--eid", eid, "--index", index}, ""
		}
		for _, err := range []error{
			genv(last+"\n", "envs", "query", "--eid", eid, "--query", "config.gpus"),
			genv(attached+"\n", "devices", "find", "--eid", eid),
			genv("", "envs", "config", "--eid", eid, "gpus", "--count", strconv.Itoa(n)),
			genv(next+"\n", step...),
		} {
			if err != nil {
				return err
			}
		}
		last, attached = strconv.Itoa(n), next
	}
	return nil
}

// TestTheSDKWorksBesideGenv: clients of both kinds change one state folder at once, and no change is lost.
func TestTheSDKWorksBesideGenv(t *testing.T) {
	t.Parallel()
	needsPsutil(t)
	s := newStation(t)
	u := s.me()
	require.Zero(t, u.run("genv", "devices").Code) // makes the files
	require.Zero(t, u.run("genv", "envs", "activate", "--pid", pidText(startSleeper(t, u.uid)), "--eid", "first").Code)
	const rounds = 9 // odd, so that all are attached at the end
	var clients []*sdkClient
	var commands errgroup.Group
	want := map[string]string{"first": ""}
	for i := range 3 {
		python, ours := fmt.Sprintf("python-%d", i), fmt.Sprintf("go-%d", i)
		clients = append(clients, u.sdk("work", python, strconv.Itoa(i), strconv.Itoa(10*rounds+1)))
		pid := startSleeper(t, u.uid)
		commands.Go(func() error { return u.workLikeTheSDK(pid, ours, strconv.Itoa(i+3), rounds) })
		want[python], want[ours] = strconv.Itoa(i), strconv.Itoa(i+3)
	}
	require.NoError(t, commands.Wait())
	for _, client := range clients {
		client.says("done")
	}
	for eid, devices := range want {
		require.Equal(t, genvtest.Result{Out: devices + "\n"}, u.run("genv", "devices", "find", "--eid", eid), eid)
	}
	require.Equal(t, genvtest.Result{Out: fmt.Sprintf("%d\n", 10*rounds+1)}, u.run("genv", "envs", "query", "--eid", "python-1", "--query", "config.gpus"))
	u.sdk("check").ends()
	files := s.stateFiles()
	environments, err := snapshot.DecodeEnvironments([]byte(files["envs.json"]))
	require.NoError(t, err)
	require.Len(t, environments, len(want))
	_, err = snapshot.DecodeDevices([]byte(files["devices.json"]))
	require.NoError(t, err)

	for _, client := range clients { // their environments end with them
		client.end()
	}
	require.Eventually(t, func() bool { // one look may lack the time to read all of this user's processes
		return u.run("genv", "devices", "find", "--eid", "python-1") == genvtest.Result{Out: "\n"}
	}, time.Minute, 100*time.Millisecond)
	require.Equal(t, genvtest.Result{}, u.run("genv", "envs", "query", "--eid", "python-1", "--query", "eid"))
	u.sdk("check").ends()
}

// ends waits for a client that asks for nothing.
func (c *sdkClient) ends() {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Wait())
}

// TestTheSDKAndGenvTakeTheSameLocks: what one has, the other waits for, both ways.
func TestTheSDKAndGenvTakeTheSameLocks(t *testing.T) {
	needsPsutil(t)
	_, shell, u := active(t) // on devices 1 and 3
	holder := u.sdk("hold", shell.pid())
	holder.says("held")
	config := u.command("genv", "envs", "config", "--eid", shell.pid(), "gpus", "--count", "2")
	require.NoError(t, config.Start())
	holder.end()
	require.NoError(t, config.Wait())
	require.Equal(t, genvtest.Result{Out: "2\nrenamed\n"}, genvtest.Result{Out: u.run("genv", "config", "gpus").Out + u.run("genv", "config", "name").Out}, "both changes")

	device := u.sdk("lock", "3")
	device.says("held")
	marker := filepath.Join(u.home, "ran")
	locked := u.command("genv", "lock", "touch", marker)
	stderr, err := locked.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, locked.Start())
	line, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "waiting for ")
	require.Contains(t, line, "devices/3.lock")
	require.NoFileExists(t, marker)
	device.end()
	require.NoError(t, locked.Wait())
	require.FileExists(t, marker)

	ours := u.command("genv", "lock", "sh", "-c", "echo have; read line")
	in, err := ours.StdinPipe()
	require.NoError(t, err)
	out, err := ours.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, ours.Start())
	have, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "have\n", have)
	device = u.sdk("lock", "1")
	file := filepath.Join(filepath.Dir(u.state), "state", "devices", "1.lock")
	require.Equal(t, 9, u.run("flock", "-n", "-E", "9", file, "true").Code)
	require.NoError(t, in.Close())
	_ = ours.Wait() // the status of read
	device.says("held")
	device.end()
}
