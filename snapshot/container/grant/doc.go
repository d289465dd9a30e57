// Package grant decides which GPUs a container gets, and in which environment: what its
// config.json asks for, what the state files and the proof of its user allow, and what the
// container sees of it.
//
//	request, err := grant.Asked(config, nvidia)
//	granted, err := grant.Claim{Request: request, Proof: proof, …}.Apply(files) // under the lock
//	granted.SetVariables(config)
//
// The config.json of a container has what the person wrote who started it: nothing in it
// says who that is. A Proof does, which comes from elsewhere. Without one, a container has
// an environment of its own that belongs to no person.
//
// It reads and writes nothing: see package oci and cmd/genv/container.
package grant
