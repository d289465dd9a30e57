package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// site is a host of which GPUs leave, come back, move and fail. Its users keep the rules, in any time zone; carol
// doesn't.
type site struct {
	*rand.Rand
	t     *testing.T
	cards []*card // by their indices
	seen  state.RootNote
	files state.Files // as on disk: without what root's note adds
	knows map[snapshot.EnvID][]snapshot.DeviceIndex
	jobs  []*job
	pid   snapshot.PID // of the last one
	now   time.Time

	full  bool                    // the file system of the state
	ended map[snapshot.EnvID]bool // shells: what they left in tmux goes on
}

// card is a GPU.
type card struct {
	uuid  snapshot.GPUUUID
	gone  bool
	fault string // "lost", "reset", or the UUID or the index of its neighbour; empty for none
}

// job is a process on a GPU.
type job struct {
	pid  snapshot.PID
	eid  snapshot.EnvID
	uid  snapshot.UID
	card *card

	titled bool            // it has overwritten its environ
	noted  snapshot.Answer // by root
}

func newSite(t *testing.T, seed uint64) *site {
	s := &site{Rand: rand.New(rand.NewPCG(seed, 11)), t: t, knows: make(map[snapshot.EnvID][]snapshot.DeviceIndex), pid: 100, now: booted.Add(36 * time.Hour), ended: make(map[snapshot.EnvID]bool)}
	for i := range 3 + s.IntN(3) {
		s.cards = append(s.cards, &card{uuid: snapshot.GPUUUID(fmt.Sprintf("GPU-%d", i))})
	}
	for i, user := range []snapshot.Username{"alice", "bob"} {
		pid := snapshot.PID(i + 1)
		s.files.Environments = append(s.files.Environments, snapshot.Environment{
			EID: snapshot.EnvID(itoa(int(pid))), UID: snapshot.UID(1001 + i), Username: user, Creation: s.wrong(), PIDs: []snapshot.PID{pid},
		})
	}
	s.look(true)
	return s
}

// wrong is the time of a user whose TZ may be any.
func (s *site) wrong() snapshot.Date {
	return snapshot.DateOf(s.now.Add(time.Duration(s.IntN(24)-12) * time.Hour))
}

// listed are the GPUs in the order of their indices.
func (s *site) listed() []*card {
	return slices.DeleteFunc(slices.Clone(s.cards), func(c *card) bool { return c.gone })
}

// at is the GPU that has the index; nil for none.
func (s *site) at(index snapshot.DeviceIndex) *card {
	if listed := s.listed(); int(index) < len(listed) {
		return listed[index]
	}
	return nil
}

// found is what nvidia-smi says.
func (s *site) found() []snapshot.Device {
	var rows []string
	for i, c := range s.listed() {
		index, uuid, memory := i, c.uuid, "1000"
		switch c.fault {
		case "lost":
			continue
		case "reset":
			memory = "[GPU requires reset]"
		case "uuid":
			uuid = s.listed()[max(i-1, 0)].uuid
		case "index":
			index = max(i-1, 0)
		}
		rows = append(rows, fmt.Sprintf("%d, %s, %s, 10, 90, 40, 50.00, H100", index, uuid, memory))
	}
	listing, err := nvidiasmi.ParseDevices(nvidiasmi.RunResult{Stdout: []byte(strings.Join(rows, "\n") + "\n")})
	if err != nil {
		return nil
	}
	var found []snapshot.Device
	for i := range listing.GPUs {
		found = append(found, listing.GPUs[i].Device)
	}
	return found
}

// look is one of root's, at the GPUs as well or at the files alone; nil if nvidia-smi fails.
func (s *site) look(gpus bool) *snapshot.Snapshot {
	f := s.read()
	s.seen.Apply(&f)
	found := s.found()
	if gpus && found == nil {
		return nil
	}
	if gpus {
		f.MergeDevices(found)
	}
	start := snapshot.StartTime(s.now.Sub(booted) / (10 * time.Millisecond))
	s.seen = s.seen.Look(&f, s.now, start, func(*snapshot.Environment, snapshot.PID) snapshot.StartTime { return 0 })
	if !s.full { // the note has a reserve
		s.files = state.Files{Environments: f.Environments, Devices: f.Devices}
	}
	view := &snapshot.Snapshot{Boot: booted, UTCOffset: new(0), Environments: f.Environments, Devices: snapshot.Described(f.Devices, found)}
	for _, j := range s.jobs {
		if at := slices.IndexFunc(found, func(d snapshot.Device) bool { return d.UUID == j.card.uuid }); at >= 0 {
			view.Processes = append(view.Processes, snapshot.Process{
				PID: j.pid, Start: 1, UID: &j.uid, Usage: []snapshot.DeviceUsage{{Index: found[at].Index, Memory: snapshot.MiB(10)}},
			})
			s.assign(j, &view.Processes[len(view.Processes)-1])
		}
	}
	return view
}

