// Package configfile finds and reads the configuration files of a controller: hosts.yaml,
// policy.yaml, and config.yaml with defaults for flags. They are in ~/.config/genv (or
// below $XDG_CONFIG_HOME) and in /etc/genv, and $GENV_CONFIG_DIR replaces both.
//
//	applied, err := configfile.Apply(p, c) // sets the flags that the command line leaves out
//
// A flag of the command line takes precedence, then an environment variable, then the
// user's config.yaml, then that in /etc/genv. In one file the section of a command takes
// precedence over `remote:`, and that over the top.
//
// Only `genv remote …`, `genv enforce` and `genv policy …` read these files. The commands
// of people and controllers on GPU hosts never do. Who may change a file decides what root
// does with it, so one that others could have written is refused.
//
// It doesn't read what is in hosts.yaml and policy.yaml: packages inventory and policy do.
package configfile
