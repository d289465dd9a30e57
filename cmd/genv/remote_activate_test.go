package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// TestRemoteActivate: the host with the most room is chosen, and the shell there
// activates itself, over a real sshd that accepts no variables.
func TestRemoteActivate(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("full", "roomy", "half"), Genv: sshd.Build(t, "cmd/genv")})
	for host, devices := range map[string][]snapshot.DeviceIndex{"full": {0, 1, 2, 3, 4, 5, 6, 7}, "half": {0, 1, 2, 3}, "roomy": {0}} {
		_, err := f.Host(host).Activate(sshd.Environment{User: "alice", Devices: devices})
		require.NoError(t, err)
	}
	home := filepath.Join(f.Dir, "home", f.Host("roomy").User)
	rc := "export PATH=" + f.Dir + "/bin:" + f.Dir + "/driver:$PATH\neval \"$(genv shell --init)\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(home, ".profile"), []byte(rc), 0o644))

	built, err := programs()
	require.NoError(t, err)
	session := func(script string, args ...string) result {
		u := (&station{t: t, dir: t.TempDir(), env: os.Environ()}).me()
		cmd := u.command(append([]string{built + "/bin/genv", "remote", "activate", "-F", f.SSHConfig(), "-H", "full,half,roomy"}, args...)...)
		cmd.Stdin = strings.NewReader(script)
		return finished(t, cmd)
	}
	script := "echo \"<$GENV_ENVIRONMENT_NAME|$CUDA_VISIBLE_DEVICES|$GENV_GPU_MEMORY|$(env | grep -c GENV_PREACTIVATE)>\"\nexit 6\n"
	r := session(script, "--gpus", "2", "--name", "it's \"$(id)\" & co", "--gpu-memory", "4G")
	require.Contains(t, r.out, `<it's "$(id)" & co|1,2|4g|0>`, r.err)
	require.Equal(t, 6, r.code, "the session's own status")
	devices, err := f.Host("roomy").Devices()
	require.NoError(t, err)
	require.Len(t, devices[1].Attachments, 1, "it was attached there")

	r = session("", "--gpus", "8")
	require.Equal(t, result{err: "genv: no host has 8 devices for this now; `genv remote devices` shows what there is\n", code: 1}, r)
	r = session("", "--gpus", "0")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, `gpus "0"`)
}

func TestRoomiest(t *testing.T) {
	devices := func(taken int, capacity string) []snapshot.Device {
		list := make([]snapshot.Device, 4)
		for i := range list {
			list[i] = snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MustMemory("80g")}
			if i < taken {
				list[i].Attachments = []snapshot.Attachment{{EID: "1"}}
				if capacity != "" {
					list[i].Attachments[0].GPUMemory = snapshot.MustMemory(capacity)
				}
			}
		}
		return list
	}
	results := []remote.Result[[]snapshot.Device]{
		{Host: remote.Host{Name: "failed"}, Err: os.ErrInvalid},
		{Host: remote.Host{Name: "shared"}, Value: devices(4, "10g")},
		{Host: remote.Host{Name: "one"}, Value: devices(3, "")},
		{Host: remote.Host{Name: "three"}, Value: devices(1, "")},
		{Host: remote.Host{Name: "equal"}, Value: devices(1, "")},
	}
	for want, request := range map[string]state.AttachRequest{
		"three":  {EID: "new", Count: 1},
		"shared": {EID: "new", Count: 4, Memory: snapshot.MustMemory("70g")},
		"":       {EID: "new", Count: 4, Memory: snapshot.MustMemory("71g")},
	} {
		host, _ := roomiest(results, request)
		require.Equal(t, want, host.Name)
	}
	require.Len(t, results[3].Value[1].Attachments, 0, "asking changes nothing")
}

// The exact line that the user's shell on the host reads.
func TestTheLineOnTheHost(t *testing.T) {
	app := &cli.App{Flags: remoteFlags(), Action: func(c *cli.Context) error {
		args, err := sshArgs(c, remote.Host{Name: "gpu-1", Address: "10.0.0.1", Port: 2222, User: "raz"}, []string{"GENV_PREACTIVATE=1", "GENV_PREACTIVATE_NAME=it's; $(id)"})
		require.NoError(t, err)
		require.Equal(t, []string{
			"ssh", "-t", "-F", "conf", "-o", "ConnectTimeout=3", "-o", "HostName=10.0.0.1", "-p", "2222", "-l", "raz", "--", "gpu-1",
			`exec env 'GENV_PREACTIVATE=1' 'GENV_PREACTIVATE_NAME=it'\''s; $(id)' "$SHELL" -l -i`,
		}, args)
		return nil
	}}
	require.NoError(t, app.Run([]string{"genv", "-F", "conf", "-t", "3"}))
}
