// Package auth finds the keys that a user may log in with, as ssh(1) does: those
// of the agent, key files in all of OpenSSH's formats, and certificates, in one
// order and at most MaxTries of them, since a server closes the connection after
// six refusals (sshd_config(5), MaxAuthTries). It opens no SSH connection.
//
// A private key with a passphrase is used through the agent, or after asking for
// the passphrase once; a FIDO key is only used through the agent.
//
//	keyring := auth.NewKeyring(nil, log)
//	defer keyring.Close()
//	keys := keyring.Keys(hostConfig)
//	config.Auth = []ssh.AuthMethod{ssh.PublicKeys(keys.Signers...)}
package auth
