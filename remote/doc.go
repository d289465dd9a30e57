// Package remote runs commands on many hosts: a Host, a Command, the Runner that
// runs a command on a host, and Each, which does something on many hosts at once
// and keeps their errors apart. It also has the classes of errors, each with a next
// step for the administrator.
//
//	results := remote.Each(ctx, hosts, 32, func(ctx context.Context, h remote.Host) (remote.Output, error) {
//		return runner.Run(ctx, h, h.Genv("usage", "snapshot"))
//	})
//
// The package knows nothing about GPUs or rules, and opens no connection:
// remote/sshclient is the Runner over SSH.
package remote
