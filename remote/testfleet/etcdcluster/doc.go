// Package etcdcluster runs a real etcd for tests, on loopback addresses of its own:
//
//	c := etcdcluster.Start(t, 3)
//	client := etcd.New(etcd.Config{Endpoints: c.Endpoints()})
//	c.Kill(0)
//	c.Restart(0)
//	c.Forget()
//
// A Cut leads to the members as a network does, and can be interrupted. It needs Debian's
// etcd-server, or another etcd from version 3.4 on.
package etcdcluster
