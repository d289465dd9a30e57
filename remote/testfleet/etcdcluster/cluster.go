package etcdcluster

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Require skips the test where there is no etcd.
func Require(t testing.TB) {
	t.Helper()
	proctest.NeedPrograms(t, "etcd")
}

// startWithin is how long a member may take to answer: it is slow on a busy machine.
const startWithin = time.Minute

// Cluster is a running cluster.
type Cluster struct {
	t       testing.TB
	members []*member
	flags   []string
	scheme  string      // of the URLs for clients
	tls     *tls.Config // of this package's own requests; nil for none
}

// member is one etcd.
type member struct {
	name    string
	address string // 127.x.y.z
	dir     string
	cmd     *exec.Cmd // nil while it isn't running
}

const (
	clientPort = "2379"
	peerPort   = "2380"
)

// Start starts members with further flags, and waits until they answer. Everything ends with
// the test.
func Start(t testing.TB, members int, flags ...string) *Cluster {
	t.Helper()
	c := prepare(t, members, flags...)
	c.beginAll()
	return c
}

func prepare(t testing.TB, members int, flags ...string) *Cluster {
	t.Helper()
	Require(t)
	c := &Cluster{t: t, flags: flags, scheme: "http://"}
	for i := range members {
		c.members = append(c.members, &member{
			name: fmt.Sprintf("etcd-%d", i), dir: t.TempDir(),
			address: fmt.Sprintf("127.%d.%d.%d", 128+rand.IntN(126), 1+rand.IntN(250), 1+rand.IntN(250)),
		})
	}
	return c
}

// beginAll starts all members, until the test ends.
func (c *Cluster) beginAll() {
	c.t.Helper()
	c.t.Cleanup(func() {
		for i := range c.members {
			c.Kill(i)
		}
	})
	for i := range c.members {
		c.begin(i)
	}
	for i := range c.members {
		c.await(i)
	}
}

// Endpoints are the URLs of the members for their clients.
func (c *Cluster) Endpoints() []string { return c.URLs(c.addresses()) }

// URLs lead to members by their addresses, or by others of a Cut.
func (c *Cluster) URLs(addresses []string) (list []string) {
	for _, address := range addresses {
		list = append(list, c.scheme+address)
	}
	return list
}

// Addresses are those of the members, with ports, as --leader takes them.
func (c *Cluster) Addresses() string { return strings.Join(c.addresses(), ",") }

func (c *Cluster) addresses() (list []string) {
	for _, m := range c.members {
		list = append(list, net.JoinHostPort(m.address, clientPort))
	}
	return list
}

// Cut returns a way to the members that can be interrupted. It ends with the test.
func (c *Cluster) Cut(t testing.TB) *testfleet.Cut {
	t.Helper()
	return testfleet.StartCut(t, c.addresses()...)
}

// Kill ends a member with SIGKILL.
func (c *Cluster) Kill(i int) {
	m := c.members[i]
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill() // it may have ended
	_ = m.cmd.Wait()
	m.cmd = nil
}

// Restart starts a member that was killed.
func (c *Cluster) Restart(i int) { c.begin(i) }

// Await waits until all members answer.
func (c *Cluster) Await() {
	c.t.Helper()
	for i := range c.members {
		c.await(i)
	}
}

func (c *Cluster) begin(i int) {
	c.t.Helper()
	m := c.members[i]
	var peers []string
	for _, p := range c.members {
		peers = append(peers, p.name+"=http://"+p.address+":"+peerPort)
	}
	clients, peer := c.scheme+m.address+":"+clientPort, "http://"+m.address+":"+peerPort
	m.cmd = exec.Command("etcd", append([]string{
		"--name", m.name, "--data-dir", filepath.Join(m.dir, "data"), "--log-level", "error", "--logger", "zap",
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(peers, ","),
	}, c.flags...)...)
	log, err := os.OpenFile(c.log(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(c.t, err)
	defer log.Close()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(c.t, m.cmd.Start())
}

func (c *Cluster) log(i int) string { return filepath.Join(c.members[i].dir, "log") }

// await waits until a member answers with the cluster's consent.
func (c *Cluster) await(i int) {
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
func (c *Cluster) Forget() {
	c.t.Helper()
	for i, m := range c.members {
		c.Kill(i)
		require.NoError(c.t, os.RemoveAll(filepath.Join(m.dir, "data")))
	}
	for i := range c.members {
		c.begin(i)
	}
	c.Await()
}
