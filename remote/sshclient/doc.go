// Package sshclient runs commands on hosts over SSH (a remote.Runner) for
// administrators who already reach the hosts with OpenSSH: with the same
// configuration, keys, jump hosts and host key rules, on connections that stay open.
//
//	client, err := sshclient.New(sshclient.Options{})
//	defer client.Close()
//	output, err := client.Run(ctx, host, host.Genv("usage", "snapshot"))
//
// Every error is a *remote.Error. A host with an unknown key is refused, even with
// `StrictHostKeyChecking no` in ssh_config: accept-new is the only value that adds
// keys, and only Options.InsecureHostKeys, which is for one run, accepts all.
// The package dials and runs, once: when and how often a failed host is tried
// again is the caller's decision (remote/agent). Only the failure of a jump host
// is remembered for a moment, for all hosts behind it.
//
// The package provides no terminal, forwards nothing, and never asks for a password.
// Where the administrator wants it, or the login is refused and an ssh runs as ControlMaster
// of the host, it runs ssh(1) for its commands. That asks no question, accepts no unknown host
// key, whatever ssh_config says, and ends with its command, as do its children.
//
// It ends no program on the host: when a connection closes, the program there only
// gets the end of its stdin.
package sshclient
