package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// KeyValue is a key with its value. Created and Modified are the revisions of the cluster that created the key and last
// wrote its value.
type KeyValue struct {
	Key      []byte `json:"key"`
	Value    []byte `json:"value,omitempty"`
	Created  uint64 `json:"create_revision,string,omitempty"`
	Modified uint64 `json:"mod_revision,string,omitempty"`
	Lease    int64  `json:"lease,string,omitempty"` // deletes the key when it ends; 0 for none
}

type rangeRequest struct {
	Key      []byte `json:"key"`
	End      []byte `json:"range_end,omitempty"`
	KeysOnly bool   `json:"keys_only,omitempty"`
}

type rangeAnswer struct {
	Header  header     `json:"header"`
	Entries []KeyValue `json:"kvs"`
}

type header struct {
	Cluster  uint64 `json:"cluster_id,string"`
	Revision uint64 `json:"revision,string"`
	Term     uint64 `json:"raft_term,string"` // of etcd's own leader, as far as the member knows
}

// compare is a condition of a transaction: the revision that created a key, or last modified it; 0 for no key.
type compare struct {
	Key      []byte  `json:"key"`
	Target   string  `json:"target"`
	Result   string  `json:"result"`
	Created  *uint64 `json:"create_revision,string,omitempty"`
	Modified *uint64 `json:"mod_revision,string,omitempty"`
}

func createdIn(key string, revision uint64) compare {
	return compare{Key: []byte(key), Target: "CREATE", Result: "EQUAL", Created: &revision}
}

func modifiedIn(key string, revision uint64) compare {
	return compare{Key: []byte(key), Target: "MOD", Result: "EQUAL", Modified: &revision}
}

// transact writes a key if all conditions hold. Else it reads the key, or returns ErrConflict.
func (c *Gateway) transact(ctx context.Context, put KeyValue, read bool, conditions ...compare) (
	wrote bool, h header, found []KeyValue, err error,
) {
	request := map[string]any{"compare": conditions, "success": []any{map[string]any{"request_put": put}}}
	if read {
		request["failure"] = []any{map[string]any{"request_range": rangeRequest{Key: put.Key}}}
	}
	var result struct {
		Header    header `json:"header"`
		Succeeded bool   `json:"succeeded"`
		Responses []struct {
			Range rangeAnswer `json:"response_range"`
		} `json:"responses"`
	}
	err = c.call(ctx, "/v3/kv/txn", request, &result)
	if err == nil && !result.Succeeded && !read {
		err = ErrConflict
	}
	for _, r := range result.Responses {
		found = append(found, r.Range.Entries...)
	}
	return result.Succeeded, result.Header, found, err
}

// Creation is the result of Create: the present key.
type Creation struct {
	KeyValue
	Cluster uint64 // the id of the cluster
	Own     bool   // the key depends on the caller's lease
}

// Create creates a key that depends on a lease, unless the key exists. An existing key is the caller's Own if the
// answer to an earlier try was lost.
func (c *Gateway) Create(ctx context.Context, key string, value []byte, lease int64) (made Creation, err error) {
	put := KeyValue{Key: []byte(key), Value: value, Lease: lease}
	wrote, h, found, err := c.transact(ctx, put, true, createdIn(key, 0))
	switch {
	case err != nil:
		return made, err
	case wrote:
		put.Created, put.Modified = h.Revision, h.Revision
	case len(found) != 1:
		return made, fmt.Errorf("etcd neither made the key %q nor returned it", key)
	default:
		put = found[0]
	}
	return Creation{put, h.Cluster, put.Lease == lease && lease != 0 || wrote}, nil
}

// Update writes a key that was created in a revision and depends on a lease, or returns ErrConflict.
func (c *Gateway) Update(ctx context.Context, key string, created uint64, value []byte, lease int64) error {
	put := KeyValue{Key: []byte(key), Value: value, Lease: lease}
	_, _, _, err := c.transact(ctx, put, false, createdIn(key, created))
	return err
}

// Get reads a key; nil for none.
func (c *Gateway) Get(ctx context.Context, key string) (*KeyValue, error) {
	entry, _, err := c.get(ctx, key)
	return entry, err
}

// Look is Get with the id of the cluster.
func (c *Gateway) Look(ctx context.Context, key string) (entry *KeyValue, cluster uint64, err error) {
	entry, h, err := c.get(ctx, key)
	return entry, h.Cluster, err
}

func (c *Gateway) get(ctx context.Context, key string) (*KeyValue, header, error) {
	var answer rangeAnswer
	err := c.call(ctx, "/v3/kv/range", rangeRequest{Key: []byte(key)}, &answer)
	if err != nil || len(answer.Entries) == 0 {
		return nil, answer.Header, err
	}
	return &answer.Entries[0], answer.Header, nil
}

// List returns the keys with a prefix, with their values.
func (c *Gateway) List(ctx context.Context, prefix string) ([]KeyValue, error) {
	var answer rangeAnswer
	err := c.call(ctx, "/v3/kv/range", rangeRequest{Key: []byte(prefix), End: after(prefix)}, &answer)
	return answer.Entries, err
}

// Put writes a key, which then depends only on this lease; 0 for none.
func (c *Gateway) Put(ctx context.Context, key string, value []byte, lease int64) error {
	return c.call(ctx, "/v3/kv/put", KeyValue{Key: []byte(key), Value: value, Lease: lease}, &struct{}{})
}

