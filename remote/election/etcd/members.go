package etcd

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

// Member is what one member of the cluster says when it is asked alone.
type Member struct {
	Address string // such as 10.0.0.1:2379
	Cluster uint64 // the id of its cluster; 0 if there is an error
	Err     error  // why it doesn't answer or, if it is Refused, what it doesn't do; nil if it answered
}

// Members asks each member alone, all at the same time, for at most a second: calls go to the first
// that answers, so that what is wrong with another one would show when the first is lost.
func (c *Client) Members(ctx context.Context, key string) []Member {
	members := make([]Member, len(c.config.Endpoints))
	var asked sync.WaitGroup
	for i, endpoint := range c.config.Endpoints {
		asked.Go(func() {
			cluster, err := c.clusterOf(ctx, endpoint, key)
			members[i] = Member{strings.SplitAfter(endpoint, "://")[1], cluster, err}
		})
	}
	asked.Wait()
	return members
}

// clusterOf asks a member what needs no token: to read a key or, with users, to log in.
func (c *Client) clusterOf(ctx context.Context, endpoint, key string) (uint64, error) {
	path, request := "/v3/kv/range", any(rangeRequest{Key: []byte(key), KeysOnly: true})
	if c.config.User != "" {
		path, request = "/v3/auth/authenticate", c.credentials()
	}
	body, err := json.Marshal(request)
	if err != nil {
		return 0, err
	}
	var answer struct{ Header header }
	err = c.ask(ctx, endpoint, path, "", body, &answer)
	return answer.Header.Cluster, err
}

// OutOfSpace reports whether etcd has raised the alarm that a member's space is used up: until an
// operator ends it, etcd renews leases and answers reads, but neither writes nor grants leases.
func (c *Client) OutOfSpace(ctx context.Context) (bool, error) {
	var status struct {
		Errors []string `json:"errors"` // alarms, such as "memberID:10276657743932975437 alarm:NOSPACE "
	}
	err := c.call(ctx, "/v3/maintenance/status", struct{}{}, &status)
	return slices.ContainsFunc(status.Errors, func(e string) bool { return strings.Contains(e, "alarm:NOSPACE") }), err
}
