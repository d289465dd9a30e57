package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/snapshot/text"
)

type arity int

const (
	one  arity = iota // one word; the first line wins
	many              // one or more words; the first line wins
	each              // one word; every line counts
	rest              // all that follows; the first line wins
)

// honoured are HostConfig's keywords, with the values that ssh accepts. Others are left to ssh, or refused.
var honoured = sync.OnceValue(func() map[string]keyword {
	all := map[string]keyword{
		"hostname":                 {one, onlyTokens("h")},
		"user":                     {one, onlyTokens("")},
		"port":                     {one, isNumber(1, 65535)},
		"proxyjump":                {one, onlyTokens("")},
		"proxycommand":             {rest, onlyTokens("hnpr")},
		"proxyusefdpass":           {one, isFlag},
		"identityfile":             {each, isFileName},
		"certificatefile":          {each, isFileName},
		"identitiesonly":           {one, isFlag},
		"batchmode":                {one, isFlag},
		"identityagent":            {one, isAgent},
		"userknownhostsfile":       {many, isFileName},
		"globalknownhostsfile":     {many, onlyTokens("")},
		"hostkeyalias":             {one, onlyTokens("")},
		"hashknownhosts":           {one, isFlag},
		"stricthostkeychecking":    {one, oneOf("yes", "no", "off", "ask", "accept-new", "true", "false")},
		"checkhostip":              {one, isFlag},
		"revokedhostkeys":          {one, isFileName},
		"knownhostscommand":        {rest, func(value string) bool { return tokensAmong(commandTokens+"fIKt", value) }},
		"connecttimeout":           {one, isNumber(0, math.MaxInt32)},
		"serveraliveinterval":      {one, isNumber(0, math.MaxInt32)},
		"serveralivecountmax":      {one, isNumber(0, math.MaxInt)},
		"addressfamily":            {one, oneOf("any", "inet", "inet6")},
		"bindaddress":              {one, onlyTokens("")},
		"bindinterface":            {one, onlyTokens("")},
		"pubkeyauthentication":     {one, oneOf("yes", "no", "true", "false", "unbound", "host-bound")},
		"preferredauthentications": {one, onlyTokens("")},
		"requiredrsasize":          {one, isNumber(0, math.MaxInt32)},
		"refuseconnection":         {one, onlyTokens("")},
		"pkcs11provider":           {one, onlyTokens("")},
	}
	for _, l := range algorithmLists() {
		all[l.keyword()] = keyword{one, l.isValid}
	}
	return all
})

type keyword struct {
	arity arity
	valid func(string) bool
}

// aliases are old names that ssh still accepts: PubkeyAcceptedKeyTypes before 8.5, RSAMinSize in Red Hat's 8.7.
var aliases = map[string]string{"pubkeyacceptedkeytypes": "pubkeyacceptedalgorithms", "rsaminsize": "requiredrsasize"}

// ignored are keywords of ssh_config(5) that don't matter, or only on demand (see ControlPath). Unlisted ones are left
// to ssh.
var ignored = lazily(`addkeystoagent canonicaldomains canonicalizefallbacklocal canonicalizemaxdots
canonicalizepermittedcnames challengeresponseauthentication channeltimeout clearallforwardings compression
connectionattempts controlmaster controlpath controlpersist dynamicforward enableescapecommandline enablesshkeysign
escapechar exitonforwardfailure fingerprinthash forkafterauthentication forwardagent forwardx11 forwardx11timeout
forwardx11trusted
gatewayports gssapiauthentication gssapiclientidentity gssapidelegatecredentials gssapikexalgorithms gssapikeyexchange
gssapirenewalforcesrekey gssapiserveridentity gssapitrustdns hostbasedacceptedalgorithms hostbasedauthentication
hostbasedkeytypes ipqos kbdinteractiveauthentication kbdinteractivedevices keepalive localcommand localforward loglevel
logverbose nohostauthenticationforlocalhost numberofpasswordprompts obscurekeystroketiming passwordauthentication
permitlocalcommand permitremoteopen
protocol rekeylimit remotecommand remoteforward requesttty rsaauthentication securitykeyprovider sendenv sessiontype
setenv stdinnull streamlocalbindmask streamlocalbindunlink syslogfacility tcpkeepalive tunnel tunneldevice
updatehostkeys useprivilegedport verifyhostkeydns versionaddendum visualhostkey warnweakcrypto xauthlocation`)

func oneOf(values ...string) func(string) bool {
	return func(value string) bool { return slices.Contains(values, strings.ToLower(value)) }
}

func isFlag(value string) bool { return oneOf("yes", "no", "true", "false")(value) }
func isNone(value string) bool { return strings.EqualFold(value, "none") }

