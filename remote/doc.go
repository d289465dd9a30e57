// Package remote runs one piece of work on many hosts at once: a Host, a
// Command, the Runner that carries a command to a host, and Each, the bounded
// fan-out in which one host's error is that host's alone. It also holds the
// classes of error that an administrator sees, each with its next step.
//
// The package knows no GPU and no rule, and opens no connection itself:
// remote/sshclient is the Runner over SSH.
package remote
