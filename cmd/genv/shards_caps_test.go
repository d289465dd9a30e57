package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/shards"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/snapshot"
)

// attach gives alice a device of a host, as if she had attached it some minutes ago.
func (e *electors) attach(host string, device snapshot.DeviceIndex, minutes int) {
	e.t.Helper()
	env, err := e.fleet.Host(host).Activate(testfleet.Environment{User: "alice"})
	require.NoError(e.t, err)
	require.NoError(e.t, e.fleet.Host(host).Attach(env, device, time.Now().Add(-time.Duration(minutes)*time.Minute)))
}

// attached are the devices that are attached, as HOST:DEVICE.
func (e *electors) attached() (list []string) {
	e.t.Helper()
	for _, host := range e.hosts {
		devices, err := e.fleet.Host(host).Devices()
		require.NoError(e.t, err)
		for _, d := range devices {
			if len(d.Attachments) > 0 {
				list = append(list, fmt.Sprintf("%s:%d", host, d.Index))
			}
		}
	}
	return list
}

// becomes waits until these are attached, and then for some cycles whether they stay.
func (e *electors) becomes(want ...string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return len(e.attached()) <= len(want) }, time.Minute, 100*time.Millisecond, "%v", e.attached())
	for range 30 {
		require.Equal(e.t, want, e.attached())
		time.Sleep(100 * time.Millisecond)
	}
}

// Over real sshd, sudo and etcd: a cap counts on the hosts of all shards. What goes is what
// one controller of all hosts would take, and nothing goes twice when another one takes over.
func TestCapsOfShards(t *testing.T) {
	t.Parallel()
	const one, other = "gpu-01", "gpu-02"
	count := 2
	for shards.Of(one, count) == shards.Of(other, count) {
		count++
	}
	e := newElectors(t, one, other)
	for minutes := range 2 {
		e.attach(one, snapshot.DeviceIndex(minutes), 10+minutes)
		e.attach(other, snapshot.DeviceIndex(minutes), 20+minutes)
	}
	flags := []string{"--max-devices-per-user", "3", "--shards", fmt.Sprint(count)}
	first := e.begin("first", flags...)
	e.becomes("gpu-01:1", "gpu-02:0", "gpu-02:1")

	second := e.begin("second", flags...)
	first.signal(syscall.SIGKILL)
	e.attach(other, 2, 1)
	e.becomes("gpu-01:1", "gpu-02:0", "gpu-02:1")
	second.signal(syscall.SIGTERM)
	second.exits(command.ExitOK)
}
