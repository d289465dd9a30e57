package user_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/user"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestProvisioning(t *testing.T) {
	u := newStation(t).me()
	one, two, three := u.open("bash"), u.open("bash"), u.open("bash")
	require.Equal(t, said{}, one.say("genv activate --gpus 7 --gpu-memory 40g"))
	require.Equal(t, said{}, two.say("genv activate --gpus 2 --gpu-memory 40G"))
	require.Equal(t, said{text: "0,7\n"}, two.say("echo $CUDA_VISIBLE_DEVICES"), "the empty one first, then one that has room")
	require.Equal(t, said{"Device 0 is not available; with --wait it waits for your turn\n", "1"}, three.say("genv activate --gpu-memory 10g; genv attach --index 0").withoutHolders())
	require.Equal(t, said{"Requested more devices (8) than currently available (7); with --wait it waits for your turn\n", "1"}, three.say("genv attach --count 8").withoutHolders())
	require.Equal(t, said{text: "-1\n"}, three.say("echo $CUDA_VISIBLE_DEVICES"), "all or nothing")
	require.Equal(t, said{text: "0\n"}, three.say("genv attach --index 0 -o; echo $CUDA_VISIBLE_DEVICES"))
	require.Equal(t, said{text: "0,1,2,3,4,5,6,7\n"}, three.say("GENV_ALLOW_OVER_SUBSCRIPTION=1 genv attach --count 8; echo $CUDA_VISIBLE_DEVICES"))
	require.Equal(t, said{text: "0,1,2,3,4,5,7\n"}, three.say("genv detach --index 6; echo $CUDA_VISIBLE_DEVICES"))
}

// New hardware is noticed when someone asks for it, without a reset.
func TestNewHardware(t *testing.T) {
	s := newStation(t)
	s.devices(1)
	shell := s.me().open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 1"))
	require.Equal(t, said{"There is no GPU 2: this host has 1, see `genv gpus`\n", "1"}, shell.say("genv attach --index 2"))
	s.devices(3)
	require.Equal(t, said{text: "0,2\n"}, shell.say("genv attach --index 2; echo $CUDA_VISIBLE_DEVICES"))
	s.devices(4)
	require.Equal(t, said{text: "0,1,2,3\n"}, shell.say("genv attach --count 4; echo $CUDA_VISIBLE_DEVICES"))
	require.Equal(t, said{"Requested more devices (5) than total available (4)\n", "1"}, shell.say("genv attach --count 5"))
}

// TestConfiguredMemory: in a shell it changes what is attached, too; envs config doesn't, as 1.4.3.
func TestConfiguredMemory(t *testing.T) {
	s := newStation(t)
	s.devices(1)
	shell := s.me().open("bash")
	require.Equal(t, said{}, shell.say("genv activate --id x --gpus 1 --gpu-memory 4g"))
	require.Equal(t, said{}, shell.say("genv config gpu-memory 12g"))
	require.Contains(t, s.stateFiles()["devices.json"], `"gpu_memory": "12g"`)
	require.Equal(t, said{"GPU 0 has too little free memory: nothing was changed\n", "1"}, shell.say("genv config gpu-memory 900g"))
	require.Contains(t, s.stateFiles()["envs.json"], `"gpu_memory": "12g"`)
	require.Equal(t, said{}, shell.say("genv envs config --eid x gpu-memory --gpu-memory 5g"))
	require.Contains(t, s.stateFiles()["envs.json"], `"gpu_memory": "5g"`)
	require.Contains(t, s.stateFiles()["devices.json"], `"gpu_memory": "12g"`)
}

