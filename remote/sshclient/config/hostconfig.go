package config

import (
	"cmp"
	"crypto/rsa"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// HostConfig is what ssh_config sets for a host and genv uses. File names are absolute, tokens are expanded.
type HostConfig struct {
	HostName string // to connect to: a name or an address
	User     string
	Port     int

	ProxyJump    []string // [user@]host[:port] or ssh://…, first hop first
	ProxyCommand string   // for /bin/sh -c; empty for none

	IdentityFiles    []string
	CertificateFiles []string
	IdentitiesOnly   bool
	BatchMode        bool   // genv asks for no passphrase
	IdentityAgent    string // a socket's path; empty for no agent

	UserKnownHosts   []string
	GlobalKnownHosts []string
	HostKeyAlias     string
	AcceptNew        bool // StrictHostKeyChecking accept-new; otherwise unknown keys are refused
	HashKnownHosts   bool
	CheckHostIP      bool
	// KnownHostsCommand is a program and its arguments, for no shell. In these, NUL and H stand for the host's name.
	KnownHostsCommand []string

	// Algorithms that the SSH library has, by preference; no list is empty. PubkeyAcceptedAlgorithms are for keys of
	// the user, CASignatureAlgorithms for authorities of host certificates.
	KexAlgorithms, Ciphers, MACs                                       []string
	HostKeyAlgorithms, PubkeyAcceptedAlgorithms, CASignatureAlgorithms []string
	FixedHostKeyOrder                                                  bool // known key types don't go first
	RequiredRSASize                                                    int  // in bits, of host and user keys

	ConnectTimeout      time.Duration // 0: not set
	ServerAliveInterval time.Duration // 0: not set
	ServerAliveCountMax int
	AddressFamily       string // any, inet or inet6
	// BindAddress is an address or a name of this machine to connect from, or else BindInterface has the address; empty
	// leaves it to the kernel.
	BindAddress, BindInterface string
}

// Lookup is a host as the administrator names it, with settings that override ssh_config.
type Lookup struct {
	Host     string // matched against Host patterns
	HostName string // empty: left to ssh_config
	User     string // empty: likewise
	Port     int    // 0: likewise
}

// target is where to connect, for a HostName that may be empty.
func (q Lookup) target(hostName string) string {
	return strings.NewReplacer("%%", "%", "%h", q.Host).Replace(cmp.Or(hostName, q.Host))
}

// ParseHop reads a hop of ProxyJump: [user@]host[:port] or an ssh:// URI.
func ParseHop(item string) (Lookup, error) {
	rest, _ := strings.CutPrefix(item, "ssh://")
	q := Lookup{Host: strings.TrimSuffix(rest, "/")}
	if at := strings.LastIndexByte(q.Host, '@'); at >= 0 {
		q.User, q.Host = q.Host[:at], q.Host[at+1:]
	}
	if strings.Count(q.Host, ":") == 1 || strings.HasPrefix(q.Host, "[") && !strings.HasSuffix(q.Host, "]") {
		host, port, err := net.SplitHostPort(q.Host)
		if err != nil {
			return q, &Error{Problem: fmt.Sprintf("ProxyJump: %q is not [user@]host[:port]", item)}
		}
		if q.Port, err = strconv.Atoi(port); err != nil || q.Port < 1 {
			return q, &Error{Problem: fmt.Sprintf("ProxyJump: %q is not a port", port)}
		}
		q.Host = host
	}
	q.Host = strings.Trim(q.Host, "[]")
	return q, Valid(q)
}

const minRSASize = 1024 // bits; OpenSSH refuses smaller keys (SSH_RSA_MINIMUM_MODULUS_SIZE)

const commandTokens = "CdHhikLlnpru" // of KnownHostsCommand, without those that only the handshake knows

// leftOut are keywords that only ssh(1) honours: KnownHostsCommand with quotes or other tokens, ProxyUseFdpass with a
// ProxyCommand.
var leftOut = []string{"knownhostscommand", "proxyusefdpass", "revokedhostkeys"}

// restrictions sets the limits on algorithms and keys. One that allows no login of ours is an error.
func (r raw) restrictions(s *HostConfig) error {
	err := r.algorithms(s) // first: the host's key is of interest without a login, too
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
			return &Error{keyword: keyword, Problem: fmt.Sprintf("%s %s cannot be honoured by genv's own SSH, but by "+
				"ssh(1)", keyword, value)}
		}
	}
	methods, set := r["preferredauthentications"]
	if set && !slices.Contains(strings.Split(methods[0], ","), "publickey") {
		return &Error{keyword: "preferredauthentications", Problem: "PreferredAuthentications " + methods[0] +
			" cannot be honoured here: genv logs in with a key; add publickey for this host, or leave the host out"}
	}
	return err
}

// CheckSize returns an error for an RSA key or certificate that is smaller than RequiredRSASize.
func (s HostConfig) CheckSize(key ssh.PublicKey) error {
	if cert, ok := key.(*ssh.Certificate); ok {
		key = cert.Key
	}
	if known, ok := key.(ssh.CryptoPublicKey); ok {
		if public, ok := known.CryptoPublicKey().(*rsa.PublicKey); ok && public.N.BitLen() < s.RequiredRSASize {
			return fmt.Errorf("an RSA key of %d bits, and RequiredRSASize in ssh_config is %d", public.N.BitLen(),
				s.RequiredRSASize)
		}
	}
	return nil
}

// SignatureAlgorithms are those of PubkeyAcceptedAlgorithms (nil: ssh's default) that a user's key or certificate can
// sign with; none if it must not be used.
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

// AcceptsAuthority reports whether CASignatureAlgorithms allow a host certificate's signature. Otherwise OpenSSH takes
// it as the plain key in it.
func (s HostConfig) AcceptsAuthority(cert *ssh.Certificate) bool {
	return cert.Signature != nil && slices.Contains(s.CASignatureAlgorithms, cert.Signature.Format)
}
