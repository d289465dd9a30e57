package metrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// BenchmarkAThousandHosts is a fleet of 1,000 hosts with 8 devices and 8 processes each.
func BenchmarkAThousandHosts(b *testing.B) {
	hosts := make([]metrics.Host, 1000)
	for i := range hosts {
		s := busy()
		for d := 2; d < 8; d++ {
			s.Devices = append(s.Devices, s.Devices[1])
			s.Devices[d].Index = snapshot.DeviceIndex(d)
			s.Processes = append(s.Processes, s.Processes[0])
			s.Processes[d].PID = snapshot.PID(1000 + d)
		}
		hosts[i] = metrics.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%04d", i)), Installed: true, Snapshot: s}
	}
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(metrics.Genv143(hosts))))
	}
}

// BenchmarkAThousandHostsLive is the same fleet as a controller shows it.
func BenchmarkAThousandHostsLive(b *testing.B) {
	hosts := make([]live.Host, 1000)
	for i := range hosts {
		hosts[i] = live.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%04d", i)), Seen: noon}
		for d := range 8 {
			g := measured(h100(snapshot.DeviceIndex(d), gpus.States()[(i+d)%4]), d, int64(i)<<26, 80<<30)
			g.Model, g.UUID = "NVIDIA H100 80GB HBM3", snapshot.GPUUUID(fmt.Sprintf("GPU-01234567-89ab-cdef-%04d-%012d", i, d))
			hosts[i].GPUs = append(hosts[i].GPUs, g)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(metrics.Hosts(hosts)) + len(metrics.Ages(hosts, noon))))
	}
}

// BenchmarkCount is what a cycle costs whether it is scraped or not.
func BenchmarkCount(b *testing.B) {
	c := metrics.NewCounters(noon, 10*time.Second)
	cycle := cycleAt(0)
	for i := range 1000 {
		cycle.Cluster.Hosts = append(cycle.Cluster.Hosts, holders(snapshot.Hostname(fmt.Sprintf("gpu-%04d", i)), "alice", "bob", "carol", "dan", "erin", "frank", "grace", "heidi"))
	}
	b.ReportAllocs()
	for b.Loop() {
		cycle.Start = cycle.Start.Add(10 * time.Second)
		c.Show(cycle)
	}
}
