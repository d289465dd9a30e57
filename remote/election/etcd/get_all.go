package etcd

import (
	"context"
	"fmt"
)

// GetAll reads keys in one request, as of one revision. In the place of a key that isn't there is
// nil. There may be at most 128 keys, which is the default of etcd's --max-txn-ops.
func (c *Client) GetAll(ctx context.Context, keys ...string) ([]*Entry, error) {
	request := transaction{If: []compare{}}
	for _, key := range keys {
		request.Then = append(request.Then, operation{Range: &rangeRequest{Key: []byte(key)}})
	}
	var o outcome
	if err := c.call(ctx, "/v3/kv/txn", request, &o); err != nil {
		return nil, err
	}
	if len(o.Responses) != len(keys) {
		return nil, fmt.Errorf("etcd answered for %d of %d keys", len(o.Responses), len(keys))
	}
	entries := make([]*Entry, len(keys))
	for i, key := range keys {
		list := o.Responses[i].Range.Entries
		if len(list) == 0 {
			continue
		}
		entry := list[0].entry()
		if entry.Key != key {
			return nil, fmt.Errorf("etcd answered with the key %q for %q", entry.Key, key)
		}
		entries[i] = &entry
	}
	return entries, nil
}
