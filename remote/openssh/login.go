package openssh

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Login is how ssh logs in to a host.
type Login struct {
	Program string // the path of ssh
	// Arguments are the configuration file and the destination, the last one after "--".
	Arguments      []string
	ConnectTimeout time.Duration // 0: that of ssh_config
	KeepAlive      time.Duration // 0: that of ssh_config
}

// always is what no ssh_config overrides: what comes first on the command line wins.
var always = []string{
	"-T", "-a", "-x", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oControlMaster=no", "-oClearAllForwardings=yes",
	"-oPermitLocalCommand=no", "-oLogLevel=ERROR",
}

// options are the words of the command line before the destination.
func (l Login) options() []string {
	words := append([]string{l.Program}, always...)
	if l.ConnectTimeout > 0 {
		words = append(words, "-oConnectTimeout="+seconds(l.ConnectTimeout))
	}
	if l.KeepAlive > 0 {
		words = append(words, "-oServerAliveInterval="+seconds(l.KeepAlive))
	}
	return words
}

// seconds rounds up: 0 would mean that there is no limit.
func seconds(d time.Duration) string { return strconv.Itoa(int((d + time.Second - 1) / time.Second)) }

// Forward is the command line that connects its stdin and stdout to an address which the host
// reaches.
func (l Login) Forward(address string) []string {
	return slices.Concat(l.options(), []string{"-W", address}, l.Arguments)
}

// command is the command line that runs another one on the host.
func (l Login) command(line string) []string {
	return slices.Concat(l.options(), l.Arguments, []string{line})
}

// environment is that of this program, with the messages of sudo and shells in English on
// hosts that take variables (SendEnv).
func environment() []string {
	localized := func(variable string) bool {
		return strings.HasPrefix(variable, "LC_") || strings.HasPrefix(variable, "LANG")
	}
	return append(slices.DeleteFunc(os.Environ(), localized), "LC_ALL=C")
}
