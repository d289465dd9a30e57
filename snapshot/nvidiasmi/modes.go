package nvidiasmi

import (
	"context"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// Mode is one line of the output for ModesArgs: how the driver runs a GPU.
type Mode struct {
	Index       snapshot.DeviceIndex
	Persistence *bool  // nil if the driver does not report it
	Driver      string // its version; empty if it does not report it
}

// ModesArgs are the arguments for the output that ParseModes reads.
func ModesArgs() []string {
	return []string{"--query-gpu=index,persistence_mode,driver_version", "--format=csv,noheader,nounits"}
}

// Modes lists how the driver runs each GPU. There is at least one: a machine without
// devices is ErrNoDevices.
func (q *Querier) Modes(ctx context.Context) ([]Mode, error) {
	modes, err := query(ctx, q, ModesArgs(), ParseModes)
	if err == nil && len(modes) == 0 {
		err = ErrNoDevices
	}
	return modes, err
}

// ParseModes parses the output for ModesArgs. After its error, ErrGarbled, no part of the
// output may be used.
func ParseModes(data []byte) ([]Mode, error) {
	var modes []Mode
	for line := range lines(data) {
		fields, err := split(line, 3)
		if err != nil {
			return nil, err
		}
		p := parser{line: line}
		m := Mode{Index: snapshot.DeviceIndex(p.number(fields[0], maxIndex)), Driver: known(fields[2])}
		switch strings.ToLower(known(fields[1])) {
		case "enabled":
			m.Persistence = new(bool)
			*m.Persistence = true
		case "disabled":
			m.Persistence = new(bool)
		}
		if err := snapshot.CheckText("driver version", m.Driver); err != nil {
			p.fail()
		}
		if p.err != nil {
			return nil, p.err
		}
		modes = append(modes, m)
	}
	return modes, nil
}
