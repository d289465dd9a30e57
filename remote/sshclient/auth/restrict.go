package auth

import (
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/sshclient/config"
)

// restrict leaves out the keys that ssh_config excludes by PubkeyAcceptedAlgorithms
// or RequiredRSASize, and limits RSA keys to the signatures that it accepts.
func (k *Keys) restrict(s config.HostConfig) {
	var accepted []ssh.Signer
	for _, signer := range k.Signers {
		limited, err := restricted(signer, s)
		if err != nil {
			k.Notes = append(k.Notes, fmt.Sprintf("%s is not offered: %v", ssh.FingerprintSHA256(signer.PublicKey()), err))
			continue
		}
		accepted = append(accepted, limited)
	}
	k.Signers = accepted
}

func restricted(signer ssh.Signer, s config.HostConfig) (ssh.Signer, error) {
	key := signer.PublicKey()
	if err := s.CheckSize(key); err != nil {
		return nil, err
	}
	names := s.SignatureAlgorithms(key)
	able, ok := signer.(ssh.AlgorithmSigner)
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("PubkeyAcceptedAlgorithms in ssh_config allows no signature of its type, %s", key.Type())
	case !ok || !strings.HasPrefix(key.Type(), ssh.KeyAlgoRSA):
		return signer, nil // it has one algorithm
	}
	for i, name := range names { // the library has no names of certificates here
		names[i] = strings.TrimSuffix(name, "-cert-v01@openssh.com")
	}
	return ssh.NewSignerWithAlgorithms(able, names)
}
