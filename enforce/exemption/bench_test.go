package exemption_test

import (
	"fmt"
	"testing"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/exemption"
	"github.com/seed-3119e985/genv/snapshot"
)

// BenchmarkJudge judges 500 pairs of hosts, without exemptions and with as many as there
// may be.
func BenchmarkJudge(b *testing.B) {
	var big snapshot.Cluster
	for i := range 500 {
		for _, h := range cluster().Hosts {
			h.Name = snapshot.Hostname(fmt.Sprintf("%s-%d", h.Name, i))
			big.Hosts = append(big.Hosts, h)
		}
	}
	var list exemption.List
	for i := range exemption.MaxCount {
		list = append(list, exempt(exemption.Who{User: snapshot.Username(fmt.Sprint("user", i))}))
	}
	for name, policy := range map[string]enforce.Policy{"without": everything{}, "with": exemption.With(everything{}, list, noon)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				enforce.Judge(policy, big, enforce.Memory{}, noon)
			}
		})
	}
}