func TestBadInput(t *testing.T) {
	s := newStation(t)
	shell := s.me().open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 1 --gpu-memory 4G --name x"))
	require.Equal(t, said{text: "4g\n"}, shell.say("genv config gpu-memory"))
	files, before := s.stateFiles(), shell.say(variables)
	for _, line := range []string{
		"attach --index 99", "attach --index -1", "attach --index=-1", "attach --index 0,", "attach --index x", "attach --index 99999999999",
		"attach --count 0", "attach --count -1", "attach --count 9", "attach --count x", "attach --count 1 --index 1", "attach --refresh --count 2", "attach 3",
		"detach --index 99", "detach --index -1", "detach 0",
		"config gpus 0", "config gpus -1", "config gpus ''", "config gpu-memory 4x", "config gpu-memory 0", "config name $'\\001'",
		"config nonsense", "config nonsense 3", "config gpus 1 2", "config gpus 3 --clear", "config --clear --save", "config --load", "config --save",
		"status extra", "home extra", "shell --shell bash", "shell --init --shell fish", "nonsense",
		"devices nonsense", "devices ps extra", "devices --format xml", "devices attach --eid '' --count 1", "devices attach --eid $'\\001' --count 1",
		"devices attach --eid 5 --count 1 --gpu-memory x", "devices query", "devices query --query nonsense", "devices query --query index --index 99",
		"envs nonsense", "envs --format xml", "envs activate", "envs activate --pid 0", "envs activate --pid -1", "envs activate --pid x", "envs activate --pid 1 --kernel-id x",
		"envs activate --kernel-id x", "envs activate --pid 999999999", "envs activate --eid 5 --pid $$", "envs activate --eid 5 --kernel-id x --uid 77",
		"envs find", "envs query", "envs query --query nonsense", "envs config --eid none",
		"envs config --eid none name x", "envs deactivate",
		"devices --reset attach --count 1", "devices --no-cleanup detach", "envs --reset deactivate --pid 1", "envs --format json config --eid x",
	} {
		said := shell.say("genv " + line)
		require.Equal(t, "1", said.status, "%s: %s", line, said.text)
		if !strings.HasSuffix(line, "--load") && !strings.HasSuffix(line, "--save") { // 1.4.3's own text
			require.Equal(t, 1, strings.Count(said.text, "\n"), "one line: %s: %s", line, said.text)
		}
		require.Equal(t, files, s.stateFiles(), line)
		require.Equal(t, before, shell.say(variables), line)
	}
}

func TestListings(t *testing.T) {
	s := newStation(t)
	shell := s.me().open("bash")
	require.Equal(t, said{}, shell.say(`genv activate --gpus 1 --gpu-memory 4g --name 'a, "b"'`))
	csv := shell.say("genv devices --format csv --no-header").text
	require.True(t, strings.HasPrefix(csv, "0,"+shell.pid()+`,"a, ""b""",`), csv)
	require.Regexp(t, `,(now|\d seconds? ago)\n1,,,\n`, csv)
	require.Equal(t, shell.say("genv devices --timestamp"), shell.say("genv devices ps --timestamp"))
	require.Equal(t, shell.say("genv devices --timestamp ps"), shell.say("genv devices ps --timestamp"))
	require.Equal(t, shell.say("genv envs --timestamp"), shell.say("genv envs ps --timestamp"))
	require.NotContains(t, shell.say("genv envs --no-header").text, "ID")

	var devices user.LocalDevices
	require.NoError(t, json.Unmarshal([]byte(shell.say("genv devices --format json").text), &devices))
	require.Equal(t, "genv.devices/1", devices.Schema)
	require.Len(t, devices.Devices, 8)
	require.EqualValues(t, shell.pid(), devices.Devices[0].Attachments[0].EID)
	require.EqualValues(t, 4_000_000_000, *devices.Devices[0].Attachments[0].GPUMemoryBytes)
	proctest.Try(time.Parse("2006-01-02T15:04:05", devices.Devices[0].Attachments[0].Attached)).OK(t)
	require.Equal(t, said{text: "0," + shell.pid() + "\n"}, shell.say("genv devices query --query index eids --index 0"))

	// What has ended is shown, and stays, with --no-cleanup alone.
	shell.close()
	me := s.me()
	files := s.stateFiles()
	require.Contains(t, me.run("genv", "envs", "--no-cleanup").Out, shell.pid())
	require.Contains(t, me.run("genv", "devices", "--no-cleanup", "ps").Out, shell.pid())
	require.Equal(t, files, s.stateFiles())
	require.NotContains(t, me.run("genv", "devices").Out, shell.pid())
	require.Equal(t, genvtest.Result{Out: "ID,USER,NAME,CREATED,PID(S)\n"}, me.run("genv", "envs", "--format", "csv"))
}

