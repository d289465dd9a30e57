package etcd

import (
	"context"
	"errors"
	"time"
)

// Lease is what keys may depend on: they are deleted when it ends.
type Lease struct {
	ID  int64
	TTL time.Duration // for which it lasts from now on
}

// leaseMessage is a lease in requests and answers; the gateway writes 64-bit numbers as text.
type leaseMessage struct {
	ID  int64 `json:"ID,string"`
	TTL int64 `json:"TTL,string"`
}

func (m *leaseMessage) lease() Lease { return Lease{m.ID, time.Duration(m.TTL) * time.Second} }

// Grant makes a lease of ttl, rounded down to seconds; less than 1 s is an error of etcd. The
// cluster may give a longer one.
func (c *Client) Grant(ctx context.Context, ttl time.Duration) (Lease, error) {
	var answer leaseMessage
	err := c.call(ctx, "/v3/lease/grant", leaseMessage{TTL: int64(ttl / time.Second)}, &answer)
	return answer.lease(), err
}

// KeepAlive has a lease last for its whole TTL again, which it returns; 0 if it has ended.
func (c *Client) KeepAlive(ctx context.Context, id int64) (ttl time.Duration, err error) {
	var answer leaseMessage
	err = c.call(ctx, "/v3/lease/keepalive", leaseMessage{ID: id}, &answer)
	if isNotFound(err) {
		return 0, nil
	}
	return answer.lease().TTL, err
}

// Revoke ends a lease now. One that has ended is no error.
func (c *Client) Revoke(ctx context.Context, id int64) error {
	err := c.call(ctx, "/v3/lease/revoke", leaseMessage{ID: id}, &struct{}{})
	if isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Code == codeNotFound
}
