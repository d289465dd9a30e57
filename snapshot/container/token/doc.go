// Package token keeps the one-time tokens by which root's service recognizes, in a
// container that is about to start, the user who asked for it: the container engine says
// nothing about its caller.
//
//	text, err := tokens.Issue(token.Holder{UID: peer, EID: eid})  // asked by the user's docker shim
//	holder, ok := tokens.Redeem(text)                             // asked by root's container runtime
//
// A token is for one container within a short time: it is redeemed at most once. Tokens are
// only in the memory of the service. With a new service, the old ones are worth nothing.
package token