// assign does what a host does to say in which environment a process is: without its environ, which a title wipes, its
// parents or root's note tell.
func (s *site) assign(j *job, p *snapshot.Process) {
	uid := func() (snapshot.UID, error) { return j.uid, nil }
	owner := snapshot.NewRegister(s.files.Environments, nil, []snapshot.Answer{j.noted}).Owner(func(yield func(snapshot.Relative, error) bool) {
		claim := func() (snapshot.EnvID, error) {
			if j.titled {
				return "", proc.ErrOverwritten
			}
			return j.eid, nil
		}
		if env := snapshot.FindEnvironment(s.files.Environments, j.eid); yield(snapshot.Relative{PID: j.pid, Start: 1, UID: uid, Claim: claim}, nil) && env != nil && !s.ended[j.eid] {
			yield(snapshot.Relative{PID: env.PIDs[0], Start: 1, UID: uid, Claim: func() (snapshot.EnvID, error) { return "", nil }}, nil)
		}
	}, "")
	p.EID, p.EnvUnknown, p.EnvOverwritten = owner.EID, owner.Unknown != nil, owner.Unknown != nil
	if owner.EID != "" && !s.full {
		j.noted = snapshot.Answer{PID: j.pid, Start: 1, UID: j.uid, EID: owner.EID}
	}
}

// read are the files as genv reads them.
func (s *site) read() state.Files {
	f := state.Files{Environments: slices.Clone(s.files.Environments), KeepsNote: true}
	for _, d := range s.files.Devices {
		d.UUID, d.Unidentified, d.Attachments = "", false, slices.Clone(d.Attachments)
		for i := range d.Attachments {
			d.Attachments[i].Since = 0
		}
		f.Devices = append(f.Devices, d)
	}
	return f
}

// change is what a user's genv does, which a full disk refuses.
func (s *site) change(do func(f *state.Files)) {
	if s.full {
		return
	}
	f := s.read()
	f.KeepsNote = false
	do(&f)
	s.files = f
}

// ends ends jobs of an environment, and those on GPUs to which it isn't attached if there are others.
func (s *site) ends(eid snapshot.EnvID, keep []snapshot.DeviceIndex) {
	listed := s.listed()
	s.jobs = slices.DeleteFunc(s.jobs, func(j *job) bool {
		return j.eid == eid && !slices.Contains(keep, snapshot.DeviceIndex(slices.Index(listed, j.card)))
	})
}

func (s *site) start(eid snapshot.EnvID, uid snapshot.UID, index int) {
	listed := s.listed()
	if index < len(listed) && listed[index].fault == "" && slices.ContainsFunc(s.found(), func(d snapshot.Device) bool { return d.UUID == listed[index].uuid }) {
		s.pid++
		s.jobs = append(s.jobs, &job{pid: s.pid, eid: eid, uid: uid, card: listed[index]})
	}
}

// act is what one of the users does.
func (s *site) act(e snapshot.Environment) {
	eid := e.EID
	switch s.IntN(8) {
	case 0, 1:
		if len(s.files.AttachedTo(eid)) >= 2 {
			return
		}
		s.change(func(f *state.Files) {
			r := state.AttachRequest{EID: eid, Count: len(f.AttachedTo(eid)) + 1, At: s.wrong(), Availability: state.Availability{States: make(map[snapshot.DeviceIndex]gpus.State)}}
			for _, d := range s.found() {
				if !d.Judged() {
					r.States[d.Index] = gpus.Failed
				}
			}
			if indices, err := f.Attach(r); err == nil {
				s.knows[eid] = indices
			}
		})
	case 2, 3, 4:
		if known := s.knows[eid]; len(known) > 0 {
			s.start(eid, e.UID, int(known[s.IntN(len(known))]))
		}
	case 5: // after root's look, as genv status advises: what is on other GPUs is started again
		s.look(true)
		s.change(func(f *state.Files) {
			s.ends(eid, f.AttachedTo(eid))
			f.Refresh(eid, s.wrong())
			s.knows[eid] = f.AttachedTo(eid)
		})
	case 6:
		s.ends(eid, nil)
		s.change(func(f *state.Files) { f.Detach(eid); s.knows[eid] = nil })
	}
}

// happens is what the machine does.
func (s *site) happens() {
	c := s.cards[s.IntN(len(s.cards))]
	for _, c := range s.cards {
		c.fault = ""
	}
	switch s.IntN(4) {
	case 0:
		c.gone = !c.gone
	case 1:
		s.Shuffle(len(s.cards), func(i, j int) { s.cards[i], s.cards[j] = s.cards[j], s.cards[i] })
	case 2:
		c.fault = []string{"lost", "reset", "uuid", "index"}[s.IntN(4)]
	}
	s.jobs = slices.DeleteFunc(s.jobs, func(j *job) bool { return j.card.gone || j.card.fault == "lost" }) // they end with it
}
