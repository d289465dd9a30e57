package shell

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Kind is a shell that can be initialised.
type Kind string

// The shells: bash from version 4, zsh from version 5.
const (
	Bash Kind = "bash"
	Zsh  Kind = "zsh"
)

// ErrUnknownShell means that a shell is not one of the Kinds.
var ErrUnknownShell = errors.New("unknown shell")

// ParseKind recognises a shell by a name, a path or a process's own name, such as
// "bash", "-zsh", "/usr/bin/zsh-5.9" or what /proc/PID/comm holds.
func ParseKind(name string) (Kind, error) {
	base := strings.TrimPrefix(filepath.Base(strings.TrimSpace(name)), "-")
	base, _, _ = strings.Cut(base, "-")
	switch base {
	case "bash", "rbash":
		return Bash, nil
	case "zsh", "rzsh":
		return Zsh, nil
	}
	return "", fmt.Errorf("%w %q: write eval \"$(genv shell --init --shell bash)\" or zsh", ErrUnknownShell, name)
}