func isNumber(from, to int) func(string) bool {
	return func(value string) bool {
		n, err := strconv.Atoi(value)
		return err == nil && n >= from && n <= to && value == strconv.Itoa(n)
	}
}

func onlyTokens(tokens string) func(string) bool {
	return func(value string) bool { return tokensAmong(tokens, value) && !strings.Contains(value, "${") }
}

// isAgent accepts a socket like ssh, even for other hosts: a $NAME may be unset, a ${NAME} may not.
func isAgent(value string) bool {
	if name, isVariable := strings.CutPrefix(value, "$"); isVariable && !strings.HasPrefix(name, "{") {
		return variableName().MatchString(name)
	}
	return isFileName(value) && firstUnset(value) == ""
}

var variableName = text.Pattern(`^[A-Za-z0-9_]+$`)

// isFileName accepts all tokens since OpenSSH 8.0. environmentSet checks ${ENV} later.
func isFileName(value string) bool {
	return tokensAmong("dhiLlnpru", value) && strings.Count(value, "${") <= strings.Count(value, "}")
}

func tokensAmong(tokens, value string) bool {
	for {
		_, after, found := strings.Cut(value, "%")
		if !found {
			return true
		}
		if after == "" || !strings.Contains(tokens+"%", after[:1]) {
			return false
		}
		value = after[1:]
	}
}

// algorithmList is a keyword, with OpenSSH 10's names (myproposal.h).
type algorithmList struct {
	name     string   // as written in ssh_config(5)
	defaults []string // without the keyword
	here     []string // in the library
	field    func(*HostConfig) *[]string
}

// Most commands connect to no host, and need no lists.
var (
	defaultSignatures = lazily(`ssh-ed25519 ecdsa-sha2-nistp256 ecdsa-sha2-nistp384 ecdsa-sha2-nistp521
sk-ssh-ed25519@openssh.com sk-ecdsa-sha2-nistp256@openssh.com webauthn-sk-ecdsa-sha2-nistp256@openssh.com
rsa-sha2-512 rsa-sha2-256`)
	defaultKeyTypes = sync.OnceValue(func() []string {
		return append(strings.Fields(`ssh-ed25519-cert-v01@openssh.com ecdsa-sha2-nistp256-cert-v01@openssh.com
ecdsa-sha2-nistp384-cert-v01@openssh.com ecdsa-sha2-nistp521-cert-v01@openssh.com sk-ssh-ed25519-cert-v01@openssh.com
sk-ecdsa-sha2-nistp256-cert-v01@openssh.com rsa-sha2-512-cert-v01@openssh.com rsa-sha2-256-cert-v01@openssh.com`),
			defaultSignatures()...)
	})
	defaultKexes = lazily(`mlkem768x25519-sha256 sntrup761x25519-sha512 sntrup761x25519-sha512@openssh.com
curve25519-sha256 curve25519-sha256@libssh.org ecdh-sha2-nistp256 ecdh-sha2-nistp384 ecdh-sha2-nistp521
diffie-hellman-group-exchange-sha256 diffie-hellman-group16-sha512 diffie-hellman-group18-sha512
diffie-hellman-group14-sha256`)
	defaultCiphers = lazily(`chacha20-poly1305@openssh.com aes128-gcm@openssh.com aes256-gcm@openssh.com aes128-ctr
aes192-ctr aes256-ctr`)
	defaultMACs = lazily(`umac-64-etm@openssh.com umac-128-etm@openssh.com hmac-sha2-256-etm@openssh.com
hmac-sha2-512-etm@openssh.com hmac-sha1-etm@openssh.com umac-64@openssh.com umac-128@openssh.com hmac-sha2-256
hmac-sha2-512 hmac-sha1`)
)

func lazily(words string) func() []string {
	return sync.OnceValue(func() []string { return strings.Fields(words) })
}

var algorithmLists = sync.OnceValue(func() []algorithmList {
	has := implemented()
	kexes := append(has.KeyExchanges, "curve25519-sha256@libssh.org")
	return []algorithmList{
		{"KexAlgorithms", defaultKexes(), kexes, func(s *HostConfig) *[]string { return &s.KexAlgorithms }},
		{"Ciphers", defaultCiphers(), has.Ciphers, func(s *HostConfig) *[]string { return &s.Ciphers }},
		{"MACs", defaultMACs(), has.MACs, func(s *HostConfig) *[]string { return &s.MACs }},
		{
			"HostKeyAlgorithms", defaultKeyTypes(), has.HostKeys,
			func(s *HostConfig) *[]string { return &s.HostKeyAlgorithms },
		},
		{
			"PubkeyAcceptedAlgorithms", defaultKeyTypes(), withCertificates(has.PublicKeyAuths),
			func(s *HostConfig) *[]string { return &s.PubkeyAcceptedAlgorithms },
		},
		{
			"CASignatureAlgorithms", defaultSignatures(), has.PublicKeyAuths,
			func(s *HostConfig) *[]string { return &s.CASignatureAlgorithms },
		},
	}
})

