package enforcement_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// uses has nvidia-smi of a host list a process that the fleet has not started.
func (b *bent) uses(host string, pid snapshot.PID, device int, start snapshot.StartTime) {
	h := b.Host(host)
	listed, err := gpus.Read(h.GPUs)
	require.NoError(b.t, err)
	used := int64(10)
	listed.Apps = append(listed.Apps, gpus.App{PID: int(pid), Start: uint64(start), Device: device, Name: "python3", UsedMiB: &used})
	require.NoError(b.t, listed.Write(h.GPUs))
}

// A process that the file system of its user holds is named, and ended if the policy says so; the others on its host
// are judged as soon as always.
func TestUnreadableProcesses(t *testing.T) {
	b := openBent(t, "gpu-01")
	pid, _ := proctest.Stall(t, false)
	stat, err := proc.FS{}.Stat(pid)
	require.NoError(t, err)
	b.activate("gpu-01", "alice", 1)
	b.uses("gpu-01", pid, 0, stat.Start)
	honest := b.job("gpu-01", testfleet.Job{User: "carol", Uses: using(2)})

	const found = "can't be judged: its environment and memory map are stalled by a FUSE file system of uid "
	var r genvtest.Result
	until := func(text, policy string) (took time.Duration) { // a busy machine may not have the time to find out what stalls it
		genvtest.Eventually(t, text, func() bool {
			began := time.Now()
			r = b.enforce("gpu-01", "--policy", b.policy(policy))
			took = time.Since(began)
			return strings.Contains(r.Out+r.Err, text)
		})
		return took
	}
	require.Less(t, until(found, "defaults: {non-env-processes: true}\n"), 10*time.Second)
	require.False(t, honest.Running(), "it is outside of every environment: "+r.Out+r.Err)

	until("a thread waits for a FUSE file system, and ends when its server does", "defaults: {unreadable-processes: end, grace: 1s, kill: true}\n")
	require.NotContains(t, r.Out+r.Err, "sick GPU")
}
