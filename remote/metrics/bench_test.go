package metrics_test

import (
	"fmt"
	"testing"

	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
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
