package rules_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// evaluate judges a cluster at a moment, without a memory.
func evaluate(policy enforce.Policy, cluster snapshot.Cluster, now time.Time) enforce.Plan {
	plan, _, _ := rules.Judge(policy, cluster, enforce.Memory{}, now)
	return plan
}

// controllerMemory judges cycle after cycle, as a controller does.
type controllerMemory struct {
	enforce.Memory
	events []enforce.Event // of the last cycle
}

func (c *controllerMemory) Judge(policy enforce.Policy, cluster snapshot.Cluster, now time.Time) (plan enforce.Plan) {
	plan, c.Memory, c.events = rules.Judge(policy, cluster, c.Memory, now)
	return plan
}

func (c *controllerMemory) Learn(host snapshot.Hostname, o order.Order, outcomes []order.Outcome) {
	c.Memory = c.Memory.Learn(order.OfHost{Host: host, Order: o}, outcomes, c.Time)
}

var errDown = errors.New("connection refused")

func itoa(n int) string { return strconv.Itoa(n) }

func number(t *testing.T, text string) int {
	return proctest.Try(strconv.Atoi(text)).OK(t)
}

func index(t *testing.T, text string) snapshot.DeviceIndex {
	return snapshot.DeviceIndex(number(t, text))
}

// recordedCase is a line of cases.jsonl: what 1.4.3 concluded on a cluster.
type recordedCase struct {
	Case    int `json:"case"`
	Options struct {
		NonEnvProcesses   bool                      `json:"non_env_processes"`
		EnvDevices        bool                      `json:"env_devices"`
		EnvMemory         bool                      `json:"env_memory"`
		MaxDevicesPerUser *int                      `json:"max_devices_per_user"`
		MaxDevicesForUser map[snapshot.Username]int `json:"max_devices_for_user"`
	} `json:"options"`
	Hosts []struct {
		Hostname snapshot.Hostname `json:"hostname"`
		Snapshot json.RawMessage   `json:"snapshot"`
	} `json:"hosts"`
	Findings           []string                              `json:"findings"`
	TerminateBeforeCap map[snapshot.Hostname][]snapshot.PID  `json:"terminate_before_cap"`
	Orders             map[snapshot.Hostname]json.RawMessage `json:"reports"`
	cluster            snapshot.Cluster
}

func (c *recordedCase) policy() stated {
	return stated{
		all: enforce.Settings{
			NonEnvProcesses: c.Options.NonEnvProcesses, EnvDevices: c.Options.EnvDevices, EnvMemory: c.Options.EnvMemory,
			MaxDevices: c.Options.MaxDevicesPerUser,
		},
		asked: capsOf(c.Options.MaxDevicesForUser),
	}
}

// unregistered lists the processes that claim an unknown environment: unlike us, 1.4.3 lets them be.
func unregistered(cluster snapshot.Cluster) map[string]enforce.ProcessRef {
	lines := make(map[string]enforce.ProcessRef)
	for _, h := range cluster.Hosts {
		for _, p := range h.Snapshot.Processes {
			if p.EID != "" && h.Snapshot.Environment(p.EID) == nil {
				lines[fmt.Sprintf("[%s] Process %d is not running in a GPU environment", h.Name, p.PID)] = enforce.ProcessRef{Host: h.Name, PID: p.PID}
			}
		}
	}
	return lines
}

var readCases = sync.OnceValues(func() (cases []recordedCase, err error) {
	data, err := os.ReadFile("testdata/cases.jsonl")
	for line := range bytes.Lines(data) {
		var c recordedCase
		if err == nil {
			err = json.Unmarshal(line, &c)
		}
		for _, h := range c.Hosts {
			s, bad := snapshot.DecodeSnapshot(h.Snapshot)
			err = errors.Join(err, bad)
			c.cluster.Hosts = append(c.cluster.Hosts, snapshot.Host{Name: h.Hostname, Snapshot: s})
		}
		cases = append(cases, c)
	}
	return cases, err
})

// recordedCases are those of cases.jsonl.
func recordedCases(t *testing.T) []recordedCase {
	cases := proctest.Try(readCases()).OK(t)
	require.Len(t, cases, 200)
	return cases
}

// line is a finding as a controller prints it.
func line(f enforce.Finding) string {
	if f.Host == "" {
		return f.String()
	}
	return fmt.Sprintf("[%s] %s", f.Host, f)
}

// onHostsWithGPUs are the lines of caps with the hosts on which the user has GPUs, where 1.4.3 counts environments.
func onHostsWithGPUs(cluster snapshot.Cluster, lines []string) []string {
	var list []string
	for _, line := range lines {
		user, hosts := snapshot.Username(strings.Fields(line)[1]), 0
		for _, h := range cluster.Answered() {
			if slices.ContainsFunc(h.Snapshot.Environments, func(e snapshot.Environment) bool {
				return e.Username == user && len(snapshot.AttachedTo(h.Snapshot.Devices, e.EID)) > 0
			}) {
				hosts++
			}
		}
		list = append(list, regexp.MustCompile(`on \d+ hosts`).ReplaceAllString(line, fmt.Sprintf("on %d hosts", hosts)))
	}
	return list
}

func TestRecordedFindings(t *testing.T) {
	for _, c := range recordedCases(t) {
		t.Run(fmt.Sprint(c.Case), func(t *testing.T) {
			cluster := c.cluster
			bogus := unregistered(cluster)
			var rules, caps []string
			for _, f := range evaluate(c.policy(), cluster, time.Time{}).Findings {
				if _, differs := bogus[line(f)]; differs {
					continue
				}
				if f.Rule == enforce.RuleMaxDevicesPerUser {
					caps = append(caps, line(f))
				} else {
					rules = append(rules, line(f))
				}
			}
			slices.Sort(caps)
			isCap := func(s string) bool { return strings.HasPrefix(s, "User ") }
			i := slices.IndexFunc(c.Findings, isCap)
			if i < 0 {
				i = len(c.Findings)
			}
			require.Equal(t, strings.Join(c.Findings[:i], "\n"), strings.Join(rules, "\n"))
			if c.Options.MaxDevicesPerUser != nil { // else 1.4.3 ignores max-devices-for-user
				require.Equal(t, strings.Join(onHostsWithGPUs(cluster, c.Findings[i:]), "\n"), strings.Join(caps, "\n"))
			}
		})
	}
}