// after is the first key that doesn't have the prefix.
func after(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	return []byte{0} // all keys
}

// ErrConflict says that nothing was written: another controller leads, or modified the key.
var ErrConflict = errors.New("another controller leads, or wrote in the meantime")

// PutAfter writes a key if guard was created, and the key last written, in these revisions; 0 stands for a missing key.
// It returns the new revision, or ErrConflict, so that a late write doesn't replace a later one.
func (c *Gateway) PutAfter(ctx context.Context, guard string, created uint64, key string, modified uint64,
	value []byte,
) (uint64, error) {
	put := KeyValue{Key: []byte(key), Value: value}
	_, h, _, err := c.transact(ctx, put, false, createdIn(guard, created), modifiedIn(key, modified))
	return h.Revision, err
}

// leaseMessage is a lease in requests and answers. The gateway writes 64-bit numbers as text.
type leaseMessage struct {
	ID  int64 `json:"ID,string"`
	TTL int64 `json:"TTL,string"`
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// Grant makes a lease for ttl, in whole seconds, at least one. The cluster may grant more.
func (c *Gateway) Grant(ctx context.Context, ttl time.Duration) (id int64, granted time.Duration, err error) {
	var answer leaseMessage
	err = c.call(ctx, "/v3/lease/grant", leaseMessage{TTL: int64(ttl / time.Second)}, &answer)
	return answer.ID, seconds(answer.TTL), err
}

// KeepAlive renews a lease for its whole TTL, which it returns; 0 if the lease has ended.
func (c *Gateway) KeepAlive(ctx context.Context, id int64) (ttl time.Duration, err error) {
	ttl, _, err = c.keepAlive(ctx, id)
	return ttl, err
}

func (c *Gateway) keepAlive(ctx context.Context, id int64) (ttl time.Duration, term uint64, err error) {
	var answer struct {
		leaseMessage
		Header header `json:"header"`
	}
	err = c.call(ctx, "/v3/lease/keepalive", leaseMessage{ID: id}, &answer)
	if isNotFound(err) {
		return 0, 0, nil
	}
	return seconds(answer.TTL), answer.Header.Term, err
}

// errTerm says that an earlier leader of etcd may have renewed the lease.
var errTerm = errors.New("etcd elected another leader of its members meanwhile")

// Renew is KeepAlive and then, unless the lease has ended, Get, which needs a majority of the members. It fails unless
// both answers are of the same term: a member with a hanging disk answers keep-alives although the others have another
// leader and have ended the lease (https://github.com/etcd-io/etcd/issues/15247).
func (c *Gateway) Renew(ctx context.Context, id int64, key string) (ttl time.Duration, entry *KeyValue, err error) {
	ttl, term, err := c.keepAlive(ctx, id)
	if err != nil || ttl == 0 {
		return 0, nil, err
	}
	entry, read, err := c.get(ctx, key)
	if err == nil && read.Term != term {
		err = errTerm
	}
	return ttl, entry, err
}

// TimeToLive is how long a lease still lasts, and its whole TTL; 0 for one that has ended.
func (c *Gateway) TimeToLive(ctx context.Context, id int64) (left, granted time.Duration, err error) {
	var answer struct {
		leaseMessage
		Granted int64 `json:"grantedTTL,string"`
	}
	if err := c.call(ctx, "/v3/lease/timetolive", leaseMessage{ID: id}, &answer); err != nil || answer.TTL < 0 {
		return 0, 0, err
	}
	return seconds(answer.TTL), seconds(answer.Granted), nil
}

// Revoke ends a lease, which may have ended already.
func (c *Gateway) Revoke(ctx context.Context, id int64) error {
	err := c.call(ctx, "/v3/lease/revoke", leaseMessage{ID: id}, &struct{}{})
	if isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool {
	refused, ok := errors.AsType[*MemberError](err)
	return ok && refused.Code == codeNotFound
}

// Member is the answer of one member of the cluster.
type Member struct {
	Address string // such as 10.0.0.1:2379
	Cluster uint64 // the id of its cluster; 0 after an error
	Err     error  // why it doesn't answer, or what it Refused
}

// Members asks each member, all at once, for at most a second. Other calls may show only the errors of the first one.
func (c *Gateway) Members(ctx context.Context, key string) []Member {
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

// clusterOf asks a member to read a key or, with users, to log in, which needs no token.
func (c *Gateway) clusterOf(ctx context.Context, endpoint, key string) (uint64, error) {
	path, request := "/v3/kv/range", any(rangeRequest{Key: []byte(key), KeysOnly: true})
	if c.config.User != "" {
		path, request = "/v3/auth/authenticate", c.credentials()
	}
	var answer struct{ Header header }
	err := c.ask(ctx, endpoint, path, "", request, &answer)
	return answer.Header.Cluster, err
}

// OutOfSpace reports whether etcd has raised the alarm that its space is used up. Then it neither writes nor grants
// leases.
func (c *Gateway) OutOfSpace(ctx context.Context) (bool, error) {
	var status struct {
		Errors []string `json:"errors"` // alarms, such as "memberID:10276657743932975437 alarm:NOSPACE "
	}
	err := c.call(ctx, "/v3/maintenance/status", struct{}{}, &status)
	return slices.ContainsFunc(status.Errors, func(e string) bool { return strings.Contains(e, "alarm:NOSPACE") }), err
}
