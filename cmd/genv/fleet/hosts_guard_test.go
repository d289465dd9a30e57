package fleet_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestGuardsOfHosts: what a controller learns from its hosts, and what isn't known.
func TestGuardsOfHosts(t *testing.T) {
	on, off := true, false
	host := func(name string, g *snapshot.Guard, service *bool) *inprocess.Server {
		s := metered()
		s.Guard, s.Service = g, service
		return &inprocess.Server{Name: name, Handler: genvhost.New(s)}
	}
	f := genvtest.StartFleet(t, host("on", &snapshot.Guard{Mode: snapshot.GuardEnforce}, &on),
		host("unable", &snapshot.Guard{Mode: snapshot.GuardUnable, Reason: "kernel: no BPF"}, &off),
		host("off", &snapshot.Guard{Mode: snapshot.GuardOff}, &off), host("silent", nil, nil),
		&inprocess.Server{Name: "old", Handler: genvhost.New(metered()).Old()}, host("down", &snapshot.Guard{Mode: snapshot.GuardEnforce}, &on))
	require.NoError(t, f.Host("down").Inject(inprocess.Down()))
	socket := filepath.Join(t.TempDir(), "s")
	run := genvtest.Begin(t, "remote", "watch", "-F", f.SSHConfig(), "-H", "on,unable,off,silent,old,down", "--interval", "200ms", "--socket", socket)
	genvtest.View(t, socket).Wait("all answered", func(f *live.Fleet) bool { return f.Cycle > 0 && len(f.Failed) == 1 })

	list := []string{"remote", "hosts", "-H", "on,unable,off,silent,old,down,stranger", "--socket", socket, "--guard"}
	r := genvtest.Run(t, append(list, "--format", "csv")...)
	require.Zero(t, r.Code, r.Err)
	require.Equal(t, `HOST,ADDRESS,PORT,USER,SUDO,LABELS,SERVICE,GUARD
on,,,,yes,,on,enforce
unable,,,,yes,,off,unable: kernel: no BPF
off,,,,yes,,off,off
silent,,,,yes,,unknown,unknown
old,,,,yes,,unknown,unknown
down,,,,yes,,unknown,unknown: the host failed (unreachable)
stranger,,,,yes,,unknown,unknown
`, r.Out)
	r = genvtest.Run(t, append(list, "--format", "json")...)
	var document fleet.HostsDocument
	require.NoError(t, json.Unmarshal([]byte(r.Out), &document))
	require.Equal(t, live.Guard{Mode: snapshot.GuardUnable, Reason: "kernel: no BPF"}, document.Hosts[1].Guard)
	require.True(t, *document.Hosts[0].Service)
	require.Nil(t, document.Hosts[3].Service)
	require.NotContains(t, genvtest.Run(t, "remote", "hosts", "-H", "on", "--format", "json").Out, "guard")
	run.End()

	r = genvtest.Run(t, append(list[:4:4], "--guard", "--socket", "off")...)
	require.Zero(t, r.Code)
	require.Contains(t, r.Err, "No controller is running, so nothing is known about the guards")
	require.Regexp(t, `(?m)^on +yes +unknown +unknown$`, r.Out)
	r = genvtest.Run(t, "remote", "hosts", "-H", "on", "--socket", socket)
	require.NotZero(t, r.Code)
	require.Contains(t, r.Err, "--socket needs --guard")
}
