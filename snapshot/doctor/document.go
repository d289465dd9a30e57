package doctor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Schema names the document of `genv doctor --format json`; docs/json.md describes it.
const Schema = "genv.doctor/1"

// Document is what a host found out about itself.
type Document struct {
	Schema string    `json:"schema"`
	Host   string    `json:"host"`
	Time   time.Time `json:"time"`
	Root   bool      `json:"root"` // whether it looked as root
	Genv   Program   `json:"genv"`
	System System    `json:"system"`
	Status Status    `json:"status"`
	Checks []Check   `json:"checks"`
}

// Program is a genv.
type Program struct {
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	// Protocol is the version of the protocol with controllers; 0 if it is unknown or, as
	// 1.4.3, has none.
	Protocol int `json:"protocol,omitempty"`
}

// System is the software of a host; what is unknown is empty.
type System struct {
	OS     string `json:"os,omitempty"`
	Kernel string `json:"kernel,omitempty"`
	Arch   string `json:"arch,omitempty"`
	Driver string `json:"driver,omitempty"`
}

// MaxDocument bounds a document, in bytes.
const MaxDocument = 256 << 10

// ErrInvalid is wrapped by errors about what is not a valid document.
var ErrInvalid = errors.New("not a document of genv doctor")

// Decode reads the document of a host, which may be hostile. Only what a host can know
// about itself is used of it: checks that a controller makes are dropped, and so are
// next steps, which follow from the cause. Texts are cut to a length that is shown.
func Decode(data []byte) (*Document, error) {
	if len(data) > MaxDocument {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrInvalid, MaxDocument)
	}
	var d Document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if d.Schema != Schema {
		return nil, fmt.Errorf("%w: its schema is %q", ErrInvalid, text.Cut(d.Schema, 64))
	}
	for _, word := range []*string{&d.Host, &d.Genv.Path, &d.Genv.Version, &d.System.OS, &d.System.Kernel, &d.System.Arch, &d.System.Driver} {
		*word = text.OneLine(text.Cut(*word, maxWord))
	}
	given := d.Checks
	d.Checks = nil
	for _, name := range HostNames() {
		at := slices.IndexFunc(given, func(c Check) bool { return c.Name == name })
		if at < 0 {
			d.Checks = append(d.Checks, Unknown(name, "the genv on this host doesn't check it"))
			continue
		}
		c := Check{Name: name, Status: given[at].Status, Detail: OneLine(given[at].Detail)}
		switch c.Status {
		case OK, Skipped:
		case Warning, Failed:
			c.Cause = Cause(text.OneLine(text.Cut(string(given[at].Cause), 64)))
			c.NextStep = cmp.Or(meaningOf(c.Cause).step, "run `genv doctor` on the host, which has a newer genv and knows the next step")
		default:
			return nil, fmt.Errorf("%w: the status of %s is %q", ErrInvalid, name, text.Cut(string(c.Status), 32))
		}
		d.Checks = append(d.Checks, c)
	}
	d.Status = Overall(d.Checks)
	return &d, nil
}

// maxWord is how long a version or a path may be, in bytes.
const maxWord = 256
