// Package dockerd runs a real Docker for tests, in a mount namespace with its own /run and
// /var/lib, so that the machine's own Docker and files are not touched:
//
//	d := dockerd.Start(t)
//	id := d.Run("--name", "web", dockerd.Image, "sleep", "1000000")
//	out, err := d.Command("genv", "enforce", "--interval", "0").CombinedOutput()
//
// Containers have no network, and one image, which is made from busybox. It needs root and
// Debian's docker.io and busybox-static. It pulls nothing.
package dockerd
