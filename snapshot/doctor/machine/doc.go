// Package machine collects the facts about this machine that snapshot/doctor judges: the
// driver, the state folder, the PID namespace, the kernel, systemd and the disks.
//
//	m := &machine.Machine{SMI: querier, Store: store, StateDir: "/var/tmp/genv", …}
//	checks := m.Examine(ctx)
//
// It changes nothing, takes no lock but a shared one for a moment, and works without
// root: what only root can see is reported as unknown.
package machine
