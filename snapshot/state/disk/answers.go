package disk

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// answersFile has what looks and commands found out about processes: see state.Files.Answers. Users write it, too.
const answersFile = "genv.answers.json"

// maxAnswersFile is in bytes; a larger file is ignored.
const maxAnswersFile = 4 << 20

type answersNote struct {
	BootID  string            `json:"boot_id"`
	Answers []snapshot.Answer `json:"answers"`
}

// readAnswers reads the answers of this boot. If anything is wrong with the file there are none, which is harmless.
func (t *transaction) readAnswers() {
	var n answersNote
	if t.dir.ReadJSON(answersFile, maxAnswersFile, &n) && n.BootID == t.System.BootID() {
		t.answers, t.files.Answers = n.Answers, slices.Clone(n.Answers)
	}
}

// writeAnswers is not synced, and errors are ignored: the file is optional.
func (t *transaction) writeAnswers() {
	n := answersNote{BootID: t.System.BootID()}
	for _, a := range t.files.Answers {
		a.Start = cmp.Or(a.Start, t.process(a.PID).Start)
		n.Answers = append(n.Answers, a)
	}
	if !slices.Equal(n.Answers, t.answers) {
		_ = t.dir.PutJSON(answersFile, n, t.dir.mode(ownedMode), false)
	}
}

func (t *transaction) forgetAnswers() {
	t.files.Answers = slices.DeleteFunc(t.files.Answers, func(a snapshot.Answer) bool {
		now := t.process(a.PID)
		ended := now.Liveness == system.Gone || now.Start != 0 && now.Start != a.Start
		return ended || snapshot.CheckName("eid", string(a.EID)) != nil
	})
}

// rememberWithin bounds the wait for the lock: the next look remembers what this one couldn't.
const rememberWithin = 200 * time.Millisecond

// Remember keeps what a look of root found out about processes, so that it holds when they don't show it any more.
func (s *Store) Remember(ctx context.Context, answers []snapshot.Answer) error {
	if os.Geteuid() != 0 || !s.MayWrite() {
		return nil
	}
	_, err := s.update(ctx, rememberWithin, func(f *state.Files) error {
		f.Remember(answers)
		return nil
	})
	return err
}

func (t *transaction) startTimes() map[snapshot.PID]snapshot.StartTime {
	starts := make(map[snapshot.PID]snapshot.StartTime)
	for i := range t.files.Environments {
		if noted := t.noted[state.KeyOf(&t.files.Environments[i])]; noted != nil {
			maps.Copy(starts, noted.Starts)
		}
	}
	maps.Copy(starts, t.starts)
	return starts
}
