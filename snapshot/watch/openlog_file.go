package watch

import (
	"errors"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// OpenLogFile is the name of the file in root's run folder.
const OpenLogFile = "guard-opens.json"

const (
	schema = "genv.guard-opens/1"
	// most is how many opens the file has at most.
	most    = 256
	maxFile = 16 << 10 // bytes
)

// openLogContent is what is in the file.
type openLogContent struct {
	Schema string `json:"schema"`
	Epoch  string `json:"epoch"` // of the writer, which counts from 1
	Last   uint64 `json:"last"`  // the number of the last open
	// PIDs are of those who opened a device, the last one last; 0 for one that is not known.
	PIDs []snapshot.PID `json:"pids"`
}

// openLogFile is the file. Its errors about content wrap snapshot.ErrInvalid.
var openLogFile = folder.Note[openLogContent]{
	Name: OpenLogFile, Max: maxFile, Mode: 0o600, Invalid: snapshot.ErrInvalid, Check: (*openLogContent).check,
}

func (c *openLogContent) check() error {
	switch {
	case c.Epoch == "", len(c.PIDs) > most, uint64(len(c.PIDs)) > c.Last:
		return errors.New("its numbers are wrong")
	case slices.ContainsFunc(c.PIDs, func(pid snapshot.PID) bool { return pid < 0 }):
		return errors.New("it has a negative PID")
	}
	return folder.CheckSchema(c.Schema, schema)
}
