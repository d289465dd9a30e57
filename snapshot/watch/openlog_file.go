package watch

import (
	"encoding/json"
	"fmt"

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

// readOpenLog reads the file. The error is fs.ErrNotExist if there is none, or wraps folder.ErrUnsafe
// if others than root could have written it, or snapshot.ErrInvalid.
func readOpenLog(dir string) (openLogContent, error) {
	data, err := folder.ReadTrusted(dir, OpenLogFile, maxFile)
	if err != nil {
		return openLogContent{}, err
	}
	return decodeOpenLog(data)
}

func decodeOpenLog(data []byte) (openLogContent, error) {
	var c openLogContent
	if err := json.Unmarshal(data, &c); err != nil {
		return openLogContent{}, fmt.Errorf("%w: %s: %w", snapshot.ErrInvalid, OpenLogFile, err)
	}
	if c.Schema != schema || c.Epoch == "" || len(c.PIDs) > most || uint64(len(c.PIDs)) > c.Last {
		return openLogContent{}, fmt.Errorf("%w: %s has the schema %q", snapshot.ErrInvalid, OpenLogFile, c.Schema)
	}
	for _, pid := range c.PIDs {
		if pid < 0 {
			return openLogContent{}, fmt.Errorf("%w: %s has the PID %d", snapshot.ErrInvalid, OpenLogFile, pid)
		}
	}
	return c, nil
}

func (c *openLogContent) write(dir string) error {
	d, err := folder.OpenTrusted(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.PutJSON(OpenLogFile, c, 0o600, false)
}