func (l algorithmList) keyword() string { return strings.ToLower(l.name) }
func isRC4(name string) bool            { return strings.HasPrefix(name, "arcfour") }

// isObsolete says that newer versions of ssh don't accept the name.
func isObsolete(name string) bool { return strings.HasPrefix(name, "ssh-dss") }

// implemented is what the library has, except RC4. ssh_config must enable the insecure ones.
func implemented() ssh.Algorithms {
	all, insecure := ssh.SupportedAlgorithms(), ssh.InsecureAlgorithms()
	return ssh.Algorithms{
		KeyExchanges:   append(all.KeyExchanges, insecure.KeyExchanges...),
		Ciphers:        slices.DeleteFunc(append(all.Ciphers, insecure.Ciphers...), isRC4),
		MACs:           append(all.MACs, insecure.MACs...),
		HostKeys:       append(all.HostKeys, insecure.HostKeys...),
		PublicKeyAuths: append(all.PublicKeyAuths, insecure.PublicKeyAuths...),
	}
}

const certificate = "-cert-v01@openssh.com"

func withCertificates(names []string) []string {
	all := slices.Clone(names)
	for _, name := range names {
		all = append(all, strings.TrimSuffix(name, "@openssh.com")+certificate)
	}
	return all
}

// isValid: all names are known to ssh and genv, after an optional `+`, `-` or `^`. `-` allows patterns.
func (l algorithmList) isValid(value string) bool {
	kind, items := operator(value)
	known := slices.DeleteFunc(slices.Concat(l.defaults, l.here), isObsolete)
	for item := range strings.SplitSeq(items, ",") {
		if item == "" || kind != '-' && !slices.Contains(known, item) {
			return false
		}
	}
	return true
}

// operator splits off a leading `+`, `-` or `^`; 0: none.
func operator(value string) (byte, string) {
	if value != "" && strings.ContainsRune("+-^", rune(value[0])) {
		return value[0], value[1:]
	}
	return 0, value
}

// expand returns the names of a valid value in ssh's order.
func (l algorithmList) expand(value string) (names []string) {
	kind, items := operator(value)
	listed := strings.Split(items, ",")
	switch kind {
	case '-':
		return slices.DeleteFunc(slices.Clone(l.defaults), func(name string) bool { return MatchesAny(listed, name) })
	case '+':
		listed = slices.Concat(l.defaults, listed)
	case '^':
		listed = slices.Concat(listed, l.defaults)
	}
	for _, name := range listed {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// fixedHostKeyOrder: HostKeyAlgorithms sets the order of types. `ssh -G` prints just names: defaults left by `+` and
// `-`, in their order, then those added by `+`.
func fixedHostKeyOrder(value string, asWritten bool) bool {
	kind, items := operator(value)
	if value == "" || kind == '+' || kind == '-' {
		return false
	}
	last := 0
	for name := range strings.SplitSeq(items, ",") {
		at := slices.Index(defaultKeyTypes(), name)
		if at < 0 {
			at = len(defaultKeyTypes())
		}
		if asWritten || at < last {
			return true
		}
		last = at
	}
	return false
}

// algorithms sets the library's part of the lists. An empty list is an error: the library would use its own.
func (r raw) algorithms(s *HostConfig) error {
	for _, l := range algorithmLists() {
		names := l.defaults
		if values, set := r[l.keyword()]; set {
			names = l.expand(values[0])
		}
		left := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(l.here, name) })
		if len(left) == 0 {
			return &Error{keyword: l.keyword(), Problem: fmt.Sprintf(
				"genv has none of the algorithms that %s %s allows; it has %s", l.name, r.first(l.keyword()),
				strings.Join(l.here, ","))}
		}
		same, _ := listsOfAlgorithms.LoadOrStore(strings.Join(left, ","), slices.Clip(left))
		*l.field(s) = same.([]string)
	}
	return nil
}

// listsOfAlgorithms shares equal lists, as most hosts have the same.
var listsOfAlgorithms sync.Map

// Implements says whether the library has an algorithm of this keyword of ssh_config(5).
func Implements(keyword, name string) bool {
	return slices.ContainsFunc(algorithmLists(),
		func(l algorithmList) bool { return l.name == keyword && slices.Contains(l.here, name) })
}
