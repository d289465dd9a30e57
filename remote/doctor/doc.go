// Package doctor looks at hosts as a controller sees them, and says for each what is not
// in order and what to do about it: from the name to the login, what sudo allows there,
// the clock, and what the host's own `genv doctor` finds.
//
//	d := &doctor.Doctor{Client: client, Timeout: 30 * time.Second, Now: time.Now}
//	results := remote.Each(ctx, hosts, 64, func(ctx context.Context, h remote.Host) (doctor.Host, error) {
//		return d.Examine(ctx, h), nil
//	})
//
// Where the host has genv 1.4.3 or none, plain commands (stat, df, nvidia-smi, …) show
// what the login can see. Nothing is run with sudo but `sudo -n -l`, which lists what is
// allowed, and `genv usage serve`, which says which controller acts there. Nothing changes the host.
//
// Hosts may lie about themselves: their output is bounded and checked, never tells the
// next step, and can't change what the controller found.
package doctor
