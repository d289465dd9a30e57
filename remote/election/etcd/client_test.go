package etcd_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, config etcd.Config) *etcd.Gateway {
	c := etcd.New(config)
	t.Cleanup(c.Close)
	return c
}

// member is a member of etcd with answers of its own, by its URL.
func member(t *testing.T, handle http.HandlerFunc) string {
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s.URL
}

// answers says the same to every request.
func answers(status int, answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}
}

// What the election relies on, asked of a real etcd.
func TestARealEtcd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := open(t, etcd.Config{Endpoints: servers.StartEtcd(t, 1).Endpoints()})
	entry := proctest.Try(c.Get(ctx, "/k/leader")).OK(t)
	require.Nil(t, entry)

	lease, granted, err := c.Grant(ctx, time.Minute)
	require.NoError(t, err)
	require.Equal(t, time.Minute, granted)
	made := proctest.Try(c.Create(ctx, "/k/leader", []byte("a\x00\xff"), lease)).OK(t)
	require.True(t, made.Own)
	require.NotZero(t, made.Cluster)
	again := proctest.Try(c.Create(ctx, "/k/leader", []byte("b"), lease)).OK(t)
	require.Equal(t, made, again, "as if the first answer had been lost")
	other, _, err := c.Grant(ctx, time.Minute)
	require.NoError(t, err)
	foreign := proctest.Try(c.Create(ctx, "/k/leader", []byte("b"), other)).OK(t)
	require.False(t, foreign.Own)
	require.Equal(t, []byte("a\x00\xff"), foreign.Value)
	require.Equal(t, made.Created, foreign.Created)

	write := func(created uint64, key, value string) error {
		_, err := c.PutAfter(ctx, "/k/leader", created, key, 0, []byte(value))
		return err
	}
	require.NoError(t, write(made.Created, "/k/memory/2", "two"))
	require.NoError(t, write(made.Created, "/k/memory/3", ""))
	require.ErrorIs(t, write(made.Created-1, "/k/memory/4", "of another"), etcd.ErrConflict, "it was replaced")
	keys := proctest.Try(c.List(ctx, "/k/memory/")).OK(t)
	require.Len(t, keys, 2)
	require.Equal(t, "/k/memory/2", string(keys[0].Key))
	require.Equal(t, []byte("two"), keys[0].Value)
	require.NotZero(t, keys[0].Modified)
	after := func(modified uint64) (uint64, error) {
		return c.PutAfter(ctx, "/k/leader", made.Created, "/k/memory/2", modified, []byte("later"))
	}
	require.ErrorIs(t, proctest.Try(after(0)).Err, etcd.ErrConflict, "it is there")
	modified := proctest.Try(after(keys[0].Modified)).OK(t)
	require.ErrorIs(t, proctest.Try(after(keys[0].Modified)).Err, etcd.ErrConflict, "it was modified meanwhile")
	proctest.Try(after(modified)).OK(t)
	require.Eventually(t, func() bool { // a busy machine may take longer for it than the client waits
		return etcd.Refused(write(made.Created, "/k/memory/4", strings.Repeat("x", 2<<20)))
	}, time.Minute, time.Millisecond)

	ttl := proctest.Try(c.KeepAlive(ctx, lease)).OK(t)
	require.Equal(t, time.Minute, ttl)
	ttl, entry, err = c.Renew(ctx, lease, "/k/leader")
	require.NoError(t, err)
	require.Equal(t, time.Minute, ttl)
	require.Equal(t, made.Created, entry.Created)
	requireRevoked(t, c, lease)
}

// requireRevoked ends a lease, and requires that its key ends with it.
func requireRevoked(t *testing.T, c *etcd.Gateway, id int64) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, c.Revoke(ctx, id))
	require.NoError(t, c.Revoke(ctx, id), "it has ended")
	ttl := proctest.Try(c.KeepAlive(ctx, id)).OK(t)
	require.Zero(t, ttl)
	ttl, _, err := c.Renew(ctx, id, "/k/leader")
	require.NoError(t, err)
	require.Zero(t, ttl)
	entry := proctest.Try(c.Get(ctx, "/k/leader")).OK(t)
	require.Nil(t, entry, "the key ends with its lease")
}

// With users: the password is wrong, the token expires, a user has no rights.
func TestUsers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := servers.StartEtcd(t, 1, "--auth-token-ttl", "1")
	cluster.AddUser("genv", "secret: word", "/genv/")
	c := open(t, etcd.Config{Endpoints: cluster.Endpoints(), User: "genv", Password: "secret: word"})
	proctest.Try(c.Get(ctx, "/genv/lab/leader")).OK(t)
	require.ErrorContains(t, proctest.Try(c.Get(ctx, "/other/leader")).Err, "permission denied (the role of the user needs")
	time.Sleep(3 * time.Second) // the token's time
	lease, _, err := c.Grant(ctx, 5*time.Second)
	require.NoError(t, err)
	made := proctest.Try(c.Create(ctx, "/genv/lab/leader", []byte("a"), lease)).OK(t)
	require.True(t, made.Own)
	_, err = open(t, etcd.Config{Endpoints: cluster.Endpoints(), User: "genv", Password: "wrong"}).Get(ctx, "/genv/lab/leader")
	require.ErrorContains(t, err, "log in to etcd as genv")
	_, err = open(t, etcd.Config{Endpoints: cluster.Endpoints()}).Get(ctx, "/genv/lab/leader")
	require.ErrorContains(t, err, "user name is empty (etcd has users: --leader-login is needed)")
}

