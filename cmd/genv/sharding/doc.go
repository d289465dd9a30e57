// Package sharding runs a controller that divides its hosts with others: with --shards N, one
// process for each shard that this controller has, which is a controller of that part of the
// hosts. This process starts and ends them, passes on signals and what they print, and restarts
// one that fails or is stuck. Which shards it has is decided by remote/shards.
package sharding
