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
	ttl, _, err = c.keepAlive(ctx, id)
	return ttl, err
}

func (c *Client) keepAlive(ctx context.Context, id int64) (ttl time.Duration, term uint64, err error) {
	var answer struct {
		leaseMessage
		Header header `json:"header"`
	}
	err = c.call(ctx, "/v3/lease/keepalive", leaseMessage{ID: id}, &answer)
	if isNotFound(err) {
		return 0, 0, nil
	}
	return answer.lease().TTL, answer.Header.Term, err
}

// errTerm says that a renewal may have been that of an earlier leader of etcd.
var errTerm = errors.New("etcd elected another leader of its members meanwhile")

// Renew is KeepAlive and then, unless the lease has ended, Get. It fails if a majority of the members
// doesn't confirm the renewal: a member with a disk that hangs answers keep-alives although the others
// have elected another leader, and have ended the lease (https://github.com/etcd-io/etcd/issues/15247).
// Reads need a majority, and both answers must be of the same term.
func (c *Client) Renew(ctx context.Context, id int64, key string) (ttl time.Duration, entry *Entry, err error) {
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
