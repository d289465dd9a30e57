// Package servers starts real etcd clusters and PostgreSQL servers for tests, on loopback addresses of their own:
//
//	c := servers.StartEtcd(t, 3)
//	client := etcd.New(etcd.Config{Endpoints: c.Endpoints()})
//	c.Kill(0)
//	c.Restart(0)
//
// A Cut leads to the members as a network does, and can be interrupted. Debian's etcd-server and postgresql have the
// programs.
package servers

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// RequireEtcd skips the test where there is no etcd.
func RequireEtcd(t testing.TB) {
	t.Helper()
	proctest.NeedPrograms(t, "etcd")
}

const startWithin = time.Minute // how long a member may take to answer: it is slow on a busy machine

// EtcdCluster is a running cluster.
type EtcdCluster struct {
	t       testing.TB
	members []*etcdMember
	flags   []string
	scheme  string      // of the URLs for clients
	tls     *tls.Config // of this package's own requests; nil for none
}

// etcdMember is one etcd.
type etcdMember struct {
	name    string
	address string // 127.x.y.z
	dir     string
	cmd     *exec.Cmd // nil while it isn't running
}

const (
	clientPort = "2379"
	peerPort   = "2380"
)

// StartEtcd starts members with further flags, and waits until they answer. Everything ends with the test.
func StartEtcd(t testing.TB, members int, flags ...string) *EtcdCluster {
	t.Helper()
	c := prepareEtcd(t, members, flags...)
	c.beginAll()
	return c
}

func prepareEtcd(t testing.TB, members int, flags ...string) *EtcdCluster {
	t.Helper()
	RequireEtcd(t)
	c := &EtcdCluster{t: t, flags: flags, scheme: "http://"}
	for i := range members {
		c.members = append(c.members, &etcdMember{
			name: fmt.Sprintf("etcd-%d", i), dir: t.TempDir(),
			address: fmt.Sprintf("127.%d.%d.%d", 128+rand.IntN(126), 1+rand.IntN(250), 1+rand.IntN(250)),
		})
	}
	return c
}

// beginAll starts all members, until the test ends.
func (c *EtcdCluster) beginAll() {
	c.t.Helper()
	c.t.Cleanup(func() {
		for i := range c.members {
			c.Kill(i)
		}
	})
	c.restartAll()
}

func (c *EtcdCluster) restartAll() {
	for i := range c.members {
		c.Restart(i)
	}
	c.Await()
}

// Endpoints are the URLs of the members for their clients.
func (c *EtcdCluster) Endpoints() []string { return c.URLs(c.addresses()) }

// URLs lead to members by their addresses, or by others of a Cut.
func (c *EtcdCluster) URLs(addresses []string) (list []string) {
	for _, address := range addresses {
		list = append(list, c.scheme+address)
	}
	return list
}

// Addresses are those of the members, with ports, as --leader takes them.
func (c *EtcdCluster) Addresses() string { return strings.Join(c.addresses(), ",") }

func (c *EtcdCluster) addresses() (list []string) {
	for _, m := range c.members {
		list = append(list, net.JoinHostPort(m.address, clientPort))
	}
	return list
}

// Cut returns a way to the members that can be interrupted. It ends with the test.
func (c *EtcdCluster) Cut(t testing.TB) *testfleet.Cut {
	t.Helper()
	return testfleet.StartCut(t, c.addresses()...)
}

// Kill ends a member with SIGKILL.
func (c *EtcdCluster) Kill(i int) {
	m := c.members[i]
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill() // it may have ended
	_ = m.cmd.Wait()
	m.cmd = nil
}

// Await waits until all members answer.
func (c *EtcdCluster) Await() {
	c.t.Helper()
	for i := range c.members {
		c.await(i)
	}
}

// Restart starts a member that was killed.
func (c *EtcdCluster) Restart(i int) {
	c.t.Helper()
	m := c.members[i]
	var peers []string
	for _, p := range c.members {
		peers = append(peers, p.name+"=http://"+p.address+":"+peerPort)
	}
	clients, peer := c.scheme+m.address+":"+clientPort, "http://"+m.address+":"+peerPort
	m.cmd = exec.Command("etcd", append([]string{
		"--name", m.name, "--data-dir", filepath.Join(m.dir, "data"), "--log-level", "error", "--logger", "zap",
		"--bcrypt-cost", "4", // or a login on a busy machine takes longer than a client waits for
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(peers, ","),
	}, c.flags...)...)
	log := proctest.Try(os.OpenFile(c.log(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)).OK(c.t)
	defer log.Close()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(c.t, m.cmd.Start())
}

func (c *EtcdCluster) log(i int) string { return filepath.Join(c.members[i].dir, "log") }

// await waits until a member answers with the cluster's consent.
func (c *EtcdCluster) await(i int) {
	c.t.Helper()
	url := c.scheme + c.members[i].address + ":" + clientPort + "/v3/kv/range"
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.tls}}
	for deadline := time.Now().Add(startWithin); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		answer, err := client.Post(url, "application/json", strings.NewReader(`{"key":"AA=="}`))
		if err != nil {
			continue
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return
		}
	}
	text, _ := os.ReadFile(c.log(i))
	c.t.Fatalf("etcd doesn't answer: %s", text)
}

