// Package controlmaster runs commands over the connection of an ssh(1) that is
// running as a master (ssh_config(5), ControlMaster and ControlPath): for hosts where
// somebody logged in with a second factor, and where a program can't.
//
//	master, err := controlmaster.Dial(ctx, path)
//	defer master.Close()
//	session, err := master.NewSession()
//	err = session.Start("uptime")
//
// It speaks the protocol that OpenSSH describes in PROTOCOL.mux, version 4, which ssh
// has had since 2010, on the master's Unix socket: one connection to the socket for
// each command, and pipes for its streams. It never opens a connection to the host,
// and never ends the master. The master has checked the host's key.
package controlmaster
