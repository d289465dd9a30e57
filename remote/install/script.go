package install

import (
	"context"
	"crypto/rand"
	_ "embed" // the scripts
	"errors"
	"io"
	"strings"

	"github.com/seed-3119e985/genv/remote"
)

// The scripts, for a POSIX shell on the host.
var (
	//go:embed scripts/common.sh
	commonScript string
	//go:embed scripts/login.sh
	loginScript string
	//go:embed scripts/look.sh
	lookScript string
	//go:embed scripts/apply.sh
	applyScript string
	//go:embed scripts/uninstall.sh
	uninstallScript string
)

// variables are what a script is given, by names that this package chooses.
type variables [][2]string

// receive is a shell's program that reads the script from stdin, between two lines with
// the token, and runs it with the rest of stdin as its own. What comes before the first
// token is dropped: that is the password where sudo needs none. Without the second one
// nothing runs. A script of any length can come so whatever the login shell is, and stays
// out of the host's list of processes. The text has nothing that csh or fish interpret
// within single quotes.
func receive(token string) string {
	return strings.ReplaceAll(`l=; until [ "$l" = TOKEN ]; do IFS= read -r l || exit 90; done; n=$(printf "\nx"); n=${n%x}; s=; l=; `+
		`until [ "$l" = TOKEN ]; do s="$s$l$n"; IFS= read -r l || exit 90; done; unset l; eval "$s"`, "TOKEN", token)
}

// access is how commands become root on a host.
type access struct {
	direct bool // the login is root
	// secret is sudo's password; nil for none.
	secret []byte
}

// asLogin and asRoot are the words that run a program of sh.
func asLogin(program string) []string { return []string{"sh", "-c", program} }

func (a access) asRoot(program string) []string {
	if a.direct {
		return asLogin(program)
	}
	return append(asLogin(`LC_ALL=C; export LC_ALL; exec sudo `+a.sudoFlags()+` sh -c "$1"`), "sh", program)
}

func (a access) sudoFlags() string {
	if a.secret == nil {
		return "-n"
	}
	return `-k -S -p ""` // -k: it takes the password also if it remembers an earlier one
}

// input is the stdin of a script up to its end.
func (a access) input(token, script string, v variables) []byte {
	var b strings.Builder
	b.WriteString(token + "\ntoken=" + token + "\n")
	for _, pair := range v {
		b.WriteString(pair[0] + "=" + remote.Quote(pair[1]) + "\n")
	}
	b.WriteString(commonScript + script + token + "\n")
	if a.secret == nil {
		return []byte(b.String())
	}
	input := make([]byte, 0, len(a.secret)+1+b.Len()) // not appended to, so that no copy of the secret is left
	input = append(append(input, a.secret...), '\n')
	return append(input, b.String()...)
}

// errIncomplete says that a script ended before its end.
var errIncomplete = errors.New("the host's answer is not complete")

// run runs a script as root, and returns what it reported. more follows on its stdin.
func (i *Installer) run(ctx context.Context, h remote.Host, a access, script string, v variables, more io.Reader) (said, error) {
	token := rand.Text()
	return i.send(ctx, h, a, a.asRoot(receive(token)), token, script, v, more)
}

// runAsLogin runs a script without root.
func (i *Installer) runAsLogin(ctx context.Context, h remote.Host, script string, v variables) (said, error) {
	token := rand.Text()
	return i.send(ctx, h, access{}, asLogin(receive(token)), token, script, v, nil)
}

func (i *Installer) send(ctx context.Context, h remote.Host, a access, args []string, token, script string, v variables, more io.Reader) (said, error) {
	input := a.input(token, script, v)
	defer clear(input)
	out, err := i.Runner.Run(ctx, h, remote.Command{Args: args, Stdin: input, Upload: more})
	return parseSaid(hidden(out.Stdout, a.secret), token), withoutSecret(err, a.secret)
}
