package top

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// sshCommand is `ssh HOST` with arguments before the host, such as -F FILE. No shell sees
// it. A name that ssh could take for something else is refused.
func sshCommand(arguments []string, host string) (*exec.Cmd, error) {
	if host == "" || strings.HasPrefix(host, "-") || !text.IsMadeOf(host, "._-:%") {
		return nil, fmt.Errorf("%s isn't a name that ssh is called with", text.Shown(host))
	}
	words := append(append([]string{}, arguments...), "--", host)
	return exec.Command("ssh", words...), nil
}

// tail keeps the end of what is written to it.
type tail struct{ text []byte }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-draw.MaxText):]
	return len(p), nil
}

// lastLine is the last line with a text.
func (t *tail) lastLine() string {
	said := strings.TrimSpace(string(t.text))
	return strings.TrimSpace(said[strings.LastIndexByte(said, '\n')+1:])
}
