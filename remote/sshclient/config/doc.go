// Package config reads the OpenSSH configuration of a host: the fields of
// ssh_config that genv uses, with Include, Match, tokens, `~` and ${ENV}.
//
// Where ssh is installed, `ssh -G` has the last word. One process per host costs
// milliseconds of CPU time, so a configuration that the local reader fully
// understands is read without ssh; the same reader is used where ssh is not
// installed. It selects the blocks that apply to a host by the rules of OpenSSH,
// has kevinburke/ssh_config read them, and compares the result with the lines.
// What it can't use is an *Error that names the file and the line, never silently
// a default.
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
