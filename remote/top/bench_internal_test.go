package top

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// large is a fleet of 1,000 hosts with 8 GPUs, all of which are used.
func large() *live.FleetState {
	f := sample()
	f.Hosts = nil
	for i := range 1000 {
		h := live.FleetHost{Name: snapshot.Hostname(fmt.Sprintf("gpu-%04d", i)), Seen: noon}
		for j := range 8 {
			h.GPUs = append(h.GPUs, gpu(j, gpus.Busy, fmt.Sprintf("user%d", (i*8+j)%200)))
		}
		f.Hosts = append(f.Hosts, h)
	}
	return f
}

// BenchmarkUpdate is a change of 1,000 hosts and its frame.
func BenchmarkUpdate(b *testing.B) {
	for tab, keys := range map[string][]string{"hosts": {"1"}, "hosts sorted by free": {"1", "s", "s", "s"}, "GPUs": {"2"}, "processes": {"5"}, "filtered": {"2", "/", "user=user7 util>5", "enter"}} {
		b.Run(tab, func(b *testing.B) {
			f := large()
			m := viewed(b, f, 120, 40)
			m.press(keys...)
			b.ReportAllocs()
			for b.Loop() {
				m.update(f)
				_ = m.View()
			}
		})
	}
}

// BenchmarkDecode is what a viewer of a socket needs for the document of 1,000 hosts.
func BenchmarkDecode(b *testing.B) {
	data, err := json.Marshal(large())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := json.Unmarshal(data, new(live.FleetState)); err != nil {
			b.Fatal(err)
		}
	}
}