// Forget kills all members, and starts them as at the beginning: with the same flags, and no data.
func (c *EtcdCluster) Forget() {
	c.t.Helper()
	for i, m := range c.members {
		c.Kill(i)
		require.NoError(c.t, os.RemoveAll(filepath.Join(m.dir, "data")))
	}
	c.restartAll()
}

// Certificates are PEM files for clients of a cluster with TLS.
type Certificates struct {
	CA, Cert, Key string
}

// Named are those with a common name, which etcd takes as long as it has no users.
func (f *Certificates) Named() *Certificates {
	dir := filepath.Join(filepath.Dir(f.CA), "named")
	return &Certificates{f.CA, filepath.Join(dir, "cert"), filepath.Join(dir, "key")}
}

// Config is that of a client with its certificate.
func (f *Certificates) Config(t testing.TB) *tls.Config {
	t.Helper()
	config := f.Anonymous(t)
	pair := proctest.Try(tls.LoadX509KeyPair(f.Cert, f.Key)).OK(t)
	config.Certificates = []tls.Certificate{pair}
	return config
}

// Anonymous is the Config of a client without a certificate.
func (f *Certificates) Anonymous(t testing.TB) *tls.Config {
	t.Helper()
	text := proctest.ReadFile(t, f.CA)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	require.True(t, config.RootCAs.AppendCertsFromPEM(text))
	return config
}

// StartEtcdTLS is Start for a cluster that speaks TLS with clients, and only with those that have
// one of its certificates.
func StartEtcdTLS(t testing.TB, members int) (*EtcdCluster, *Certificates) {
	t.Helper()
	c, dir := prepareEtcd(t, members), t.TempDir()
	files := &Certificates{filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")}
	var addresses []string
	for _, m := range c.members {
		addresses = append(addresses, m.address)
	}
	testfleet.WriteCertificate(t, dir, "", addresses...)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "named"), 0o700))
	testfleet.WriteCertificate(t, filepath.Join(dir, "named"), "genv")
	cert := proctest.ReadFile(t, files.Cert)
	named := proctest.ReadFile(t, files.Named().Cert)
	require.NoError(t, os.WriteFile(files.CA, slices.Concat(cert, named), 0o600))
	c.scheme, c.tls = "https://", files.Config(t)
	c.flags = []string{"--cert-file", files.Cert, "--key-file", files.Key, "--trusted-ca-file", files.CA, "--client-cert-auth"}
	c.beginAll()
	return c, files
}

// AddUser makes a user who may read and write the keys with a prefix, and has the cluster ask for passwords from then on.
func (c *EtcdCluster) AddUser(name, password, prefix string) {
	c.t.Helper()
	end := []byte(prefix)
	end[len(end)-1]++
	for user, password := range map[string]string{"root": "root", name: password} {
		c.ask("/v3/auth/user/add", map[string]any{"name": user, "password": password})
		c.ask("/v3/auth/role/add", map[string]any{"name": user})
		c.ask("/v3/auth/user/grant", map[string]any{"user": user, "role": user})
	}
	c.ask("/v3/auth/role/grant", map[string]any{"name": name, "perm": map[string]any{"permType": "READWRITE", "key": []byte(prefix), "range_end": end}})
	c.ask("/v3/auth/enable", map[string]any{})
}

// AddAnother makes one more user, without a role.
func (c *EtcdCluster) AddAnother(name string) {
	c.t.Helper()
	var root struct{ Token string }
	require.NoError(c.t, json.Unmarshal(c.ask("/v3/auth/authenticate", map[string]any{"name": "root", "password": "root"}), &root))
	c.askWith(root.Token, "/v3/auth/user/add", map[string]any{"name": name, "password": "x"})
}

func (c *EtcdCluster) ask(path string, request any) []byte { return c.askWith("", path, request) }

func (c *EtcdCluster) askWith(token, path string, request any) (text []byte) {
	c.t.Helper()
	body := proctest.Try(json.Marshal(request)).OK(c.t)
	post, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.Endpoints()[0]+path, bytes.NewReader(body))
	require.NoError(c.t, err)
	if token != "" {
		post.Header.Set("Authorization", token)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.tls}}
	answer, err := client.Do(post)
	require.NoError(c.t, err)
	defer answer.Body.Close()
	text = proctest.Try(io.ReadAll(answer.Body)).OK(c.t)
	require.Equal(c.t, http.StatusOK, answer.StatusCode, "%s: %s", path, text)
	return text
}

// FreeSpace does what an operator does when a member has used up its space: it drops all but
// the newest values, up to a revision, and ends the alarm.
func (c *EtcdCluster) FreeSpace(revision uint64) {
	c.t.Helper()
	c.ask("/v3/kv/compaction", map[string]any{"revision": revision, "physical": true})
	c.ask("/v3/maintenance/defragment", map[string]any{})
	var raised struct {
		Alarms []map[string]any `json:"alarms"`
	}
	require.NoError(c.t, json.Unmarshal(c.ask("/v3/maintenance/alarm", map[string]any{"action": "GET"}), &raised))
	for _, alarm := range raised.Alarms {
		alarm["action"] = "DEACTIVATE"
		c.ask("/v3/maintenance/alarm", alarm)
	}
}
