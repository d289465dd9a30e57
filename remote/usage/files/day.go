package files

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const (
	daySchema = "genv.usage.day/1"
	maxFile   = 64 << 20
)

// day is the file of a day.
type day struct {
	Schema string `json:"schema"`
	// Whole says that the sums are of the day as a whole, and of no hours any more.
	Whole bool  `json:"whole,omitempty"`
	Sums  []sum `json:"sums"`
}

// sum is a usage.Sum with its key.
type sum struct {
	Hour    int64      `json:"hour"`
	Kind    usage.Kind `json:"kind"`
	Name    string     `json:"name"`
	Amounts []int64    `json:"amounts"` // in the order of amountsOf
	Peak    int64      `json:"peak"`
}

// amountsOf are the amounts in the order of the files. New ones are added at the end.
func amountsOf(a *usage.Amounts) []*int64 {
	return []*int64{&a.Attached, &a.Used, &a.Computing, &a.Idle, &a.Unknown, &a.Unmeasured, &a.Memory, &a.Findings, &a.Terminated, &a.Detached}
}

// sums are what a day has, by what it is about.
type sums map[usage.SumKey]usage.Sum

func (s sums) add(key usage.SumKey, more *usage.Sum) {
	total := s[key]
	total.Add(more)
	s[key] = total
}

// nameOf is the name of the file of a day, which begins at a moment.
func nameOf(start int64, in *time.Location) string {
	return time.Unix(start, 0).In(in).Format(time.DateOnly) + ".json"
}

// source reads the files of a folder, by their names.
type source func(name string) ([]byte, error)

// in reads the files of a folder that only root can have written.
func in(dir *folder.Folder) source {
	return func(name string) ([]byte, error) {
		data, _, err := dir.Read(name, maxFile)
		return data, err
	}
}

// at reads the files of a folder that a user may enter, and not list.
func at(path string) source {
	return func(name string) ([]byte, error) {
		f, err := os.OpenFile(filepath.Join(path, name), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxFile))
	}
}

// readDay reads a day. One without a file is empty.
func readDay(read source, name string) (all sums, whole bool, err error) {
	all = make(sums)
	data, err := read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return all, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	var d day
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, false, fmt.Errorf("%s: %w: %w", name, store.ErrDamaged, err)
	}
	if d.Schema != daySchema {
		return nil, false, fmt.Errorf("%s: %w: it is %q", name, store.ErrNewer, d.Schema)
	}
	for i := range d.Sums {
		var one usage.Sum
		for j, at := range amountsOf(&one.Amounts) {
			if j < len(d.Sums[i].Amounts) {
				*at = d.Sums[i].Amounts[j]
			}
		}
		one.Peak = d.Sums[i].Peak
		all.add(usage.SumKey{Hour: d.Sums[i].Hour, Kind: d.Sums[i].Kind, Name: d.Sums[i].Name}, &one)
	}
	return all, d.Whole, nil
}

// encode is the content of the file of a day.
func (s sums) encode(whole bool) ([]byte, error) {
	d := day{Schema: daySchema, Whole: whole, Sums: make([]sum, 0, len(s))}
	for key := range s {
		one := s[key]
		line := sum{Hour: key.Hour, Kind: key.Kind, Name: key.Name, Peak: one.Peak}
		for _, at := range amountsOf(&one.Amounts) {
			line.Amounts = append(line.Amounts, *at)
		}
		d.Sums = append(d.Sums, line)
	}
	slices.SortFunc(d.Sums, func(a, b sum) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return json.Marshal(&d)
}

// wholeDay are the sums of a day without its hours.
func (s sums) wholeDay(start int64) sums {
	whole := make(sums)
	for key := range s {
		one := s[key]
		key.Hour = start
		whole.add(key, &one)
	}
	return whole
}

// translated adds the errors of package store.
func translated(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return err
}
