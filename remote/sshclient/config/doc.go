// Package config answers what OpenSSH would do for a host: the fields of
// ssh_config that genv honours, with Include, Match, tokens, `~` and ${ENV}.
//
// Where ssh is installed, `ssh -G` is the authority. A process a host costs
// milliseconds of a core, so configurations that consist of nothing but
// constructs which the local reader surely understands are read here instead;
// the same reader serves where there is no ssh. It selects the blocks that hold
// for a host by OpenSSH's rules, has kevinburke/ssh_config read them, and
// compares what that library read with what the line says. Whatever it cannot
// honour is an *Error that names the file and the line, never a default in
// silence.
//
//	resolver := config.New(config.ResolverOptions{})
//	settings, err := resolver.Resolve(ctx, config.Query{Host: "gpu-07"})
//
// The package opens no connection and checks no key. Not honoured, because they
// change nothing of what genv does: forwardings, environment, terminal and
// multiplexing options. Algorithm lists are the SSH library's own.
package config
