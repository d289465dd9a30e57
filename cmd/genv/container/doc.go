// Package container makes a container engine's containers take part in genv: it has the
// program that dockerd calls in place of runc, the OCI hooks of the containers that it
// starts, and what `genv host setup-docker` writes into daemon.json.
//
//	genv container-runtime --real /usr/sbin/runc -- create --bundle B ID
//
// becomes runc with exec(2). Only for `create` and `run` of a container that asks for GPUs,
// or has a token of root's service, does it do something before: it attaches devices (see
// package grant), and changes the bundle's config.json so that the container sees them.
//
// A container that asks for no GPU is always started, whatever is wrong here. One that asks
// for some is not, and the error says why.
package container
