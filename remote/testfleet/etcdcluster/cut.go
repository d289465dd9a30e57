package etcdcluster

import (
	"net"
	"testing"

	"github.com/seed-3119e985/genv/remote/testfleet"
)

// Cut leads to the members of a cluster, until it is cut.
type Cut struct{ *testfleet.Cut }

// Cut returns a way to the cluster. It ends with the test.
func (c *Cluster) Cut(t testing.TB) *Cut {
	t.Helper()
	var members []string
	for _, m := range c.members {
		members = append(members, net.JoinHostPort(m.address, clientPort))
	}
	return &Cut{testfleet.StartCut(t, members...)}
}

// Endpoints are URLs that lead to the members.
func (w *Cut) Endpoints() []string {
	var list []string
	for _, address := range w.Addresses() {
		list = append(list, "http://"+address)
	}
	return list
}
