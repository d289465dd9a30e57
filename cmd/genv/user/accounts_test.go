package user_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/user"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const alice, bob = 60901, 60902 // in no one's /etc/passwd

// Several users on one state folder: only its user and root change an
// environment, whatever a shell or a variable claims.
func TestForeignEnvironments(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, kind string) {
		s := newStation(t)
		hers := s.person("alice", alice).open(kind)
		require.Equal(t, said{}, hers.say("genv activate --gpus 2 --name hers"))
		his := s.person("bob", bob).open(kind)
		require.Equal(t, said{}, his.say("genv envs >/dev/null")) // the state files are up to date
		files, id := s.stateFiles(), hers.pid()
		foreign := "60901; only that user and root may change it\n"
		for _, line := range []string{
			"genv activate --id " + id,
			"GENV_ENVIRONMENT_ID=" + id + " genv attach --count 3",
			"GENV_ENVIRONMENT_ID=" + id + " genv attach --refresh",
			"GENV_ENVIRONMENT_ID=" + id + " genv detach",
			"GENV_ENVIRONMENT_ID=" + id + " genv config gpus 7",
			"GENV_ENVIRONMENT_ID=" + id + " genv config --clear",
			"GENV_ENVIRONMENT_ID=" + id + " genv lock true",
			"genv devices attach --eid " + id + " --count 3",
			"genv devices detach --eid " + id,
			"genv envs config --eid " + id + " name his",
			"genv envs deactivate --pid " + id,
		} {
			said := his.say(line)
			require.Equal(t, "1", said.status, line)
			require.True(t, strings.HasSuffix(said.text, foreign) && strings.Count(said.text, "\n") == 1, "%s: %s", line, said.text)
			require.Equal(t, files, s.stateFiles(), line)
		}
		require.Contains(t, his.say("genv envs activate --pid "+id).text, "only that user and root may activate it\n")
		require.Contains(t, his.say("genv devices --reset").text, "only root may")
		require.Contains(t, his.say("genv envs --reset").text, "only root may")
		require.Equal(t, files, s.stateFiles())

		require.Equal(t, said{}, his.say("genv activate --gpus 7 || genv activate --gpus 6 2>/dev/null || :; genv activate -o --gpus 6 2>/dev/null || :; true").withoutHolders().cut("Requested more devices (7) than currently available (6); with --wait it waits for your turn\n"))
		require.Equal(t, said{text: "2,3,4,5,6,7\n"}, his.say("genv devices find"))
		root := s.admin()
		require.Equal(t, genvtest.Result{Out: "0\n"}, root.run("genv", "devices", "detach", "--eid", id, "--index", "1"))
		require.Equal(t, genvtest.Result{}, root.run("genv", "envs", "config", "--eid", id, "name", "by root"))
		require.Equal(t, said{text: "0 by root\n"}, hers.say("genv attach --refresh; echo $CUDA_VISIBLE_DEVICES $GENV_ENVIRONMENT_NAME"))
	})
}

// cut takes away a text that was expected.
func (s said) cut(text string) said { return said{strings.Replace(s.text, text, "", 1), s.status} }

