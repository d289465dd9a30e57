package llm

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Served is a model that an environment says it serves.
type Served struct {
	Model string `json:"model"`
	Port  int    `json:"port,omitzero"` // 0 if it is unknown
}

// DefaultPort is Ollama's.
const DefaultPort = 11434

// tried is how many ports FreePort tries.
const tried = 100

// FreePort is the first port from DefaultPort on at which nothing listens at an interface.
// Its error says what to do.
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
func (s Served) ShownPort() string {
	if s.Port == 0 {
		return "N/A"
	}
	return strconv.Itoa(s.Port)
}

// Name is the name of the environment, as genv 1.4.3 gives it: llm/MODEL/PORT.
func (s Served) Name() string { return "llm/" + s.Model + "/" + strconv.Itoa(s.Port) }

// Of reads the name of an environment; ok is false if it isn't that of a model. A genv
// before 1.4.1 names only the model.
func Of(e *snapshot.Environment) (s Served, ok bool) {
	rest, isModel := strings.CutPrefix(e.Config.Name, "llm/")
	slash := strings.LastIndexByte(rest, '/')
	switch {
	case !isModel || rest == "" || slash == 0:
		return s, false
	case slash < 0:
		return Served{Model: rest}, true
	}
	port, err := strconv.ParseUint(rest[slash+1:], 10, 16)
	return Served{Model: rest[:slash], Port: int(port)}, err == nil && port > 0
}
