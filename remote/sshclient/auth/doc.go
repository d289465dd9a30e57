// Package auth finds the keys that a user may log in with, as ssh(1) does: those
// of the agent, key files in all of OpenSSH's formats, and certificates, in one
// order and at most MaxTries of them, since a server closes the connection after
// six refusals (sshd_config(5), MaxAuthTries).
//
// A private key that is locked with a passphrase is used through the agent, or
// unlocked by asking once; a FIDO key is used through the agent alone.
//
//	keyring := auth.NewKeyring(auth.Options{})
//	defer keyring.Close()
//	keys, err := keyring.Keys(settings)
//	config.Auth = []ssh.AuthMethod{ssh.PublicKeys(keys.Signers...)}
package auth
