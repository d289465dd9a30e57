package etcd_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
)

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
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections, and says nothing
	require.NoError(t, err)
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
