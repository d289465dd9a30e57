package sshd

// Options describe a fleet.
type Options struct {
	// Hosts are the fleet, at least one, at most 250.
	Hosts []HostOptions
	// AcceptEnv are patterns of the variables that clients may set (sshd_config(5)).
	AcceptEnv []string
	// Genv is the program that the hosts find as genv; empty for none.
	Genv string
	// Installable gives the fleet an empty /usr/local and an empty /etc/sudoers.d of
	// its own, which sudo reads. Without it they are the machine's, and sudo ignores
	// the latter.
	Installable bool
}

// HostOptions describe a host.
type HostOptions struct {
	Name string
	// GPUs is how many devices of 81559 MiB the host has; 0 for 8.
	GPUs int
	// Rights are those of the login that ssh_config names for the host.
	Rights Rights
	// Fault is how the host's nvidia-smi fails, a gpus.Fault… text; empty for not at
	// all.
	Fault string
}

// Named makes hosts with these names and nothing out of the ordinary.
func Named(names ...string) []HostOptions {
	hosts := make([]HostOptions, len(names))
	for i, name := range names {
		hosts[i].Name = name
	}
	return hosts
}

// Rights are what the login on a host may do as root. The login has that name.
type Rights string

// The rights; the zero value is MaySudo.
const (
	// MaySudo: everything, without a password, and genv is there.
	MaySudo Rights = "operator"
	// NeedsPassword: sudo wants a password, which is Password; sudo -n cannot give it.
	NeedsPassword Rights = "needs-password"
	// NotInSudoers: sudo does not know the user.
	NotInSudoers Rights = "not-in-sudoers"
	// NoSudo: there is no sudo on the host.
	NoSudo Rights = "no-sudo"
	// NoGenv: sudo works and there is no genv, not even in /usr/local/bin.
	NoGenv Rights = "no-genv"
	// OnlyUsage: what remote.SudoersLine allows, without a password.
	OnlyUsage Rights = "only-usage"
	// OnlySnapshot: `genv usage snapshot` alone, without a password. sudo finds
	// genv in its secure_path, and the login doesn't.
	OnlySnapshot Rights = "only-snapshot"
	// MaySudo143: as MaySudo, but the genv on the host speaks the formats of 1.4.3 alone.
	MaySudo143 Rights = "operator-143"
	// AllOfGenv: every command of genv, without a password, which is too much.
	AllOfGenv Rights = "all-of-genv"
	// OnlyUsageNoGenv: what remote.SudoersLine allows, but there is no genv.
	OnlyUsageNoGenv Rights = "only-usage-no-genv"
)
