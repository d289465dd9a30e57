package llm

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// ErrForeign means that a process of another user than the environment's serves the port.
var ErrForeign = errors.New("another user's process listens there")

// checkListener refuses a port of the loopback on which another user listens than the owner,
// or root. An error that isn't ErrForeign says that this isn't known.
func (c Client) checkListener() error {
	if c.Owner == nil {
		return nil
	}
	for _, name := range []string{"tcp", "tcp6"} {
		file, err := os.Open(filepath.Join(cmp.Or(c.sockets, "/proc/net"), name))
		if errors.Is(err, fs.ErrNotExist) && name == "tcp6" { // a kernel without IPv6
			continue
		}
		if err != nil {
			return fmt.Errorf("who listens on port %d: %w", c.Port, err)
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() && err == nil {
			if uid, ok := listens(lines.Text(), c.Port); ok && uid != *c.Owner && uid != 0 {
				err = fmt.Errorf("%s: %w (uid %d), not the user of the environment (uid %d)", c.URL(), ErrForeign, uid,
					*c.Owner)
			}
		}
		if err := errors.Join(err, lines.Err(), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// listens reads a line of /proc/net/tcp (proc(5)): the uid of a socket that listens on a port
// of 127.0.0.1, or of all addresses.
func listens(line string, port int) (uid snapshot.UID, ok bool) {
	const local, state, owner = 1, 3, 7
	fields := strings.Fields(line)
	if len(fields) <= owner || fields[state] != "0A" {
		return 0, false
	}
	address, suffix, _ := strings.Cut(fields[local], ":")
	n, err := strconv.ParseUint(suffix, 16, 16)
	id, uidErr := strconv.ParseUint(fields[owner], 10, 32)
	everywhere := strings.Trim(address, "0") == ""
	// in the machine's byte order
	loopback := strings.HasSuffix(address, "0100007F") || strings.HasSuffix(address, "7F000001")
	return snapshot.UID(id), err == nil && uidErr == nil && int(n) == port && (everywhere || loopback)
}

// DefaultPort is Ollama's.
const DefaultPort = 11434

// tried is how many ports FreePort tries.
const tried = 100

// FreePort is the first port from DefaultPort on at which nothing listens at an interface. Its error says what to do.
func FreePort(host string) (port int, err error) {
	for port = DefaultPort; port < DefaultPort+tried; port++ {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		switch {
		case err == nil:
			return port, listener.Close()
		case !errors.Is(err, syscall.EADDRINUSE):
			return 0, fmt.Errorf("--host %s: %w", text.Shown(host), err)
		}
	}
	return 0, fmt.Errorf("no port from %d on is free: choose one with --port", DefaultPort)
}

// ShownPort is the port for a table.
func (s *ServedModel) ShownPort() string {
	if s.Port == 0 {
		return "N/A"
	}
	return strconv.Itoa(s.Port)
}

// Name is the name of the environment, as genv 1.4.3 gives it: llm/MODEL/PORT.
func (s *ServedModel) Name() string { return "llm/" + s.Model + "/" + strconv.Itoa(s.Port) }

// Of reads the name of an environment; ok is false if it isn't that of a model. A genv
// before 1.4.1 names only the model.
func Of(e *snapshot.Environment) (s ServedModel, ok bool) {
	rest, isModel := strings.CutPrefix(e.Config.Name, "llm/")
	slash := strings.LastIndexByte(rest, '/')
	switch {
	case !isModel || rest == "" || slash == 0:
		return s, false
	case slash < 0:
		return ServedModel{Model: rest}, true
	}
	port, err := strconv.ParseUint(rest[slash+1:], 10, 16)
	return ServedModel{Model: rest[:slash], Port: int(port)}, err == nil && port > 0
}
