package leadership_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/etcdcluster"
)

func TestCheckMembers(t *testing.T) {
	t.Parallel()
	one, other := etcdcluster.Start(t, 1).Addresses(), etcdcluster.Start(t, 1).Addresses()
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
		config, err := read(true, nil, "--leader", "etcd://"+strings.Join(row.members, ",")+"/genv/lab")
		require.NoError(t, err, name)
		var log bytes.Buffer
		err = config.CheckMembers(t.Context(), zerolog.New(&log))
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
	config, err := read(true, nil)
	require.NoError(t, err)
	require.NoError(t, config.CheckMembers(t.Context(), zerolog.Nop()), "there is no election")
}

// What etcd refuses is the election's to say: a wrong password is no member that doesn't answer.
func TestCheckMembersThatRefuse(t *testing.T) {
	t.Parallel()
	cluster := etcdcluster.Start(t, 1)
	cluster.AddUser("genv", "x", "/genv/")
	config, err := read(true, map[string]string{"GENV_LEADER_LOGIN": "genv:y"}, "--leader", "etcd://"+cluster.Addresses()+"/genv/lab")
	require.NoError(t, err)
	var log bytes.Buffer
	require.NoError(t, config.CheckMembers(t.Context(), zerolog.New(&log)))
	require.Empty(t, log.String())
}

// The command is one that can be copied, and has no password.
func TestHealth(t *testing.T) {
	dir := files(t)
	config, err := read(true, nil, "--leader", "etcds://a,b:2380/genv/lab", "--leader-login", dir+"/login",
		"--leader-ca", dir+"/cert", "--leader-cert", dir+"/cert", "--leader-key", dir+"/key")
	require.NoError(t, err)
	require.Equal(t, "etcdctl --endpoints https://a:2379,https://b:2380 --cacert DIR/cert --cert DIR/cert --key DIR/key --user genv endpoint health",
		strings.ReplaceAll(config.Health(), dir, "DIR"))
}
