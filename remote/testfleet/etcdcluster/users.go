package etcdcluster

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/stretchr/testify/require"
)

// AddUser makes a user who may read and write the keys with a prefix, and has the cluster ask
// for passwords from then on.
func (c *Cluster) AddUser(name, password, prefix string) {
	c.t.Helper()
	end := []byte(prefix)
	end[len(end)-1]++
	c.ask("/v3/auth/user/add", map[string]any{"name": "root", "password": "root"})
	c.ask("/v3/auth/role/add", map[string]any{"name": "root"})
	c.ask("/v3/auth/user/grant", map[string]any{"user": "root", "role": "root"})
	c.ask("/v3/auth/user/add", map[string]any{"name": name, "password": password})
	c.ask("/v3/auth/role/add", map[string]any{"name": name})
	c.ask("/v3/auth/role/grant", map[string]any{"name": name, "perm": map[string]any{"permType": "READWRITE", "key": []byte(prefix), "range_end": end}})
	c.ask("/v3/auth/user/grant", map[string]any{"user": name, "role": name})
	c.ask("/v3/auth/enable", map[string]any{})
}

// AddAnother makes one more user, without a role.
func (c *Cluster) AddAnother(name string) {
	c.t.Helper()
	var root struct{ Token string }
	require.NoError(c.t, json.Unmarshal(c.ask("/v3/auth/authenticate", map[string]any{"name": "root", "password": "root"}), &root))
	c.askWith(root.Token, "/v3/auth/user/add", map[string]any{"name": name, "password": "x"})
}

func (c *Cluster) ask(path string, request any) (text []byte) {
	c.t.Helper()
	return c.askWith("", path, request)
}

func (c *Cluster) askWith(token, path string, request any) (text []byte) {
	c.t.Helper()
	body, err := json.Marshal(request)
	require.NoError(c.t, err)
	post, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.Endpoints()[0]+path, bytes.NewReader(body))
	require.NoError(c.t, err)
	if token != "" {
		post.Header.Set("Authorization", token)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: c.tls}}
	answer, err := client.Do(post)
	require.NoError(c.t, err)
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, answer.StatusCode, "%s: %s", path, text)
	return text
}

// FreeSpace does what an operator does when a member has used up its space: it drops all but
// the newest values, up to a revision, and ends the alarm.
func (c *Cluster) FreeSpace(revision uint64) {
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