// The user of an environment is the kernel's: LOGNAME and USER of every user
// here say somebody-else. Who forges the state files is flagged.
func TestKernelIdentity(t *testing.T) {
	s := newStation(t)
	hers := s.person("alice", alice).open("bash")
	require.Equal(t, said{}, hers.say("genv activate"))
	listed := hers.say("genv envs --format csv --no-header --timestamp").text
	require.True(t, strings.HasPrefix(listed, hers.pid()+",60901,,"), listed)
	root := s.admin().open("bash")
	require.Equal(t, said{}, root.say("genv activate"))
	require.Contains(t, root.say("genv envs --format csv").text, root.pid()+",root(0),,")
	require.Equal(t, said{text: "60901\n"}, root.say("genv envs query --eid "+hers.pid()+" --query uid"))

	path := filepath.Join(s.state, "envs.json")
	data := proctest.ReadFile(t, path)
	forged := strings.Replace(string(data), hers.pid()+"\n      ]", hers.pid()+","+s.person("bob", bob).open("bash").pid()+"]", 1)
	require.NotEqual(t, string(data), forged)
	require.NoError(t, os.WriteFile(path, []byte(forged), 0o666))
	r := s.admin().run("genv", "envs", "--format", "json")
	require.Contains(t, r.Err, "environment "+hers.pid()+" is registered for 60901, but that uid has another name or its processes another owner")
	var document user.LocalEnvironments
	require.NoError(t, json.Unmarshal([]byte(r.Out), &document))
	require.Equal(t, "genv.envs/1", document.Schema)
	mismatch := map[string]bool{}
	for _, e := range document.Environments {
		mismatch[string(e.EID)] = e.OwnerMismatch
	}
	require.Equal(t, map[string]bool{hers.pid(): true, root.pid(): false}, mismatch)
}

// Plain sudo drops the variables: then genv says what is missing.
func TestSudo(t *testing.T) {
	proctest.NeedRoot(t)
	if _, err := os.Stat("/usr/bin/sudo"); err != nil {
		t.Skip("there is no sudo: `make test` as root installs it on Debian")
	}
	u := newStation(t).admin()
	shell := u.open("bash")
	require.Equal(t, said{text: "Environment is not active\n"}, shell.say("sudo env $PLAIN PATH=$PATH GENV_TMPDIR=$GENV_TMPDIR GENV_ROOT_DIR=$GENV_ROOT_DIR genv status"))
	require.Equal(t, said{}, shell.say("genv activate --gpus 1"))
	missing := said{"sudo hides that this shell is in environment " + shell.pid() + ": run `sudo -E env PATH=$PATH genv …` instead\n", "1"}
	for _, command := range []string{"status", "attach", "detach", "config", "lock true", "devices find"} {
		require.Equal(t, missing, shell.say("sudo env PATH=$PATH GENV_TMPDIR=$GENV_TMPDIR GENV_ROOT_DIR=$GENV_ROOT_DIR genv "+command), command)
	}
	require.Contains(t, shell.say("sudo -E env PATH=$PATH genv status").text, "Environment is active ("+shell.pid()+")\n")
	require.Equal(t, said{text: "0\n"}, shell.say("sudo -E env PATH=$PATH genv devices find"))
	require.Equal(t, said{text: "GPU 0\n"}, shell.say("sudo -E env PATH=$PATH nvidia-smi -L | cut -d: -f1"))
}

// The files keep what they hold when the disk is full, and the message says what to do.
func TestFullDisk(t *testing.T) {
	proctest.NeedRoot(t)
	s := newStation(t)
	require.NoError(t, os.Mkdir(s.state, 0o777))
	if err := unix.Mount("tmpfs", s.state, "tmpfs", 0, "size=64k,mode=0777"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(s.state, unix.MNT_DETACH)) })
	shell := s.me().open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 1"))
	require.NotEmpty(t, shell.say("cat /dev/zero 2>&1 >"+s.state+"/filler").text)
	files, before := s.stateFiles(), shell.say(variables)
	for _, line := range []string{"genv attach --count 2", "genv config name x", "genv detach", "genv deactivate"} {
		said := shell.say(line)
		require.Equal(t, "1", said.status, line)
		require.Regexp(t, `^.*no space left on device; nothing was changed: make room there, then run it again\n$`, said.text)
		require.Equal(t, files, s.stateFiles(), line)
		require.Equal(t, before, shell.say(variables))
	}
	require.Contains(t, shell.say("genv status").text, "Attached to GPUs at indices 0\n")
	newcomer := s.me().open("bash")
	require.Contains(t, newcomer.say("genv activate --gpus 1").text, "no space left on device; nothing was changed")
	require.Equal(t, said{status: "1"}, newcomer.say("env | grep -E 'GENV_(SHELL|ENV)|CUDA'"))
	require.Equal(t, files, s.stateFiles())
	require.NoError(t, os.Remove(filepath.Join(s.state, "filler")))
	require.Equal(t, said{text: "0,1\n"}, shell.say("genv attach --count 2; echo $CUDA_VISIBLE_DEVICES"))
}

