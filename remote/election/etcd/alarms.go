package etcd

import (
	"context"
	"slices"
	"strings"
)

// OutOfSpace reports whether etcd has raised the alarm that a member's space is used up: until an
// operator ends it, etcd renews leases and answers reads, but neither writes nor grants leases.
func (c *Client) OutOfSpace(ctx context.Context) (bool, error) {
	var status struct {
		Errors []string `json:"errors"` // alarms, such as "memberID:10276657743932975437 alarm:NOSPACE "
	}
	err := c.call(ctx, "/v3/maintenance/status", struct{}{}, &status)
	return slices.ContainsFunc(status.Errors, func(e string) bool { return strings.Contains(e, "alarm:NOSPACE") }), err
}