// A corrupt file of which root has no copy is reported with its place, is left as
// it is, and --reset is the way past it.
func TestReset(t *testing.T) {
	proctest.NeedRoot(t)
	s := newStation(t)
	me := s.admin()
	shell := me.open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 1"))
	path := filepath.Join(s.state, "devices.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"devices": [`), 0o666))
	require.NoError(t, os.RemoveAll(s.path("root")))
	r := me.run("genv", "devices").Exits(t, 1)
	require.Contains(t, r.Err, path)
	require.Contains(t, r.Err, "--reset")
	require.Equal(t, 1, strings.Count(r.Err, "\n"))
	require.Equal(t, `{"devices": [`, s.stateFiles()["devices.json"])
	require.Equal(t, genvtest.Result{Out: "0,,,\n1,,,\n2,,,\n3,,,\n4,,,\n5,,,\n6,,,\n7,,,\n"}, me.run("genv", "devices", "--reset", "--format", "csv", "--no-header"))
	require.Equal(t, said{text: "-1\n"}, shell.say("genv attach --refresh; echo $CUDA_VISIBLE_DEVICES"))
	require.Equal(t, genvtest.Result{Out: "ID,USER,NAME,CREATED,PID(S)\n"}, me.run("genv", "envs", "--reset", "--format", "csv"))
}

// The plumbing: processes and Jupyter kernels without a shell.
func TestPlumbing(t *testing.T) {
	proctest.NeedRoot(t)
	s := newStation(t)
	me := s.admin()
	pid := startSleeper(t, alice)
	text := func(words string) genvtest.Result {
		return me.run(append([]string{"genv"}, strings.Fields(words)...)...)
	}
	live := pidText(pid)
	require.Equal(t, genvtest.Result{}, text("envs activate --eid job --pid "+live+" --uid 60901 --name j --gpus 2 --gpu-memory 4g"))
	require.Equal(t, genvtest.Result{Out: "job\n"}, text("envs find --pid "+live))
	require.Equal(t, genvtest.Result{Out: "job,60901,j,2,4g," + live + "\n"}, text("envs query --eid job --query eid uid config.name config.gpus config.gpu_memory pids"))
	require.Equal(t, genvtest.Result{}, text("envs activate --eid job --kernel-id abc"))
	require.Equal(t, genvtest.Result{Out: "\n"}, text("devices find --eid job"))
	require.Equal(t, genvtest.Result{Out: "0,1\n"}, text("devices attach --eid job"))
	require.Equal(t, genvtest.Result{Out: "0,job+4g\n"}, cutTime(text("devices query --index 0 --query index attachments")))
	require.Equal(t, genvtest.Result{}, text("envs config --eid job gpus 1"))
	require.Equal(t, genvtest.Result{Out: "gpu-memory: 4g\ngpus: 1\nname: j\n"}, text("envs config --eid job"))
	require.Equal(t, genvtest.Result{}, text("envs config --eid job name --clear"))
	require.Equal(t, genvtest.Result{}, text("envs deactivate --pid "+live))
	require.Equal(t, genvtest.Result{}, text("envs deactivate --pid "+live), "to leave twice is no error")
	require.Equal(t, genvtest.Result{}, text("envs query --query eid"), "no process has the kernel's file")
}

func cutTime(r genvtest.Result) genvtest.Result {
	words := strings.Split(strings.TrimSuffix(r.Out, "\n"), "+")
	r.Out = strings.Join(words[:len(words)-1], "+") + "\n"
	return r
}
