package container

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// logged is a line of a runtime's log, of which the engine shows the last error to the user
// (runc(8), --log-format json).
type logged struct {
	Level string    `json:"level"`
	Msg   string    `json:"msg"`
	Time  time.Time `json:"time"`
}

// report says why a container can't be started: on stderr, and in the file from which the
// engine takes the message of `docker run`.
func (r *runtime) report(err error) {
	if err == nil {
		return
	}
	message := "genv: " + text.PrintableLines(err.Error())
	fmt.Fprintln(r.Err, message)
	if r.log == "" {
		return
	}
	line, err := json.Marshal(logged{"error", message, r.Now().UTC()})
	if err != nil {
		return
	}
	file, err := os.OpenFile(r.log, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return
	}
	_, _ = file.Write(append(line, '\n')) // it is on stderr, too
	_ = file.Close()
}
