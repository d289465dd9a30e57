// Package openssh runs commands on a host by running ssh(1), for what the SSH library can't
// do: a ControlMaster that is logged in, second factors, GSSAPI, keys of an agent that are
// restricted to destinations, and algorithms that the library lacks.
//
//	login := openssh.Login{Program: "ssh", Arguments: []string{"-F", file, "--", "gpu-07"}}
//	session := login.NewSession()
//	err := session.Start("sudo -n genv usage serve")
//
// ssh asks no question (BatchMode), accepts no unknown host key, whatever ssh_config says,
// and never becomes a ControlMaster. It ends with its session, and so do its children.
// Package sshclient decides which hosts are reached in this way, and bounds what they write.
package openssh
