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
// Tokens are the one-time tokens by which root's service recognizes, in a container that is about
// to start, the user who asked for it: the container engine says nothing about its caller. A token
// is for one container within a short time. Tokens are only in the memory of the service.
//
//	text, err := tokens.Issue(grant.Holder{UID: peer, EID: eid})  // asked by the user's docker shim
//	holder, ok := tokens.Redeem(text)                             // asked by root's container runtime
//
// RestartNotes remember for which user a container of root's engine was started, since its token
// proves that only once and `docker restart` starts it again with the same one. Only root's runtime
// writes and reads them. A note is good for a start of the same container, by its id and its
// engine, that carries the same token: the id alone, which every user sees, is worth nothing. It is
// removed when the engine doesn't know the container any more, and at the latest RestartLife after
// its last start.
//
// Except for these notes it reads and writes nothing: see package oci and cmd/genv/container.
package grant
