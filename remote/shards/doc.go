// Package shards divides the hosts of a fleet among several controllers.
//
//	shard := shards.Of(host, 8)
//	members := shards.NewMembers(shards.MembersOptions{Cluster: client, Key: "/genv/lab", …})
//	go members.Run(ctx)
//	for _, shard := range placement.Decide(now, members.Seen()) { … } // what this one is to run
//
// A host belongs to the same shard always. Which controller has a shard follows from the
// controllers that live (rendezvous hashing): each of them comes to the same result, and if one
// comes or goes, only its shards move. That is who should act; who may is decided by an election
// of each shard (remote/election), by KEY/shards/NN.
//
// A shard moves when its next controller is ready: at least half of the hosts answer it, and it
// follows the memory. A controller that no host answers leaves a shard to one that at least one host
// answers. Placement decides, and is pure.
package shards
