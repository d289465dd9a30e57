// Package auth finds the keys that a user may log in with, as ssh(1) does: those
// of the agent, key files in all of OpenSSH's formats, and certificates, in ssh's
// order; and offers them to a server until it accepts one or hangs up. It opens no
// SSH connection.
//
// A private key with a passphrase is used through the agent, or after asking for
// the passphrase once; a FIDO key is only used through the agent.
//
//	keyring := auth.NewKeyring(nil, log)
//	defer keyring.Close()
//	login := keyring.Keys(hostConfig).Login()
//	config.AuthCallback = login.Next
package auth
