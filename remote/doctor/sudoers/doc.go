// Package sudoers reads what `sudo -l` prints, and decides which commands it allows.
//
//	rules, err := sudoers.Parse(output)
//	if rules.Allows("/usr/local/bin/genv", "usage", "serve", "--token", "x") == sudoers.Allowed {
//		…
//	}
//
// It follows sudoers(5): the last rule that matches decides, arguments are compared as one
// text with wildcards, and a rule without arguments allows any. What it doesn't
// understand, it never takes for allowed. It reads no file and runs nothing.
package sudoers