// With tokens that etcd only signs (--auth-token jwt), each change of a user, by whomever, ends all of
// them: the client logs in again.
func TestUsersThatChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key := proctest.Try(rsa.GenerateKey(rand.Reader, 2048)).OK(t)
	public := proctest.Try(x509.MarshalPKIXPublicKey(&key.PublicKey)).OK(t)
	for name, block := range map[string]pem.Block{"key": {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}, "public": {Type: "PUBLIC KEY", Bytes: public}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&block), 0o600))
	}
	cluster := servers.StartEtcd(t, 1, "--auth-token", "jwt,pub-key="+dir+"/public,priv-key="+dir+"/key,sign-method=RS256,ttl=10m")
	cluster.AddUser("genv", "x", "/genv/")
	c := open(t, etcd.Config{Endpoints: cluster.Endpoints(), User: "genv", Password: "x"})
	require.NoError(t, c.Put(t.Context(), "/genv/a", []byte("1"), 0))
	cluster.AddAnother("bob")
	proctest.Try(c.Get(t.Context(), "/genv/a")).OK(t)
	cluster.AddAnother("carol")
	require.NoError(t, c.Put(t.Context(), "/genv/a", []byte("2"), 0))
}

// With users, etcd refuses certificates with a common name, no matter who logs in.
func TestACertificateWithAName(t *testing.T) {
	t.Parallel()
	cluster, files := servers.StartEtcdTLS(t, 1)
	get := func(files *servers.Certificates) error {
		_, err := open(t, etcd.Config{Endpoints: cluster.Endpoints(), User: "genv", Password: "x", TLS: files.Config(t)}).Get(t.Context(), "/genv/lab/leader")
		return err
	}
	require.ErrorContains(t, get(files.Named()), "authentication is not enabled (etcd has no users: leave out --leader-login)")
	cluster.AddUser("genv", "x", "/genv/")
	require.NoError(t, get(files))
	require.ErrorIs(t, get(files.Named()), etcd.ErrCommonName)
}

// After a restore, etcd doesn't answer requests with a token from before, and doesn't refuse it.
func TestATokenFromBeforeARestore(t *testing.T) {
	t.Parallel()
	var logins atomic.Int32
	restored := member(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case r.URL.Path == "/v3/auth/authenticate":
			_, _ = fmt.Fprintf(w, `{"header":{"cluster_id":"1"},"token":"token.%d"}`, logins.Add(1))
		case r.Header.Get("Authorization") == "token.1":
			<-r.Context().Done()
		default:
			_, _ = w.Write([]byte(`{"header":{"cluster_id":"1"}}`))
		}
	})
	c := open(t, etcd.Config{Endpoints: []string{restored}, User: "genv", Password: "x"})
	require.ErrorContains(t, proctest.Try(c.Get(t.Context(), "/k")).Err, "etcd doesn't answer")
	for range 3 {
		proctest.Try(c.Get(t.Context(), "/k")).OK(t)
	}
	require.EqualValues(t, 2, logins.Load())
}

// A member that doesn't answer costs its time once: the next call begins with the one that answered.
func TestMembersThatDontAnswer(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	noted := func(name string, handle http.HandlerFunc) string {
		return member(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, name)
			mu.Unlock()
			handle(w, r)
		})
	}
	hangs := noted("hangs", func(_ http.ResponseWriter, r *http.Request) {
		buffer := make([]byte, 1024)
		for { // the body, and then until the client leaves
			if _, err := r.Body.Read(buffer); err != nil {
				break
			}
		}
		<-r.Context().Done()
	})
	alone := noted("has no leader", answers(http.StatusServiceUnavailable, `{"error":"etcdserver: no leader","message":"etcdserver: no leader","code":14}`))
	foreign := noted("isn't etcd", answers(http.StatusOK, "<html>"))
	works := noted("works", answers(http.StatusOK, `{"header":{"cluster_id":"1"}}`))
	c := open(t, etcd.Config{Endpoints: []string{"http://127.0.0.1:1", hangs, alone, foreign, works}})
	for range 2 {
		proctest.Try(c.Get(t.Context(), "/k")).OK(t)
	}
	mu.Lock()
	require.Equal(t, []string{"hangs", "has no leader", "isn't etcd", "works", "works"}, asked)
	mu.Unlock()
	c = open(t, etcd.Config{Endpoints: []string{alone, foreign}})
	_, err := c.Get(t.Context(), "/k")
	require.ErrorContains(t, err, "etcd doesn't answer")
	require.ErrorContains(t, err, "no leader")
	require.ErrorContains(t, err, "not an answer of etcd")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, proctest.Try(c.Get(ctx, "/k")).Err, context.Canceled)
}

