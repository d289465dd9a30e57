package disk

import (
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

var errUnwritten = errors.New("the state was not written")

func unwritten(err error) error { return text.Worded(err.Error(), errUnwritten, err) }

// writeChanges writes the files that differ from what was loaded, and returns the contents that both have then.
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

// checkReadable refuses contents that could not be read again: no request may make the state files corrupt.
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

// replace writes the files that are not nil, all or none: under temporary names, synced, then renamed, envs.json first.
// Killed between the two, there are attachments of an environment that doesn't exist, which the next reader removes. An
// error of the disk after a rename says that the change may have been made.
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
	visible := false // a part of the change
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
