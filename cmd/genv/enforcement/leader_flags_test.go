package enforcement_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// readLeader reads flags as `genv remote enforce` does. Without help, a flag that all share, it may run beside others.
func readLeader(acts bool, env map[string]string, args ...string) (leader enforcement.Leader, err error) {
	app := &cli.App{Name: "genv", HideHelp: true, Flags: leader.Flags("", command.Site), Writer: io.Discard, ErrWriter: io.Discard, Action: func(*cli.Context) error {
		err = leader.Read(func(name string) string { return env[name] }, acts)
		return nil
	}}
	if failed := app.Run(append([]string{"genv"}, args...)); failed != nil {
		err = failed
	}
	return leader, err
}

// files writes a certificate for 127.0.0.1 that is its own authority, its key, and logins.
func files(t *testing.T) string {
	dir := t.TempDir()
	testfleet.WriteCertificate(t, dir, "", "127.0.0.1")
	for name, content := range map[string]string{
		"login": "genv:a:b\n", "nobody": "secret\n", "open": "genv:secret\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "open"), 0o644))
	return dir
}

func TestReadLeader(t *testing.T) {
	dir := files(t)
	const url, tlsURL = "etcd://a:2379,b:2379/genv/lab", "etcds://a:2379/genv/lab"
	config := proctest.Try(readLeader(true, map[string]string{"GENV_LEADER_LOGIN": "ann:x"})).OK(t)
	require.Empty(t, config.Key, "no election was asked for")
	config = proctest.Try(readLeader(true, map[string]string{"GENV_LEADER_LOGIN": "ann:x"}, "--leader", url)).OK(t)
	require.Equal(t, "/genv/lab", config.Key)
	require.Equal(t, etcd.Config{Endpoints: []string{"http://a:2379", "http://b:2379"}, User: "ann", Password: "x"}, config.Etcd)
	config = proctest.Try(readLeader(true, map[string]string{"GENV_LEADER_LOGIN": "ann:x"}, "--leader", url, "--leader-login", dir+"/login")).OK(t)
	require.Equal(t, []string{"genv", "a:b"}, []string{config.Etcd.User, config.Etcd.Password}, "the file counts")

	for why, args := range map[string]string{
		"--leader-ca needs --leader":           "--leader-ca DIR/cert",
		"--leader-login needs --leader":        "--leader-login DIR/login",
		"a key such as /genv/lab":              "--leader etcd://a:2379",
		"don't belong there":                   "--leader etcd://u:p@a:2379/x",
		"are for etcds://":                     "--leader " + url + " --leader-ca DIR/cert",
		"need each other":                      "--leader " + tlsURL + " --leader-cert DIR/cert",
		"has no certificate":                   "--leader " + tlsURL + " --leader-ca DIR/key",
		"--leader-ca: open":                    "--leader " + tlsURL + " --leader-ca DIR/none",
		"--leader-cert, --leader-key:":         "--leader " + tlsURL + " --leader-cert DIR/key --leader-key DIR/cert",
		"write USER:PASSWORD into it":          "--leader " + url + " --leader-login DIR/nobody",
		"so that others may read or change it": "--leader " + url + " --leader-login DIR/open",
		"no such file or directory":            "--leader " + url + " --leader-login DIR/none",
	} {
		require.ErrorContains(t, proctest.Try(readLeader(true, nil, strings.Fields(strings.ReplaceAll(args, "DIR", dir))...)).Err, why, args)
	}
	require.ErrorContains(t, proctest.Try(readLeader(false, nil, "--leader", url)).Err, "needs a loop that acts")
	_, err := readLeader(true, map[string]string{"GENV_LEADER_LOGIN": "secret"}, "--leader", url)
	require.ErrorContains(t, err, "$GENV_LEADER_LOGIN")
	require.NotContains(t, err.Error(), "secret")
}

// TestReadLeaderAgain: what was read before doesn't stay.
func TestReadLeaderAgain(t *testing.T) {
	var leader enforcement.Leader
	login := map[string]string{"GENV_LEADER_LOGIN": "ann:x"}
	read := func(args ...string) {
		app := &cli.App{Name: "genv", HideHelp: true, Flags: leader.Flags("", command.Site), Action: func(*cli.Context) error {
			return leader.Read(func(name string) string { return login[name] }, true)
		}}
		require.NoError(t, app.Run(append([]string{"genv"}, args...)))
	}
	read("--leader", "etcd://a:2379/genv/lab")
	require.Equal(t, "ann", leader.Etcd.User)
	login = nil
	read("--leader", "etcd://a:2379/genv/lab")
	require.Equal(t, etcd.Config{Endpoints: []string{"http://a:2379"}}, leader.Etcd)
	read("--leader=")
	require.Zero(t, leader)
}

// A member that asks for a client certificate gets it, and one with another authority is refused.
func TestTLS(t *testing.T) {
	dir := files(t)
	pair := proctest.Try(tls.LoadX509KeyPair(dir+"/cert", dir+"/key")).OK(t)
	authority := x509.NewCertPool()
	authority.AddCert(pair.Leaf)
	member := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"header":{"cluster_id":"1"}}`)) }))
	member.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: authority, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	member.StartTLS()
	defer member.Close()
	ask := func(args ...string) error {
		config, err := readLeader(true, nil, append([]string{"--leader", "etcds://" + strings.TrimPrefix(member.URL, "https://") + "/lab"}, args...)...)
		require.NoError(t, err)
		client := etcd.New(config.Etcd)
		defer client.Close()
		for {
			if _, err = client.Get(t.Context(), "/lab/leader"); !errors.Is(err, context.DeadlineExceeded) { // a busy machine
				return err
			}
		}
	}
	require.NoError(t, ask("--leader-ca", dir+"/cert", "--leader-cert", dir+"/cert", "--leader-key", dir+"/key"))
	require.ErrorContains(t, ask("--leader-ca", dir+"/cert"), "certificate required")
	require.ErrorContains(t, ask("--leader-cert", dir+"/cert", "--leader-key", dir+"/key"), "certificate signed by unknown authority")
}

func TestAWarningOfClearText(t *testing.T) {
	for url, members := range map[string]string{
		"etcd://127.0.0.1/genv/lab":                       "",
		"etcd://127.9.8.7:1,localhost:2,[::1]:3/genv/lab": "",
		"etcd://LocalHost/genv/lab":                       "",
		"etcds://10.0.0.1,etcd-2/genv/lab":                "",
		"etcd://10.0.0.1/genv/lab":                        "10.0.0.1:2379",
		"etcd://127.0.0.1,etcd-2,[fd00::1]:2380/genv/lab": "etcd-2:2379 [fd00::1]:2380",
		"etcd://127.0.0.1.example.org/genv/lab":           "127.0.0.1.example.org:2379",
		"etcd://[fe80::1%25eth0]:1/genv/lab":              "error",
	} {
		for _, login := range []string{"", "ann:secret"} {
			config, err := readLeader(true, map[string]string{"GENV_LEADER_LOGIN": login}, "--leader", url)
			if members == "error" {
				require.Error(t, err, url)
				continue
			}
			require.NoError(t, err)
			var log bytes.Buffer
			config.WarnOfClearText(zerolog.New(&log))
			if members == "" {
				require.Empty(t, log.String(), url)
				continue
			}
			require.Contains(t, log.String(), `"members":"`+members+`"`)
			require.Contains(t, log.String(), "--leader etcds://")
			require.Equal(t, login != "", bytes.Contains(log.Bytes(), []byte("the password of ann and")))
			require.NotContains(t, log.String(), "secret")
		}
	}
	config := proctest.Try(readLeader(true, nil)).OK(t)
	var log bytes.Buffer
	config.WarnOfClearText(zerolog.New(&log))
	require.Empty(t, log.String(), "there is no election")
}

func TestCheckMembers(t *testing.T) {
	t.Parallel()
	one, other := servers.StartEtcd(t, 1).Addresses(), servers.StartEtcd(t, 1).Addresses()
	const gone = "127.0.0.1:1"
	for name, row := range map[string]struct {
		members   []string
		err, says string
	}{
		"all answer":             {[]string{one}, "", ""},
		"one doesn't":            {[]string{one, gone}, "", "1 of 2 members of etcd don't answer. Look at `etcdctl --endpoints http://" + one + ",http://" + gone + " endpoint health`"},
		"none does":              {[]string{gone}, "", "1 of 1 members"},
		"two clusters":           {[]string{one, other}, one + " of ", ""},
		"two clusters, one dead": {[]string{gone, other, one}, "name those of one", "1 of 3 members"},
	} {
		config := proctest.Try(readLeader(true, nil, "--leader", "etcd://"+strings.Join(row.members, ",")+"/genv/lab")).OK(t, name)
		var log bytes.Buffer
		err := config.CheckMembers(t.Context(), zerolog.New(&log))
		if row.err == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, row.err, name)
		}
		if row.says == "" {
			require.Empty(t, log.String(), name)
		} else {
			require.Contains(t, log.String(), row.says, name)
			require.Contains(t, log.String(), "127.0.0.1:1: dial tcp", name)
		}
	}
	config := proctest.Try(readLeader(true, nil)).OK(t)
	require.NoError(t, config.CheckMembers(t.Context(), zerolog.Nop()), "there is no election")
}

// What etcd refuses is the election's to say: a wrong password is no member that doesn't answer.
func TestCheckMembersThatRefuse(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcd(t, 1)
	cluster.AddUser("genv", "x", "/genv/")
	config := proctest.Try(readLeader(true, map[string]string{"GENV_LEADER_LOGIN": "genv:y"}, "--leader", "etcd://"+cluster.Addresses()+"/genv/lab")).OK(t)
	var log bytes.Buffer
	require.NoError(t, config.CheckMembers(t.Context(), zerolog.New(&log)))
	require.Empty(t, log.String())
}

// The command is one that can be copied, and has no password.
func TestHealth(t *testing.T) {
	dir := files(t)
	config, err := readLeader(true, nil, "--leader", "etcds://a,b:2380/genv/lab", "--leader-login", dir+"/login",
		"--leader-ca", dir+"/cert", "--leader-cert", dir+"/cert", "--leader-key", dir+"/key")
	require.NoError(t, err)
	require.Equal(t, "etcdctl --endpoints https://a:2379,https://b:2380 --cacert DIR/cert --cert DIR/cert --key DIR/key --user genv endpoint health",
		strings.ReplaceAll(config.Health(), dir, "DIR"))
}
