package config

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// arity is how many words a keyword has.
type arity int

const (
	one  arity = iota // one word, the first line wins
	many              // one or more words, the first line wins
	each              // one word, every line counts
	rest              // all that follows, the first line wins
)

// honoured are the keywords of HostConfig, with the values that ssh accepts. Any
// other value is left to ssh, or refused.
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

// aliases are earlier names of keywords, which ssh still accepts: PubkeyAcceptedKeyTypes before 8.5, RSAMinSize in Red
// Hat's 8.7.
var aliases = map[string]string{"pubkeyacceptedkeytypes": "pubkeyacceptedalgorithms", "rsaminsize": "requiredrsasize"}

// ignored are the keywords of ssh_config(5) that change nothing for genv, or are only read when they are needed (see
// ControlPath). What is in none of the lists is left to ssh.
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

// onlyTokens accepts a value without ${ENV} and without other tokens than those given, a letter each, and %%.
func onlyTokens(tokens string) func(string) bool {
	return func(value string) bool { return tokensAmong(tokens, value) && !strings.Contains(value, "${") }
}

// isAgent accepts what ssh accepts for a socket also in blocks for other hosts: a $NAME may be set or not, each
// ${NAME} has to be set.
func isAgent(value string) bool {
	if name, isVariable := strings.CutPrefix(value, "$"); isVariable && !strings.HasPrefix(name, "{") {
		return variableName().MatchString(name)
	}
	return isFileName(value) && firstUnset(value) == ""
}

var variableName = text.Pattern(`^[A-Za-z0-9_]+$`)

// isFileName accepts the tokens that all versions of OpenSSH since 8.0 have; ${ENV}
// is checked later, by environmentSet.
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