// What an operator sees when etcd is asked in the wrong way names the member, and the flag to change.
func TestWhyAMemberDoesntAnswer(t *testing.T) {
	t.Parallel()
	secure, files := servers.StartEtcdTLS(t, 1)
	_, foreign := servers.StartEtcdTLS(t, 1)
	plain := servers.StartEtcd(t, 1).Endpoints()[0]
	address := func(endpoint string) string { return strings.SplitAfter(endpoint, "://")[1] }
	tlsAt, plainAt := address(secure.Endpoints()[0]), address(plain)
	otherAuthority, otherName := files.Config(t), files.Config(t)
	otherAuthority.Certificates = foreign.Config(t).Certificates
	otherName.ServerName = "etcd-1"
	later := files.Config(t)
	later.Time = func() time.Time { return time.Now().Add(48 * time.Hour) }
	silent := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t) // it takes connections, and says nothing
	defer silent.Close()
	for name, row := range map[string]struct {
		endpoint string
		tls      *tls.Config
		says     []string
	}{
		"TLS is needed":               {"http://" + tlsAt, nil, []string{tlsAt, "write etcds://"}},
		"TLS isn't spoken":            {"https://" + plainAt, files.Config(t), []string{plainAt, "write etcd://"}},
		"another authority":           {"https://" + tlsAt, foreign.Config(t), []string{tlsAt, "unknown authority", "(--leader-ca"}},
		"the system's authorities":    {"https://" + tlsAt, nil, []string{"unknown authority", "(--leader-ca"}},
		"no certificate of its own":   {"https://" + tlsAt, files.Anonymous(t), []string{"may require a client certificate: --leader-cert and --leader-key"}},
		"its certificate is foreign":  {"https://" + tlsAt, otherAuthority, []string{"rejected the certificate of --leader-cert"}},
		"another name":                {"https://" + tlsAt, otherName, []string{"etcd-1", "subjectAltName"}},
		"its certificate has expired": {"https://" + tlsAt, later, []string{tlsAt, "certificate has expired"}},
		"it hangs":                    {"http://" + silent.Addr().String(), nil, []string{"etcd doesn't answer: " + silent.Addr().String() + ": no answer within 1s"}},
		"the port of other members":   {"http://" + strings.Replace(plainAt, ":2379", ":2380", 1), nil, []string{":2380: not an answer of etcd", "2379 is the port for clients"}},
		"no member is there":          {"http://127.0.0.1:1", nil, []string{"127.0.0.1:1: dial", "connection refused"}},
		"no machine is of that name":  {"http://etcd-9.invalid:2379", nil, []string{"etcd-9.invalid:2379: dial", "lookup"}},
		"it is as it should be":       {"https://" + tlsAt, files.Config(t), nil},
		"it is as it should be there": {plain, nil, nil},
	} {
		_, err := open(t, etcd.Config{Endpoints: []string{row.endpoint}, TLS: row.tls}).Get(t.Context(), "/k")
		if row.says == nil {
			require.NoError(t, err, name)
			continue
		}
		for _, text := range append(row.says, "etcd doesn't answer: ") {
			require.ErrorContains(t, err, text, name)
		}
	}
}

// Each member is asked, also those that calls don't need.
func TestMembers(t *testing.T) {
	t.Parallel()
	cluster, other := servers.StartEtcd(t, 3), servers.StartEtcd(t, 1)
	endpoints := append(cluster.Endpoints(), other.Endpoints()[0], "http://127.0.0.1:1")
	members := open(t, etcd.Config{Endpoints: endpoints}).Members(t.Context(), "/k")
	require.Len(t, members, 5)
	for i, m := range members {
		require.Equal(t, endpoints[i], "http://"+m.Address)
		if i == 4 {
			require.ErrorContains(t, m.Err, "connection refused")
			require.Zero(t, m.Cluster)
			continue
		}
		require.NoError(t, m.Err)
		require.Equal(t, i < 3, m.Cluster == members[0].Cluster)
	}
}

func TestMembersOfAClusterWithUsers(t *testing.T) {
	t.Parallel()
	cluster := servers.StartEtcd(t, 3)
	cluster.AddUser("genv", "x", "/genv/")
	for password, works := range map[string]bool{"x": true, "y": false} {
		for _, m := range open(t, etcd.Config{Endpoints: cluster.Endpoints(), User: "genv", Password: password}).Members(t.Context(), "/genv/lab") {
			require.Equal(t, works, m.Cluster != 0)
			require.Equal(t, !works, etcd.Refused(m.Err))
		}
	}
}
