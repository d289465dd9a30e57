// Package sshclient is the remote.Runner over SSH for administrators whose
// OpenSSH already reaches the hosts: the same configuration, keys, jumps and
// host-key rules, on connections that stay open from one command to the next.
//
//	client, err := sshclient.New(sshclient.Options{})
//	defer client.Close()
//	output, err := client.Run(ctx, host, host.Genv("usage", "snapshot"))
//
// Every error is a *remote.Error. A host whose key is not known is refused, also
// where ssh_config says `StrictHostKeyChecking no`: only accept-new is honoured
// there, and only Options.InsecureHostKeys, which is for one run, goes further.
// The package dials and runs, once: when and how often a failed host is tried
// again is the caller's decision (remote/agent). Only the failure of a jump host
// is remembered for a moment, for all hosts behind it.
//
// The package gives no terminal, forwards nothing, and never asks for a
// password. It ends no program on the host: a connection that closes gives the
// program there an end of its stdin, no more.
package sshclient
