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

// HostConfig has the ssh_config settings that genv uses. Paths are absolute, tokens expanded.
type HostConfig struct {
	HostName string // name or address to connect to
	User     string
	Port     int

	ProxyJump    []string // [user@]host[:port] or ssh://…, first hop first
	ProxyCommand string   // for /bin/sh -c; empty: none

	IdentityFiles    []string
	CertificateFiles []string
	IdentitiesOnly   bool
	BatchMode        bool   // never ask for passphrases
	IdentityAgent    string // path of the socket; empty: no agent

	UserKnownHosts   []string
	GlobalKnownHosts []string
	HostKeyAlias     string
	AcceptNew        bool // StrictHostKeyChecking accept-new; else unknown keys are refused
	HashKnownHosts   bool
	CheckHostIP      bool
	// KnownHostsCommand has a program and its arguments, for no shell. NUL H stands for the host's name.
	KnownHostsCommand []string

	// Algorithms of the SSH library, by preference, never empty. PubkeyAcceptedAlgorithms are for the user's keys,
	// CASignatureAlgorithms for authorities of host certificates.
	KexAlgorithms, Ciphers, MACs                                       []string
	HostKeyAlgorithms, PubkeyAcceptedAlgorithms, CASignatureAlgorithms []string
	FixedHostKeyOrder                                                  bool // known key types don't come first
	RequiredRSASize                                                    int  // bits, for host and user keys

	ConnectTimeout      time.Duration // 0: not set
	ServerAliveInterval time.Duration // 0: not set
	ServerAliveCountMax int
	AddressFamily       string // any, inet or inet6
	// BindAddress is a local address or name to connect from, else BindInterface has it. Both empty: the kernel
	// decides.
	BindAddress, BindInterface string
}

// Lookup is a host as the administrator names it, with overrides.
type Lookup struct {
	Host     string // matched against Host patterns
	HostName string // empty: from ssh_config
	User     string // empty: from ssh_config
	Port     int    // 0: from ssh_config
}

// target is where to connect; hostName may be empty.
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

const minRSASize = 1024 // OpenSSH's minimum in bits (SSH_RSA_MINIMUM_MODULUS_SIZE)

const commandTokens = "CdHhikLlnpru" // of KnownHostsCommand, except those known only during the handshake

// leftOut are for ssh(1) alone: KnownHostsCommand with quotes or other tokens, ProxyUseFdpass with a ProxyCommand.
var leftOut = []string{"knownhostscommand", "proxyusefdpass", "revokedhostkeys"}

// restrictions limits algorithms and keys. It fails if they rule out our login.
func (r raw) restrictions(s *HostConfig) error {
	err := r.algorithms(s) // first, as the host's key matters even without a login
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

// CheckSize applies RequiredRSASize.
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

// SignatureAlgorithms of PubkeyAcceptedAlgorithms (nil: ssh's default) suit a user's key or certificate. Without any,
// it must not be used.
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

// AcceptsAuthority applies CASignatureAlgorithms to a host certificate. If refused, OpenSSH uses the plain key in it.
func (s HostConfig) AcceptsAuthority(cert *ssh.Certificate) bool {
	return cert.Signature != nil && slices.Contains(s.CASignatureAlgorithms, cert.Signature.Format)
}
