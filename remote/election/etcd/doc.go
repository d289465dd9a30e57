// Package etcd asks an etcd cluster, from version 3.4 on, over its JSON gateway (/v3/…): leases,
// keys and transactions, as much as an election and the memory of a leader need.
//
//	client := etcd.New(etcd.Config{Endpoints: []string{"http://a:2379", "http://b:2379"}})
//	lease, err := client.Grant(ctx, 5*time.Second)
//	created, err := client.Create(ctx, "/genv/lab", []byte("jump-1"), lease.ID)
//
// Each call asks the member that answered last, and then the others in turn, each for a
// second. etcd's own client isn't used, since gRPC makes each start of the program slower.
// There are no watches: who waits for a change asks again.
package etcd
