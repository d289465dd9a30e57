// Package config reads the OpenSSH configuration of a host: the fields of
// ssh_config that genv uses, with Include, tokens, `~` and ${ENV}.
//
// Plain files are read by kevinburke/ssh_config: one process per host costs
// milliseconds of CPU time. Which lines it would read in another way than ssh, or not at
// all (Match), is known: a file with one of them is left to `ssh -G`, which has the last word
// where ssh is installed. Where it is not, such a line is an *Error that names the file and
// the line, never silently a default.
//
//	resolver := config.New(config.ResolverOptions{})
//	hostConfig, err := resolver.Resolve(ctx, config.Query{Host: "gpu-07"})
//
// The package opens no connection and checks no key. It ignores forwardings,
// environment and terminal options, which change nothing for genv. ControlPath is only
// read when a login is refused.
// Algorithm lists are those of ssh_config, or else the defaults of OpenSSH, as far
// as the SSH library has them.
package config
