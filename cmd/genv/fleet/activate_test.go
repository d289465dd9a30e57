package fleet

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
)

func TestRoomiest(t *testing.T) {
	devices := func(taken int, capacity string) *snapshot.Snapshot {
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
		return &snapshot.Snapshot{Devices: list}
	}
	sick := devices(0, "")
	sick.Devices[0].Failed, sick.Devices[1].Problem, sick.Devices[2].UsedMemory = true, "temperature: Unknown Error", snapshot.MustMemory("70g")
	results := []remote.Result[*snapshot.Snapshot]{
		{Host: remote.Host{Name: "failed"}, Err: os.ErrInvalid},
		{Host: remote.Host{Name: "shared"}, Value: devices(4, "10g")},
		{Host: remote.Host{Name: "sick"}, Value: sick},
		{Host: remote.Host{Name: "one"}, Value: devices(3, "")},
		{Host: remote.Host{Name: "three"}, Value: devices(1, "")},
		{Host: remote.Host{Name: "equal"}, Value: devices(1, "")},
	}
	for want, request := range map[string]state.AttachRequest{
		"three":  {EID: "new", Count: 1}, // sick has fewer free ones
		"shared": {EID: "new", Count: 4, Memory: snapshot.MustMemory("70g")},
		"":       {EID: "new", Count: 4, Memory: snapshot.MustMemory("71g")},
	} {
		host, _ := roomiest(results, request)
		require.Equal(t, want, host.Name)
	}
	host, _ := roomiest(results, state.AttachRequest{EID: "new"})
	require.Equal(t, "three", host.Name, "no count is asked for")
	for count, ok := range map[int]bool{3: true, 4: false} { // a failed one is no room
		_, has := roomiest(results[2:3], state.AttachRequest{EID: "new", Count: count, OverSubscribe: true})
		require.Equal(t, ok, has)
	}
	require.Len(t, results[4].Value.Devices[1].Attachments, 0, "asking changes nothing")
}

// The exact line that the user's shell on the host reads.
func TestTheLineOnTheHost(t *testing.T) {
	t.Setenv("GENV_CONFIG_DIR", "off")
	o := &hostFlags{Program: command.Program{Err: io.Discard, Getenv: os.Getenv}}
	app := &cli.App{Flags: o.flags(allHosts), Action: func(c *cli.Context) error {
		config, err := o.readConfig(c)
		args := sshTo(&config.SSH, []string{"-o", "GlobalKnownHostsFile=a b"}, remote.Host{Name: "gpu-1", Address: "10.0.0.1", Port: 2222, User: "raz"}, loginShell([]string{"GENV_PREACTIVATE=1", "GENV_PREACTIVATE_NAME=it's; $(id)"}))
		require.NoError(t, err)
		require.Equal(t, []string{
			"ssh", "-t", "-F", "conf", "-o", "GlobalKnownHostsFile=a b", "-o", "ConnectTimeout=3", "-o", "HostName=10.0.0.1", "-p", "2222", "-l", "raz", "--", "gpu-1",
			`exec env 'GENV_PREACTIVATE=1' 'GENV_PREACTIVATE_NAME=it'\''s; $(id)' sh -c ` + remote.Quote(openShell),
		}, args)
		return nil
	}}
	require.NoError(t, app.Run([]string{"genv", "-H", "gpu-1", "-F", "conf", "-t", "3"}))
}

// TestShellsThatDontActivate: a login shell on the host that has no environment says so, whichever parses the line.
func TestShellsThatDontActivate(t *testing.T) {
	require.False(t, strings.ContainsAny(openShell, "\n!"))
	for name, tt := range map[string]struct{ shell, rc, says string }{
		"set up":      {"bash", "genv() { :; }", ""},
		"not set up":  {"bash", "", "genv: bash is not set up on this host"},
		"a plain one": {"dash", "", "genv: dash can not activate environments"},
		"csh":         {"tcsh", "", "genv: tcsh can not activate environments"},
		"fish":        {"fish", "", "genv: fish can not activate environments"},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(tt.shell)
			if err != nil {
				t.Skip("this test needs " + tt.shell)
			}
			home := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(home, ".bash_profile"), []byte(tt.rc), 0o600))
			c := exec.CommandContext(t.Context(), path, "-c", loginShell([]string{"GENV_PREACTIVATE=1"}))
			c.Env = append(os.Environ(), "HOME="+home, "SHELL="+path)
			c.Stdin = strings.NewReader("echo here $GENV_PREACTIVATE\n")
			said := proctest.Output(t, c)
			require.Contains(t, said, "here 1")
			require.Contains(t, said, tt.says)
			require.Equal(t, tt.says == "", !strings.Contains(said, "no environment"))
			c = exec.CommandContext(t.Context(), path, "-c", remote.Command{Args: []string{"sh", "-c", checkShell}}.ShellLine())
			c.Env = append(os.Environ(), "HOME="+home, "SHELL="+path)
			said = proctest.Output(t, c)
			require.Equal(t, tt.says == "", strings.Contains(said, shellIsReady), "as --wait asks before it waits")
		})
	}
}

// TestDevicesWithMIG: a GPU of which an instance is attached is one device, which isn't available as a whole.
func TestDevicesWithMIG(t *testing.T) {
	instances := []snapshot.Instance{{UUID: "MIG-a", Profile: "1g.10gb"}, {UUID: "MIG-b", Profile: "1g.10gb"}}
	devices := deviceDocuments([]snapshot.Device{
		{Index: 0, TotalMemory: snapshot.MiB(81559), Instances: instances, Attachments: []snapshot.Attachment{
			{EID: "7", Instances: []snapshot.GPUUUID{"MIG-a"}}, {EID: "8", Instances: []snapshot.GPUUUID{"MIG-b"}},
		}},
		{Index: 1, TotalMemory: snapshot.MiB(81559), Instances: instances},
	})
	require.Equal(t, []snapshot.EnvID{"7", "8"}, devices[0].Environments)
	var out strings.Builder
	o := &devicesOptions{listFlags: listFlags{hostFlags: hostFlags{Program: command.Program{Out: &out}}, output: render.Output{Format: "json"}}}
	require.NoError(t, o.write(answers[[]deviceDocument]{of: []remote.Result[[]deviceDocument]{{Host: remote.Host{Name: "gpu-1"}, Value: devices}}}))
	require.Contains(t, out.String(), `"total":2,"available":1,`)
}

func TestPatience(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		0: 30 * time.Second, time.Second: 10 * time.Second, 10 * time.Second: 10 * time.Second,
		20 * time.Second: 20 * time.Second, time.Hour: 30 * time.Second,
	} {
		require.Equal(t, want, answerTimeout(interval, 30*time.Second), "interval %s", interval)
	}
}