func TestSudoCannotChangeTheShell(t *testing.T) {
	u := newStation(t).admin().with("GENV_ENVIRONMENT_ID=77", "SUDO_UID=1000")
	proctest.NeedRoot(t)
	for _, command := range []string{"attach", "detach", "deactivate", "config --clear"} {
		u.run(append([]string{"genv"}, strings.Fields(command)...)...).Exits(t, 1, "sudo can't change this shell")
	}
}

func TestStateThatMayNotBeMade(t *testing.T) {
	s := newStation(t)
	require.NoError(t, os.Mkdir(s.path("closed"), 0o755))
	u := s.person("alice", alice)
	u.env = []string{"GENV_TMPDIR=" + s.path("closed/state")}
	r := u.run("genv", "devices").Exits(t, 1)
	require.Equal(t, "create the folder "+s.path("closed/state")+": permission denied; ask its owner or root, or set GENV_TMPDIR on the whole host\n", r.Err)
	require.Equal(t, genvtest.Result{Code: 7, Err: "genv: no GPU is locked: this shell is in no environment; run `genv activate` first\n"}, u.run("genv", "lock", "sh", "-c", "exit 7"))
}

// TestCrowd: shells of several users, in bash and zsh, want more devices than there are, again and again. No device is
// given away twice, and in the end all are free.
func TestCrowd(t *testing.T) {
	const people, rounds = 8, 4
	s := newStation(t)
	var shells []*terminal
	for i := range people {
		kind := []string{"bash", "zsh"}[i/4%2]
		shells = append(shells, s.person(fmt.Sprint("user", i%4), alice+i%4).open(kind))
	}
	var group sync.WaitGroup
	failures := make(chan string, people*rounds)
	for _, shell := range shells {
		group.Go(func() {
			for range rounds {
				said := shell.say("genv activate && genv attach --count 2 2>/dev/null; mine=$CUDA_VISIBLE_DEVICES; " +
					"[ \"$mine\" = -1 ] || [ \"$mine\" = \"$(genv devices find)\" ] || echo differs; genv attach --index 0 2>/dev/null; genv detach && genv deactivate")
				if said.text != "" || said.status != "" {
					failures <- fmt.Sprintf("%q [%s]", said.text, said.status)
				}
			}
		})
	}
	stop := make(chan struct{})
	twice := make(chan int, 1)
	go func() { twice <- s.watchDevices(stop) }()
	group.Wait()
	close(stop)
	require.Zero(t, <-twice, "a device was attached to two environments at once")
	close(failures)
	for failure := range failures {
		t.Error(failure)
	}
	require.Equal(t, genvtest.Result{Out: "0,\n1,\n2,\n3,\n4,\n5,\n6,\n7,\n"}, s.admin().run("genv", "devices", "query", "--query", "index", "eids"))
	require.Equal(t, genvtest.Result{Out: "ID,USER,NAME,CREATED,PID(S)\n"}, s.admin().run("genv", "envs", "--format", "csv"))
}

// watchDevices counts how often a device is seen attached twice.
func (s *station) watchDevices(stop <-chan struct{}) (seen int) {
	look := time.NewTicker(3 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-stop:
			return seen
		case <-look.C:
		}
		data := s.stateFiles()["devices.json"]
		devices, err := snapshot.DecodeDevices([]byte(data))
		if data != "" && err != nil {
			seen++
		}
		for _, d := range devices {
			if len(d.Attachments) > 1 {
				seen++
			}
		}
	}
}
