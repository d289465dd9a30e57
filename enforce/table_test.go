package enforce_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// evaluate judges a cluster at a moment, without a memory.
func evaluate(policy enforce.Policy, cluster snapshot.Cluster, now time.Time) enforce.Plan {
	plan, _, _ := enforce.Judge(policy, cluster, enforce.Memory{}, now)
	return plan
}

// controllerMemory judges cycle after cycle, as a controller does.
type controllerMemory struct {
	enforce.Memory
	events []enforce.Event // of the last cycle
}

func (c *controllerMemory) Judge(policy enforce.Policy, cluster snapshot.Cluster, now time.Time) (plan enforce.Plan) {
	plan, c.Memory, c.events = enforce.Judge(policy, cluster, c.Memory, now)
	return plan
}

func (c *controllerMemory) Learn(host snapshot.Hostname, report enforce.Report, outcomes []enforce.Outcome) {
	c.Memory = c.Memory.Learn(enforce.HostReport{Host: host, Report: report}, outcomes, c.Time)
}

var errDown = errors.New("connection refused")

func itoa(n int) string { return strconv.Itoa(n) }

func number(t *testing.T, text string) int {
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func index(t *testing.T, text string) snapshot.DeviceIndex {
	return snapshot.DeviceIndex(number(t, text))
}
