package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// ContainerInfo describes a container by its runtime, root's records and the kernel: never by itself.
type ContainerInfo struct {
	Runtime   string            `json:"runtime,omitempty"` // "docker", for example
	Name      string            `json:"name,omitempty"`
	Image     string            `json:"image,omitempty"`          // as named at its creation
	Labels    map[string]string `json:"labels,omitempty"`         // chosen by who started it
	LabelsCut bool              `json:"labels_cut,omitempty"`     // there are more
	Unknown   bool              `json:"unknown,omitempty"`        // root's runtime didn't report its image and labels
	Init      bool              `json:"init,omitempty"`           // the container ends with the process
	EID       EnvID             `json:"eid,omitempty"`            // the environment that it was started in
	UID       *UID              `json:"started_by_uid,omitempty"` // who started it, as proved
	User      Username          `json:"started_by,omitempty"`
	Proof     string            `json:"proof,omitempty"` // see ProofRecord; empty without proof
}

// How it was proved who started a container, as in JSON.
const (
	ProofRecord   = "record"   // root's hook recorded the user
	ProofRootless = "rootless" // its user namespace belongs to the user
)

// Limits for what a host reports about a container.
const (
	MaxContainerLabels = 32
	maxLabelLength     = 256 // of a key, and of a value, in bytes
)

// CountsFor is the account for which rules count a process: its own. In a container of root's runtime, which can have
// any uid, it is the proved user who started the container, else uid 0, which is no user.
func (p *Process) CountsFor() (Username, *UID) {
	switch c := p.ContainerInfo; {
	case c == nil || p.UID == nil:
		return p.Username, p.UID
	case c.UID != nil:
		return c.User, c.UID
	}
	return "", new(UID)
}

// CountsForUID is the uid of CountsFor.
func (p *Process) CountsForUID() *UID {
	_, uid := p.CountsFor()
	return uid
}

// StartedByUnknown says that any user of the runtime may have started the container: the process counts for no user.
func (p *Process) StartedByUnknown() bool {
	uid := p.CountsForUID()
	return p.Container != "" && uid != nil && *uid == 0
}

// OfRootsRuntime says whether a process is in a container of root's runtime, not of a user's.
func (p *Process) OfRootsRuntime() bool {
	return p.ContainerInfo != nil && p.ContainerInfo.Proof != ProofRootless
}

// Reported is the user in findings: CountsFor or, if StartedByUnknown, root for root's processes and else none.
func (p *Process) Reported() (Username, *UID) {
	switch {
	case p.ContainerInfo == nil || p.UID != nil && *p.UID == 0 && p.StartedByUnknown():
		return p.Username, p.UID
	case p.StartedByUnknown():
		return "", nil
	}
	return p.CountsFor()
}

// WithoutLabels returns a copy for findings, which are kept; nil for nil.
func (c *ContainerInfo) WithoutLabels() *ContainerInfo {
	if c == nil {
		return nil
	}
	brief := new(*c)
	brief.Labels, brief.LabelsCut = nil, false
	return brief
}

// BoundedLabels returns the first valid labels by key, and whether it left any out.
func BoundedLabels(labels map[string]string) (bounded map[string]string, cut bool) {
	keys := make([]string, 0, len(labels))
	for key, value := range labels {
		if checkLabel(key, value) == nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys[:min(len(keys), MaxContainerLabels)] {
		if bounded == nil {
			bounded = make(map[string]string)
		}
		bounded[key] = labels[key]
	}
	return bounded, len(bounded) < len(labels)
}

func checkLabel(key, value string) error {
	if len(key) > maxLabelLength || len(value) > maxLabelLength {
		return fmt.Errorf("%w: a label is longer than %d bytes", ErrInvalid, maxLabelLength)
	}
	return cmp.Or(CheckText("label", key), CheckText("label", value))
}

func (c *ContainerInfo) check() error {
	if c == nil {
		return nil
	}
	if len(c.Labels) > MaxContainerLabels {
		return fmt.Errorf("%w: a container with %d labels", ErrInvalid, len(c.Labels))
	}
	for key, value := range c.Labels {
		if err := checkLabel(key, value); err != nil {
			return err
		}
	}
	if (c.UID == nil) != (c.Proof == "") {
		return fmt.Errorf("%w: a container's user and the proof come together", ErrInvalid)
	}
	return cmp.Or(
		CheckText("runtime", c.Runtime), CheckText("container name", c.Name), CheckText("image", c.Image),
		CheckName("eid", string(c.EID)),
		CheckText("started_by", string(c.User)), CheckText("proof", c.Proof),
	)
}

// ContainerText is as in "container web (pytorch:24.10), started by bob", safe to show; "" for none.
func (p *Process) ContainerText() string {
	if p.Container == "" || p.ContainerInfo == nil {
		return p.ContainerName()
	}
	return p.ContainerName() + StartedBy(p.ContainerInfo.starter())
}

// ContainerName is ContainerText without the user who started it.
func (p *Process) ContainerName() string {
	c := p.ContainerInfo
	switch {
	case p.Container == "":
		return ""
	case c == nil:
		return ContainerName(p.Container, "", "")
	case c.Unknown && c.Name == "":
		return ContainerName(p.Container, "", "") + " (not described by its runtime)"
	}
	return ContainerName(p.Container, c.Name, c.Image)
}

func (c *ContainerInfo) starter() string {
	switch {
	case c.UID == nil:
		return ""
	case c.User == "":
		return fmt.Sprintf("uid %d", *c.UID)
	}
	return text.Shown(string(c.User))
}

// ContainerName names a container, safe to show, by its name or else its id.
func ContainerName(id, name, image string) string {
	shown := "container " + text.Shown(cmp.Or(name, ShortID(id)))
	if image != "" {
		shown += " (" + shownImage(image) + ")"
	}
	return shown
}

// StartedBy names who started a container; user is safe to show, or empty without proof.
func StartedBy(user string) string { return ", started by " + cmp.Or(user, "an unknown user") }

func shownImage(image string) string {
	const maxShownImage = 80 // bytes
	if len(image) <= maxShownImage && text.IsMadeOf(image, "._:@/+-") && strings.Trim(image, "-") != "" {
		return image
	}
	return text.Quoted(image, maxShownImage)
}

// Describe is as in " (user bob, python train.py, container web, MIG-…)", safe to show; "" if nothing is known.
func (p *Process) Describe() string {
	var parts []string
	switch {
	case p.Username != "":
		parts = append(parts, "user "+text.Shown(string(p.Username)))
	case p.UID != nil:
		parts = append(parts, fmt.Sprintf("uid %d", *p.UID))
	}
	if command := p.CommandOrName(); command != "" {
		parts = append(parts, text.ShownCommand(command))
	}
	if container := p.ContainerText(); container != "" {
		parts = append(parts, container)
	}
	for _, instance := range p.Instances {
		parts = append(parts, string(instance))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// CommandOrName is the command line or, if unknown, the name.
func (p *Process) CommandOrName() string { return cmp.Or(p.Command, p.Name) }

// HideCommand makes the command private, as on a host that hides it in /proc.
func (p *Process) HideCommand() {
	p.PrivateCommand, p.Command, p.Name = cmp.Or(p.CommandOrName(), p.PrivateCommand), "", ""
}

// ShortID shortens a container's id to 12 of its 64 digits, as container runtimes do.
func ShortID(id string) string {
	if len(id) == 64 {
		return id[:12]
	}
	return id
}
