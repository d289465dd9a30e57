package live

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// BenchmarkFleet is the state of 10,000 hosts with 8 GPUs, which are attached and used: from
// what hosts said to what a viewer reads. Divide by 10,000 for a host.
func BenchmarkFleet(b *testing.B) {
	cycle := &controller.Cycle{Run: "r", Number: 1, Start: midnight}
	for i := range 10_000 {
		s := &snapshot.Snapshot{}
		for j := range 8 {
			eid, user := snapshot.EnvID(fmt.Sprint(4000+j)), snapshot.Username(fmt.Sprintf("user-%d", (i+j)%300))
			percent := 50
			s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: 1001, Username: user})
			s.Devices = append(s.Devices, snapshot.Device{
				Index: snapshot.DeviceIndex(j), UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%d-%d", i, j)), Name: "NVIDIA H100", TotalMemory: snapshot.MiB(81559),
				UsedMemory: snapshot.MiB(6000), Utilization: &percent, Attachments: []snapshot.Attachment{{EID: eid}},
			})
			s.Processes = append(s.Processes, snapshot.Process{PID: snapshot.PID(100 + j), Username: user, Name: "python", Usage: []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(j), Memory: snapshot.MiB(5000)}}})
		}
		cycle.Cluster.Hosts = append(cycle.Cluster.Hosts, snapshot.Host{Name: snapshot.Hostname(fmt.Sprintf("gpu-%d", i)), Snapshot: s})
	}
	feed := NewFeed(Options{Now: time.Now})
	feed.Consume(cycle.AtEnd(), nil)
	fleet := feed.Fleet()
	for name, run := range map[string]func(){
		"take":   func() { feed.take(cycle) },
		"derive": func() { feed.state.fleet(nil) },
		"again":  func() { feed.state.fleet(fleet) },
		"hide":   func() { withoutNames(fleet) },
		"encode": func() {
			if _, err := json.Marshal(fleet); err != nil {
				b.Fatal(err)
			}
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}
