package fleet

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

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
	host, _ := roomiest(results, state.AttachRequest{EID: "new"})
	require.Equal(t, "three", host.Name, "no count is asked for")
	require.Len(t, results[3].Value[1].Attachments, 0, "asking changes nothing")
}

// The exact line that the user's shell on the host reads.
func TestTheLineOnTheHost(t *testing.T) {
	t.Setenv("GENV_CONFIG_DIR", "off")
	p := &program{command.Program{Err: io.Discard, Getenv: os.Getenv}}
	app := &cli.App{Flags: remoteFlags(), Action: func(c *cli.Context) error {
		config, err := p.readConfig(c)
		args := sshShell(&config.SSH, remote.Host{Name: "gpu-1", Address: "10.0.0.1", Port: 2222, User: "raz"}, []string{"GENV_PREACTIVATE=1", "GENV_PREACTIVATE_NAME=it's; $(id)"})
		require.NoError(t, err)
		require.Equal(t, []string{
			"ssh", "-t", "-F", "conf", "-o", "ConnectTimeout=3", "-o", "HostName=10.0.0.1", "-p", "2222", "-l", "raz", "--", "gpu-1",
			`exec env 'GENV_PREACTIVATE=1' 'GENV_PREACTIVATE_NAME=it'\''s; $(id)' "$SHELL" -l -i`,
		}, args)
		return nil
	}}
	require.NoError(t, app.Run([]string{"genv", "-H", "gpu-1", "-F", "conf", "-t", "3"}))
}
