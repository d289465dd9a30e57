package leadership_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/leadership"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet"
)

// read reads flags as `genv remote enforce` does.
func read(acts bool, env map[string]string, args ...string) (config leadership.Config, err error) {
	app := &cli.App{Name: "genv", Flags: leadership.Flags(), Writer: io.Discard, ErrWriter: io.Discard, Action: func(c *cli.Context) error {
		config, err = leadership.ReadConfig(c, func(name string) string { return env[name] }, acts)
		return nil
	}}
	if failed := app.Run(append([]string{"genv"}, args...)); failed != nil {
		err = failed
	}
	return config, err
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

func TestReadConfig(t *testing.T) {
	dir := files(t)
	const url, tlsURL = "etcd://a:2379,b:2379/genv/lab", "etcds://a:2379/genv/lab"
	config, err := read(true, map[string]string{"GENV_LEADER_LOGIN": "ann:x"})
	require.NoError(t, err)
	require.Nil(t, config.Election(), "no election was asked for")
	config, err = read(true, map[string]string{"GENV_LEADER_LOGIN": "ann:x"}, "--leader", url)
	require.NoError(t, err)
	require.Equal(t, leadership.Config{Key: "/genv/lab", Etcd: etcd.Config{Endpoints: []string{"http://a:2379", "http://b:2379"}, User: "ann", Password: "x"}}, config)
	config, err = read(true, map[string]string{"GENV_LEADER_LOGIN": "ann:x"}, "--leader", url, "--leader-login", dir+"/login")
	require.NoError(t, err)
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
		"--leader-login: open":                 "--leader " + url + " --leader-login DIR/none",
	} {
		_, err := read(true, nil, strings.Fields(strings.ReplaceAll(args, "DIR", dir))...)
		require.ErrorContains(t, err, why, args)
	}
	_, err = read(false, nil, "--leader", url)
	require.ErrorContains(t, err, "needs a loop that acts")
	_, err = read(true, map[string]string{"GENV_LEADER_LOGIN": "secret"}, "--leader", url)
	require.ErrorContains(t, err, "$GENV_LEADER_LOGIN")
	require.NotContains(t, err.Error(), "secret")
}

// A member that asks for a client certificate gets it, and one with another authority is refused.
func TestTLS(t *testing.T) {
	dir := files(t)
	pair, err := tls.LoadX509KeyPair(dir+"/cert", dir+"/key")
	require.NoError(t, err)
	authority := x509.NewCertPool()
	authority.AddCert(pair.Leaf)
	member := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"header":{"cluster_id":"1"}}`)) }))
	member.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: authority, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	member.StartTLS()
	defer member.Close()
	ask := func(args ...string) error {
		config, err := read(true, nil, append([]string{"--leader", "etcds://" + strings.TrimPrefix(member.URL, "https://") + "/lab"}, args...)...)
		require.NoError(t, err)
		client := etcd.New(config.Etcd)
		defer client.Close()
		_, err = client.Get(t.Context(), "/lab/leader")
		return err
	}
	require.NoError(t, ask("--leader-ca", dir+"/cert", "--leader-cert", dir+"/cert", "--leader-key", dir+"/key"))
	require.ErrorContains(t, ask("--leader-ca", dir+"/cert"), "certificate required")
	require.ErrorContains(t, ask("--leader-cert", dir+"/cert", "--leader-key", dir+"/key"), "certificate signed by unknown authority")
}
