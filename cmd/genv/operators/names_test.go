package operators

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestAControllerThatBegins: before its first cycle it isn't said to have no exemptions.
func TestAControllerThatBegins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	feed := live.NewFeed(live.Options{Now: time.Now})
	server := &http.Server{Handler: live.NewHandler(feed), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	at := &runningController{path, live.NewClient(path)}
	defer at.close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = at.state(ctx)
	require.ErrorContains(t, err, "its exemptions aren't known yet")
	go func() {
		time.Sleep(300 * time.Millisecond)
		feed.Consume(&controller.Round{Number: 1, Ended: true, Exemptions: policy.ExemptionList{{Reason: "paper"}}}, nil)
	}()
	state := proctest.Try(at.state(t.Context())).OK(t)
	require.Len(t, state.Exemptions, 1, "it was waited for")
}

// TestAStateDirOfAnotherAccount: its owner is named, not that of a link to it.
func TestAStateDirOfAnotherAccount(t *testing.T) {
	proctest.NeedRoot(t)
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Chown(dir, 4000, 4000))
	require.NoError(t, os.Symlink(dir, link))
	for _, path := range []string{dir, link} {
		_, err := (&controllerOptions{stateDir: path}).stoppedController(false)
		require.ErrorContains(t, err, path+" belongs to uid 4000, the controller's account: ")
	}
}

// A host or a user that certainly doesn't exist can't be exempted. Of what is unknown nothing is said to be missing.
func TestUnknownNamesOfAnExemption(t *testing.T) {
	accounts := []string{"alice", "root"}
	local := func(name string) error {
		for _, account := range accounts {
			if account == name {
				return nil
			}
		}
		return fmt.Errorf("getent passwd %s: %w", name, nss.ErrNoAccount)
	}
	down := func(string) error { return errors.New("the directory service (sss) doesn't answer") }
	hosts := []string{"gpu-01.lab", "gpu-04.lab"}
	for _, row := range []struct {
		name           string
		known          knownNames
		host, user     string
		warning, error string
	}{
		{"both known", knownNames{hosts: hosts, account: local}, "gpu-04.lab", "alice", "", ""},
		{"only a host", knownNames{hosts: hosts, account: down}, "gpu-04.lab", "", "", ""},
		{"hosts unknown", knownNames{account: local}, "gpu-99", "alice", "", ""},
		{"a user with a GPU", knownNames{users: []string{"carol"}, account: local}, "", "carol", "", ""},
		{"a uid", knownNames{account: local}, "", "uid 1004", "", ""},
		{"the directory is down", knownNames{account: down}, "", "alcie", "whether there is a user alcie is unknown: the directory service (sss) doesn't answer", ""},
		{"users are elsewhere", knownNames{users: []string{"alice", "carol"}, account: local}, "", "alcie", "no account on this machine, as users of hosts may", ""},
		{"the controller knows no user", knownNames{account: local}, "", "zoe-x", "no account on this machine", ""},

		{"without its domain", knownNames{hosts: hosts, account: local}, "gpu-04", "", "", `there is no host gpu-04; did you mean "gpu-04.lab"?`},
		{"a strange host", knownNames{hosts: hosts, account: local}, "x", "alice", "", "there is no host x; genv remote hosts lists them"},
		{"a misspelt user", knownNames{hosts: hosts, users: []string{"alice", "uid 7"}, account: local}, "gpu-04.lab", "alcie", "", `no user alcie has an account on this machine or a GPU now; did you mean "alice"? If the account`},
		{"a strange user", knownNames{users: []string{"alice"}, account: local}, "", "zoe-x", "", "check the spelling. If the account is only on the hosts, name it under `exempt:` in the policy"},
		{"no uid", knownNames{users: []string{"alice"}, account: local}, "", "uid x", "", "no user"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.known.accounts = func() []string { return accounts }
			warning, err := row.known.check(row.host, row.user)
			if row.error != "" {
				require.ErrorContains(t, err, row.error)
				return
			}
			require.NoError(t, err)
			if row.warning == "" {
				require.Empty(t, warning)
			}
			require.Contains(t, warning, row.warning)
		})
	}
}
