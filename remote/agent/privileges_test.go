package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
)

// viewer is a host as every login sees it.
type viewer struct{}

func (viewer) Devices(context.Context) ([]byte, error)      { return []byte("devices"), nil }
func (viewer) Environments(context.Context) ([]byte, error) { return nil, errors.New("corrupt") }

func TestAView(t *testing.T) {
	for request, want := range map[string]string{
		agent.RequestDevices: "devices", agent.RequestPing: "body", agent.RequestEnvironments: "corrupt",
		agent.RequestSnapshot: "without root", agent.RequestExecute: "without root", agent.RequestNotify: "without root", "": "without root",
	} {
		answer, err := agent.View{Viewer: viewer{}}.Handle(t.Context(), agent.Request{Name: request, Body: []byte("body"), Wanted: t.Context()})
		if err != nil {
			answer = []byte(err.Error())
		}
		require.Contains(t, string(answer), want, request)
	}
}

// login answers `id -u` on a host.
type login struct {
	*scripted
	says string
}

func (l login) Run(ctx context.Context, h remote.Host, c remote.Command) (remote.Output, error) {
	if c.Args[0] == "sh" {
		return remote.Output{Stdout: []byte(l.says)}, nil
	}
	return l.scripted.Run(ctx, h, c)
}

// TestNothingIsJudgedWithoutRoot: the snapshot of a genv without root is not used.
func TestNothingIsJudgedWithoutRoot(t *testing.T) {
	view := agent.NewViewGreeting("v").Capabilities
	older := func(context.Context, remote.Host) (remote.Output, error) { return remote.Output{}, nil }
	for name, tt := range map[string]struct {
		host remote.Host
		n    login
		next string // empty if it is judged
	}{
		"a login without sudo":            {remote.Host{Name: "a", NoSudo: true}, login{&scripted{capabilities: view}, ""}, "remove `sudo: false`"},
		"a sudo to another user":          {remote.Host{Name: "a"}, login{&scripted{capabilities: view}, ""}, "runas_default"},
		"1.4.3, a login without sudo":     {remote.Host{Name: "a", NoSudo: true}, login{&scripted{command: older}, "genv-uid 1000\n"}, "remove `sudo: false`"},
		"1.4.3, one that doesn't say":     {remote.Host{Name: "a", NoSudo: true}, login{&scripted{command: older}, "0\n"}, "remove `sudo: false`"},
		"1.4.3, root behind a banner":     {remote.Host{Name: "a", NoSudo: true}, login{&scripted{command: older}, "Welcome\r\ngenv-uid 0\r\n"}, ""},
		"1.4.3 under sudo is never asked": {remote.Host{Name: "a"}, login{&scripted{command: older}, "genv-uid 1000\n"}, ""},
		"root":                            {remote.Host{Name: "a", NoSudo: true}, login{&scripted{}, "genv-uid 1000\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool := tt.n.pool()
			pool.Network = tt.n
			defer pool.Close()
			_, err := pool.Snapshot(t.Context(), tt.host)
			if tt.next == "" {
				require.NoError(t, err)
				require.True(t, pool.About(tt.host).Can.Snapshot)
				return
			}
			require.Equal(t, remote.Sudo, remote.ClassOf(err))
			require.Contains(t, remote.NextStepOf(err), tt.next)
			_, err = pool.Execute(t.Context(), tt.host, oneProcess)
			require.Error(t, err)
			require.Empty(t, pool.About(tt.host).Via)
		})
	}
}
