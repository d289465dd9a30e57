package config

import (
	"crypto/rsa"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// minRSASize is the size in bits below which OpenSSH refuses every RSA key
// (SSH_RSA_MINIMUM_MODULUS_SIZE).
const minRSASize = 1024

// commandTokens are those of KnownHostsCommand, except for what is only known in the handshake.
const commandTokens = "CdHhikLlnpru"

// leftOut are rare keywords that ssh(1) alone honours: KnownHostsCommand with quotes or other tokens,
// ProxyUseFdpass with a ProxyCommand.
var leftOut = []string{"bindinterface", "knownhostscommand", "proxyusefdpass", "revokedhostkeys"}

// restrictions sets what limits the algorithms and keys of a login, and refuses a
// configuration that allows none of the logins that genv has.
func (r raw) restrictions(s *HostConfig) error {
	err := r.algorithms(s) // first: also where no login is allowed, the host's key is of interest
	if value := r.first("pubkeyauthentication"); oneOf("no", "false")(value) {
		return &Error{keyword: "pubkeyauthentication", Problem: "PubkeyAuthentication " + value +
			" cannot be honoured here: genv logs in with a key; set it to yes for this host, or leave the host out"}
	}
	if provider := unlessNone(r.first("pkcs11provider")); provider != "" {
		return &Error{keyword: "pkcs11provider", Problem: "PKCS11Provider " + provider +
			" cannot be honoured here: add the keys of the token to the agent (ssh-add -s), and set it to none"}
	}
	if why, refused := r["refuseconnection"]; refused {
		return &Error{keyword: "refuseconnection", Problem: "RefuseConnection: " + why[0]}
	}
	for _, keyword := range leftOut {
		value := unlessNone(r.first(keyword))
		harmless := keyword == "proxyusefdpass" && (s.ProxyCommand == "" || !yes(value)) ||
			keyword == "knownhostscommand" && !strings.ContainsAny(value, `'"\`) && tokensAmong(commandTokens, value)
		if value != "" && !harmless {
			return &Error{keyword: keyword, Problem: fmt.Sprintf("%s %s cannot be honoured by genv's own SSH, but by ssh(1)", keyword, value)}
		}
	}
	methods, set := r["preferredauthentications"]
	if set && !slices.Contains(strings.Split(methods[0], ","), "publickey") {
		return &Error{keyword: "preferredauthentications", Problem: "PreferredAuthentications " + methods[0] +
			" cannot be honoured here: genv logs in with a key; add publickey for this host, or leave the host out"}
	}
	return err
}

// CheckSize returns an error for an RSA key, or a certificate of one, that is
// smaller than RequiredRSASize.
func (s HostConfig) CheckSize(key ssh.PublicKey) error {
	if cert, ok := key.(*ssh.Certificate); ok {
		key = cert.Key
	}
	if known, ok := key.(ssh.CryptoPublicKey); ok {
		if public, ok := known.CryptoPublicKey().(*rsa.PublicKey); ok && public.N.BitLen() < s.RequiredRSASize {
			return fmt.Errorf("an RSA key of %d bits, and RequiredRSASize in ssh_config is %d", public.N.BitLen(), s.RequiredRSASize)
		}
	}
	return nil
}

// SignatureAlgorithms are those of PubkeyAcceptedAlgorithms that a key or
// certificate of the user can sign with; none if the key must not be used.
func (s HostConfig) SignatureAlgorithms(key ssh.PublicKey) []string {
	able := []string{key.Type()}
	switch key.Type() {
	case ssh.KeyAlgoRSA:
		able = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSA}
	case ssh.CertAlgoRSAv01:
		able = []string{ssh.CertAlgoRSASHA512v01, ssh.CertAlgoRSASHA256v01, ssh.CertAlgoRSAv01}
	}
	accepted := s.PubkeyAcceptedAlgorithms
	if accepted == nil {
		accepted = defaultKeyTypes()
	}
	return slices.DeleteFunc(slices.Clone(accepted), func(name string) bool { return !slices.Contains(able, name) })
}

// AcceptsAuthority reports whether CASignatureAlgorithms allow the signature of a
// host certificate. OpenSSH treats any other as the plain key in it.
func (s HostConfig) AcceptsAuthority(cert *ssh.Certificate) bool {
	return cert.Signature != nil && slices.Contains(s.CASignatureAlgorithms, cert.Signature.Format)
}
