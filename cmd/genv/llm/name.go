package llm

import (
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// Served is a model that an environment says it serves.
type Served struct {
	Model string `json:"model"`
	Port  int    `json:"port"` // on the host's loopback
}

// DefaultPort is Ollama's.
const DefaultPort = 11434

// Name is the name of the environment, as genv 1.4.3 gives it: llm/MODEL/PORT.
func (s Served) Name() string { return "llm/" + s.Model + "/" + strconv.Itoa(s.Port) }

// Of reads the name of an environment; ok is false if it isn't that of a model.
func Of(e *snapshot.Environment) (s Served, ok bool) {
	rest, isModel := strings.CutPrefix(e.Config.Name, "llm/")
	slash := strings.LastIndexByte(rest, '/')
	if !isModel || slash < 1 {
		return s, false
	}
	port, err := strconv.ParseUint(rest[slash+1:], 10, 16)
	return Served{Model: rest[:slash], Port: int(port)}, err == nil && port > 0
}
