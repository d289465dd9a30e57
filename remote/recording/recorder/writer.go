package recorder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/recording"
)

// writer writes what a Recorder gets. It is used by one goroutine alone.
type writer struct {
	*Recorder
	file    *os.File // nil for none
	out     *recording.Writer
	begun   time.Time // of the file
	flushed time.Time
	waiting recording.Gap // what was judged since, which an error would lose
	missed  recording.Gap // what is missing, and is not noted yet
	noted   recording.Gap // what is noted in what is written next
	said    string        // why it can't be written, if that was said
	behind  bool          // that too much waits was said since the file began
}

func (w *writer) run() {
	defer close(w.ended)
	for in := range w.inputs {
		slow, interval := w.takeMissed()
		w.noteSlow(&slow)
		if err := w.write(in, interval); err != nil {
			w.failed(in, err)
		}
	}
	slow, _ := w.takeMissed()
	w.noteSlow(&slow)
	err := w.note()
	if err = errors.Join(err, w.end()); err != nil {
		w.options.Log.Warn().Err(err).Msg("the recording could not be completed: what was judged last is missing in it")
	}
}

func (w *writer) noteSlow(slow *recording.Gap) {
	if slow.Judgements == 0 {
		return
	}
	add(&w.missed, *slow)
	if !w.behind {
		w.behind = true
		w.options.Log.Warn().Msg("the recording of what is judged is behind, since the disk is too slow: some of it is left out")
	}
}

func (w *writer) write(in *recording.Input, interval time.Duration) error {
	if w.ends(in) {
		if err := w.end(); err != nil {
			return err
		}
	}
	if w.out == nil {
		if in.Early > 0 {
			miss(&w.missed, in.Time, "a file begins with a full cycle")
			return nil
		}
		if err := w.begin(in.Time, interval); err != nil {
			return err
		}
	}
	if err := w.note(); err != nil {
		return err
	}
	in.Digest = recording.DigestOf(in.Plan, in.Events)
	if err := w.out.Add(in); err != nil {
		return err
	}
	if since := in.Time.Sub(w.flushed); since < flushEvery && since >= 0 && w.out.Waiting() < flushBytes {
		miss(&w.waiting, in.Time, "")
		return nil
	}
	if err := w.out.Flush(); err != nil {
		return err
	}
	w.flushed, w.waiting = in.Time, recording.Gap{}
	w.written()
	return nil
}

// note writes what is missing.
func (w *writer) note() error {
	if w.missed.Judgements == 0 || w.out == nil {
		return nil
	}
	if err := w.out.Gap(w.missed); err != nil {
		return err
	}
	add(&w.noted, w.missed)
	w.missed = recording.Gap{}
	return nil
}

// ends reports whether another file is to begin with a judgement.
func (w *writer) ends(in *recording.Input) bool {
	if w.out == nil {
		return false
	}
	full := in.Time.Sub(w.begun) >= fileTime || w.out.Size() >= w.options.FileBytes
	return full && in.Early == 0 || w.out.Clock(in.Time).Abs() > maxClockStep
}

// begin begins a file.
func (w *writer) begin(now time.Time, interval time.Duration) error {
	if err := os.MkdirAll(w.options.Dir, 0o700); err != nil {
		return err
	}
	w.tidy(now)
	file, err := os.OpenFile(filepath.Join(w.options.Dir, recording.FileName(now)), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	w.file, w.begun, w.flushed, w.behind = file, now, time.Time{}, false
	w.out = recording.NewWriter(file, recording.Header{Version: w.options.Version, Zone: now.Location().String(), Every: interval})
	return nil
}

// end completes a file.
func (w *writer) end() error {
	if w.out == nil {
		return nil
	}
	err := errors.Join(w.out.Close(), w.file.Sync(), w.file.Close())
	w.out, w.file = nil, nil
	if err == nil {
		w.waiting = recording.Gap{}
	}
	return err
}

// failed leaves out a judgement that could not be written, and those that waited with it. The
// next file begins with all that is known.
func (w *writer) failed(in *recording.Input, err error) {
	if w.file != nil {
		_ = w.file.Close() // what is in it stays
		if w.flushed.IsZero() {
			_ = os.Remove(w.file.Name()) // it has nothing that can be read
		}
		w.out, w.file = nil, nil
	}
	because := "it could not be written"
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		because = "the disk was full"
	}
	if w.waiting.Because == "" {
		w.waiting.Because = because
	}
	lost := w.noted
	for _, g := range []recording.Gap{w.waiting, w.missed} {
		add(&lost, g)
	}
	miss(&lost, in.Time, because)
	w.missed, w.waiting, w.noted = lost, recording.Gap{}, recording.Gap{}
	if text := withoutPath(err); text != w.said {
		w.said = text
		w.options.Log.Warn().Err(err).Msg("what is judged can't be recorded: it is left out until that works again")
	}
}

// withoutPath is an error without the file that it is about: each attempt has another one.
func withoutPath(err error) string {
	var about *fs.PathError
	if errors.As(err, &about) {
		return about.Err.Error()
	}
	return err.Error()
}

// written says that it works again.
func (w *writer) written() {
	if w.said != "" {
		w.options.Log.Info().Time("since", w.noted.Since).Int("judgements", w.noted.Judgements).Msg("what is judged is recorded again; some of it is missing")
	}
	w.said = ""
	w.noted = recording.Gap{}
}

// tidy removes what is too old, and the oldest files until the others have room for one more.
func (w *writer) tidy(now time.Time) {
	files, err := recording.Files(w.options.Dir)
	if err != nil {
		w.options.Log.Warn().Err(err).Msg("old recordings can't be removed")
		return
	}
	var total int64
	for i := range files {
		total += files[i].Size
	}
	for i, f := range files {
		next := now
		if i+1 < len(files) {
			next = files[i+1].Begun
		}
		if now.Sub(next) <= w.options.Keep && total+w.options.FileBytes <= w.options.MaxBytes {
			return
		}
		if err := os.Remove(f.Path); err != nil {
			w.options.Log.Warn().Err(err).Msg("an old recording can't be removed")
			return
		}
		total -= f.Size
	}
}
