package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const maxFileSize = 8 << 20 // bytes of a state file; 10,000 environments take about half

var stateFiles = [...]state.File{state.Envs, state.Devices}

func (t *transaction) load(ctx context.Context) {
	t.onDisk = state.Contents{}
	for _, file := range stateFiles {
		err := t.loadFile(ctx, file)
		switch {
		case errors.Is(err, fs.ErrNotExist) && t.isLost(file):
			err = t.dir.lost(file)
		case errors.Is(err, fs.ErrNotExist):
			err = nil
		case errors.Is(err, folder.ErrUnsafe):
			err = fmt.Errorf("%w, or begin again with %s", err, resetCommand(file))
		}
		t.errs[file] = err
	}
	t.markFiles()
}

// isLost says that a missing file was in root's folder, or root saw it since boot.
func (t *transaction) isLost(file state.File) bool {
	if file == state.Envs {
		return t.dir.owned || t.seen.At != 0
	}
	return !t.dir.owned && t.seen.Registered
}

func (d stateDir) lost(file state.File) error {
	st, err := d.Status()
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s is missing, in a folder of %s: what it said is unknown;"+
		" restore it from a backup, or begin again with %s",
		ErrLost, d.Join(file.String()), system.DescribeUser(st.Uid), resetCommand(file))
}

func resetCommand(file state.File) string {
	return "`sudo genv " + strings.TrimSuffix(file.String(), ".json") + " --reset`"
}

// markFiles maps uids to accounts, as 1.4.3 doesn't, and calls Mark.
func (t *transaction) markFiles() {
	for i := range t.files.Environments {
		env := &t.files.Environments[i]
		if account, err := (proc.FS{}).Account(env.UID); err == nil && env.UID != snapshot.NoUID {
			env.UID = account
		}
	}
	if t.Mark != nil {
		t.Mark(&t.files)
	}
}

func (t *transaction) loadError() error { return cmp.Or(t.errs[:]...) }

// loadFile reads a file, repeatedly if needed: 1.4.3 writes in place, perhaps without the lock. Of devices.json it
// needs everything: a skipped attachment would look like none.
func (t *transaction) loadFile(ctx context.Context, file state.File) error {
	const attempts, pause = 5, 10 * time.Millisecond
	var before []byte
	var cause error
	for attempt := 1; ; attempt++ {
		data, st, err := t.dir.Read(file.String(), maxFileSize)
		if err != nil {
			return err
		}
		if attempt == 1 || !bytes.Equal(data, before) { // the same bytes give the same error
			named := len(t.files.Warnings)
			cause = t.files.Decode(file, data)
			if odd := t.files.Warnings[named:]; cause == nil && len(odd) > 0 && file == state.Devices {
				cause = errors.New(odd[0])
				t.files.Warnings = t.files.Warnings[:named]
			}
			if cause == nil {
				t.onDisk[file] = data
				return nil
			}
			before = data
		}
		t.step("unreadable " + file.String())
		if attempt < attempts {
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
			}
		}
		changed := time.Unix(st.Mtim.Unix()).In(t.Now().Location())
		return fmt.Errorf("%s: %w: %w; it belongs to %s and was last changed at %s: what it said is unknown;"+
			" restore it, or begin again with %s", t.dir.Join(file.String()), ErrCorrupt, cause,
			system.DescribeUser(st.Uid), changed.Format(time.DateTime), resetCommand(file))
	}
}

var errUnwritten = errors.New("the state was not written")

func unwritten(err error) error { return text.Worded(err.Error(), errUnwritten, err) }

func (t *transaction) writeChanges() (next state.Contents, err error) {
	var changed state.Contents
	for _, file := range stateFiles {
		if next[file], err = t.files.Encode(file); err != nil {
			return next, err
		}
		if next[file] == nil || state.Same(next[file], t.onDisk[file]) {
			continue
		}
		if err := checkReadable(file, next[file]); err != nil {
			return next, unwritten(err)
		}
		changed[file] = next[file]
	}
	return next, t.replace(changed)
}

// checkReadable refuses unreadable contents, so that no request can corrupt the state files.
func checkReadable(file state.File, data []byte) error {
	if len(data) > maxFileSize {
		return state.Refuse("%s would be larger than %d MiB", file, maxFileSize>>20)
	}
	var again state.Files
	err := again.Decode(file, data)
	if err == nil && len(again.Warnings) > 0 {
		err = fmt.Errorf("%w: %s", snapshot.ErrInvalid, again.Warnings[0])
	}
	if err != nil {
		return fmt.Errorf("refused to write %s: %w", file, err)
	}
	return nil
}

// replace writes the non-nil files, all or none: staged, synced, then renamed, envs.json first. If killed in between,
// the next reader removes attachments without an environment.
func (t *transaction) replace(next state.Contents) (err error) {
	var files []folder.Staged
	defer func() {
		if err != nil {
			t.dir.Discard(files...)
			err = unwritten(err)
		}
	}()
	for _, file := range stateFiles {
		if next[file] == nil {
			continue
		}
		staged, err := t.dir.Stage(file.String(), next[file], t.dir.mode(ownedMode), true)
		t.step("staged " + file.String())
		if err != nil {
			return err
		}
		files = append(files, staged)
	}
	visible := false // part of the change
	for _, staged := range files {
		if err = t.dir.Publish(staged); err != nil {
			break
		}
		visible = true
		t.step("renamed " + staged.Name)
	}
	if visible && err == nil {
		err = t.dir.Sync()
		t.step("synced")
	}
	if visible && err != nil {
		err = fmt.Errorf("%w: it is unknown whether the change was made; to ask for it again does no harm", err)
	}
	return err
}
