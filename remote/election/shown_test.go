package election_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// What etcd refuses is another thing than etcd that doesn't answer: the next steps differ.
func TestEtcdRefuses(t *testing.T) {
	refusal := &etcd.Error{Code: 8, Message: "mvcc: database space exceeded"}
	denied := fmt.Errorf("log in to etcd as genv: %w", &etcd.Error{Code: 3, Message: "authentication failed, invalid user ID or password"})
	silent := fmt.Errorf("etcd doesn't answer: %w", errors.Join(errors.New("connection refused"), &etcd.Error{Code: 14, Message: "no leader"}))
	for _, row := range []struct {
		role election.Role
		err  error
		want string
	}{
		{election.Standby, refusal, "standby; etcd refuses what this controller asks, so it can't lead"},
		{election.Standby, denied, "standby; etcd refuses what this controller asks, so it can't lead"},
		{election.Standby, silent, "standby; etcd doesn't answer, so it isn't known which controller leads"},
		{election.Leading, denied, "etcd refuses to renew the lease: this controller acts until the lease expires"},
		{election.Leading, silent, "etcd doesn't answer: this controller acts until its lease expires"},
		{election.Expired, denied, "etcd refuses what this controller asks; another controller may lead, so this one only watches"},
		{election.Expired, silent, "etcd doesn't answer; another controller may lead, so this one only watches until etcd answers"},
		{election.Expired, nil, "the lease of this controller may have expired, and another controller may lead: this one only watches"},
		{election.Standby, nil, "standby; etcd hasn't said yet which controller leads"},
	} {
		status := election.Status{Role: row.role, Err: row.err}
		require.Equal(t, row.want, status.Shown().String())
	}
}

// A controller that was stopped, or didn't reach etcd, doesn't know who leads before etcd has answered.
func TestNoControllerLeads(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for name, row := range map[string]struct {
		answered time.Time
		want     string
	}{
		"it has just begun":            {time.Time{}, "standby; etcd hasn't said yet which controller leads"},
		"etcd answered while it led":   {noon.Add(-time.Millisecond), "standby; etcd hasn't said yet which controller leads"},
		"etcd has answered":            {noon.Add(time.Millisecond), "standby; no controller leads"},
		"etcd answered in that moment": {noon, "standby; no controller leads"},
	} {
		status := election.Status{Role: election.Standby, Since: noon, Answered: row.answered}
		require.Equal(t, row.want, status.Shown().String(), name)
		document, err := json.Marshal(status.Shown())
		require.NoError(t, err)
		var read election.Shown
		require.NoError(t, json.Unmarshal(document, &read))
		require.Equal(t, row.want, read.String(), "%s: for a viewer", name)
	}
}
