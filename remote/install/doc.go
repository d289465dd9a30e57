// Package install puts genv on hosts, upgrades it and removes it: the program, its shims
// and the lines of sudoers(5) with which a controller runs it.
//
//	installer := install.Installer{
//		Runner: client, Programs: install.Programs{"amd64": program}, Options: install.Options{Upgrade: true},
//	}
//	results := remote.Each(ctx, hosts, fanout, installer.Install)
//
// For each host it looks first, as the login and then as root, and decides what is to be
// done; Decide is pure. What changes the host is one script that root runs there with the
// program on its stdin: everything is written under temporary names in the folders where
// it belongs, checked there (checksum, a run of the program, visudo), and renamed. So at
// any moment the host has the old program or the new one, and lines of sudoers that are
// valid. What an interrupted run leaves behind, the next one removes.
//
// Hosts are known by remote.Host, and commands are run by a remote.Runner. The package
// prints nothing, asks for no password (see Password), and doesn't install packages.
package install
