// Package kernel is the guard inside the kernel: a BPF program at the root of cgroup2 that
// denies, or only reports, a user's open of a device that the user may not use. It knows
// minor numbers and uids; who may use what, and for how long, is decided elsewhere (package
// guard).
//
// The program lets an open through unless all of this is certain: it is an open of a
// guarded NVIDIA device node (character device, major 195), the lease has not ended, the
// process's real uid is an ordinary user's, and that uid has no permission for the minor.
// Other nodes of the driver (nvidiactl, nvidia-modeset, nvidia-uvm, nvidia-caps) and
// mknod(2) are never denied. Descriptors that are open already stay usable.
//
// The program and its maps are pinned in a bpffs, so that they outlive the process until
// the lease ends; the next process takes them over without a gap. Probe says
// what a kernel lacks; Open then fails with ErrUnsupported.
//
//	g, err := kernel.Open(kernel.Options{})
//	err = g.SetMinors(guarded, watched)
//	err = g.SetAllowed(map[snapshot.UID]guard.Minors{1001: guard.MinorsOf(0, 3)})
//	err = g.SetControl(guard.Control{Mode: guard.Enforce, Lease: time.Minute, FirstUID: 1000})
//	err = g.Events(ctx, func(e guard.Event) { … })
//	err = g.Close() // the guard stays until the lease ends; Remove ends it now
package kernel
