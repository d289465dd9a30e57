package etcd_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/etcdcluster"
)

func TestGetAll(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := etcdcluster.Start(t, 1)
	c := open(t, etcd.Config{Endpoints: cluster.Endpoints()})
	var keys []string
	for i := range 128 {
		keys = append(keys, fmt.Sprintf("/genv/%03d", i))
	}
	require.NoError(t, c.Put(ctx, keys[1], []byte("one"), 0))
	require.NoError(t, c.Put(ctx, keys[127], []byte("last"), 0))
	require.NoError(t, c.Put(ctx, keys[1]+"/below", []byte("of another key"), 0))
	one, err := c.Get(ctx, keys[1])
	require.NoError(t, err)

	all, err := c.GetAll(ctx, keys...)
	require.NoError(t, err)
	require.Len(t, all, 128)
	require.Equal(t, one, all[1])
	require.Equal(t, "last", string(all[127].Value))
	for i, entry := range all {
		require.Equal(t, i == 1 || i == 127, entry != nil, i)
	}
	all, err = c.GetAll(ctx)
	require.NoError(t, err)
	require.Empty(t, all)
	_, err = c.GetAll(ctx, append(keys, "/genv/128")...)
	require.True(t, etcd.Refused(err), "%v", err)

	cluster.AddUser("genv", "x", "/genv/")
	c = open(t, etcd.Config{Endpoints: cluster.Endpoints(), User: "genv", Password: "x"})
	all, err = c.GetAll(ctx, keys[:2]...)
	require.NoError(t, err)
	require.Equal(t, one, all[1])
	_, err = c.GetAll(ctx, keys[0], "/other")
	require.ErrorContains(t, err, "permission denied")
}

// An answer that lacks a key doesn't say that the key isn't there.
func TestGetAllOfWhatIsNotAnswered(t *testing.T) {
	for answer, want := range map[string]string{
		`{"succeeded":true}`:                                                "no cluster id",
		`{"header":{"cluster_id":"1"},"succeeded":true}`:                    "0 of 2 keys",
		`{"header":{"cluster_id":"1"},"responses":[{"response_range":{}}]}`: "1 of 2 keys",
		`{"header":{"cluster_id":"1"},"responses":[{"response_range":{"kvs":[{"key":"L2I="}]}},{"response_range":{}}]}`:                `the key "/b" for "/a"`,
		`{"header":{"cluster_id":"1"},"responses":[{"response_range":{"kvs":[{"key":"L2E="}]}},{"response_range":{}}],"more":"later"}`: "",
	} {
		member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
		defer member.Close()
		all, err := open(t, etcd.Config{Endpoints: []string{member.URL}}).GetAll(t.Context(), "/a", "/b")
		if want != "" {
			require.ErrorContains(t, err, want, answer)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "/a", all[0].Key)
		require.Nil(t, all[1])
	}
}
