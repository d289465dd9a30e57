package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/recording"
	"github.com/seed-3119e985/genv/remote/recording/replay"
	"github.com/seed-3119e985/genv/snapshot"
)

// program is genv as this command sees it.
type program struct{ command.Program }

// Command is `genv policy try`.
func Command(with command.Program) *cli.Command {
	p := &program{with}
	return &cli.Command{
		Name:  "try",
		Usage: "say what a policy would have found, ended and detached, against what was",
		Flags: append(enforcement.RuleFlags(),
			&cli.StringFlag{Name: "since", Value: "7d", Usage: "from this `TIME` on, such as 7d or 2026-11-01; with --recording from its beginning"},
			&cli.StringFlag{Name: "until", DefaultText: "now", Usage: "until this `TIME`, such as 1d or 2026-12-01"},
			&cli.StringSliceFlag{Name: "user", Usage: "only this `USER`; several values allowed"},
			&cli.IntFlag{Name: "cases", Value: 5, Usage: "print the first `N` cases in which the policies differ; 0 for none"},
			&cli.StringFlag{Name: "state-dir", DefaultText: "that of the service, or one's own", Usage: "the `DIR` of the controller"},
			&cli.StringFlag{Name: "recording", DefaultText: "that in --state-dir", Usage: "read this `PATH`: a folder of recordings, or one file"},
			command.FormatFlag("tui", "csv", "json"),
			&cli.BoolFlag{Name: "no-header", Usage: "leave out the names of the columns"},
		),
		Action: p.try,
	}
}

// request is what the flags say.
type request struct {
	policy       *policy.File
	since, until time.Time
	users        []snapshot.Username
	cases        int
	output       render.Output
	folders      [][]recording.File // of a controller
}

func (p *program) read(c *cli.Context) (r request, err error) {
	if r.output.Format, err = command.FormatOf(c, "tui", "csv", "json"); err != nil {
		return r, err
	}
	if r.policy, err = enforcement.ReadPolicy(c); err != nil {
		return r, err
	}
	for _, user := range c.StringSlice("user") {
		r.users = append(r.users, snapshot.Username(user))
	}
	r.output.NoHeader, r.cases = c.Bool("no-header"), c.Int("cases")
	if r.cases < 0 {
		return r, command.UsageError("--cases %d: write 0 or more", r.cases)
	}
	if err := p.readTime(c, &r); err != nil {
		return r, err
	}
	if r.folders, err = p.folders(c); err != nil {
		return r, err
	}
	for i, files := range r.folders {
		r.folders[i] = recording.During(files, r.since, r.until)
	}
	return r, nil
}

// readTime reads from when until when. A recording that is named is tried as a whole otherwise.
func (p *program) readTime(c *cli.Context, r *request) (err error) {
	named := c.String("recording") != ""
	if !named || command.IsGiven(c, "since") {
		if r.since, err = p.Ago("since", c.String("since")); err != nil {
			return err
		}
	}
	if r.until, err = p.Ago("until", c.String("until")); err != nil {
		return err
	}
	if r.until.IsZero() {
		r.until = p.Now()
		if named {
			r.until = r.until.AddDate(100, 0, 0) // the clock of its controller may have been ahead
		}
	}
	if !r.until.After(r.since) {
		return command.UsageError("--since %s is not before --until %s", r.since.Format(time.DateTime), r.until.Format(time.DateTime))
	}
	return nil
}

func (p *program) try(c *cli.Context) error {
	r, err := p.read(c)
	if err != nil {
		return err
	}
	d, err := p.document(c.Context, &r)
	if err != nil {
		return err
	}
	switch r.output.Format {
	case "json":
		return render.WriteJSON(p.Out, d)
	case "csv":
		return writeCSV(p.Out, d, r.output)
	}
	return p.writeText(d, r.output)
}

// document replays the recordings, one after the other.
func (p *program) document(ctx context.Context, r *request) (*Document, error) {
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	progress := render.NewProgress(p.Err)
	defer progress.End()
	var result replay.Result
	var summary recording.Summary
	for _, files := range r.folders {
		trial := replay.New(r.policy, r.since, r.until)
		hour := ""
		read, err := recording.Read(files, func(s *recording.Step) error {
			if now := s.Time.Local().Format(shortHour); now != hour {
				hour = now
				progress.Note("Judging what was judged at " + hour + " …")
			}
			return cmp.Or(ctx.Err(), trial.Step(s))
		})
		if err != nil {
			return nil, err
		}
		one := trial.Result()
		result.Add(&one)
		summary.Add(&read)
	}
	if result.Judgements == 0 {
		return nil, p.nothing(r, &summary)
	}
	return newDocument(r, &result, &summary), nil
}

// gcPercent has less time go into freeing memory: most of what a judgement makes is garbage at once.
const gcPercent = 300

// nothing says why there is nothing to try a policy with.
func (p *program) nothing(r *request, summary *recording.Summary) error {
	when := ""
	if !r.since.IsZero() {
		when = fmt.Sprintf(" from %s to %s", r.since.Format(shortTime), r.until.Format(shortTime))
	}
	for _, damage := range summary.Damage {
		return command.UsageError("nothing is recorded%s that can be read: %s: %w", when, damage.Path, damage.Err)
	}
	return command.UsageError("nothing is recorded%s; genv remote enforce --record on records what it judges", when)
}

const (
	shortTime = "2006-01-02 15:04"
	shortHour = "2006-01-02 15:00"
)

// folders are the files of the recording that is named, or of the only controller that has one.
func (p *program) folders(c *cli.Context) ([][]recording.File, error) {
	if path := c.String("recording"); path != "" {
		return filesIn(path)
	}
	dirs := []string{c.String("state-dir")}
	if dirs[0] == "" {
		dirs = enforcement.ControllerDirs(p.Getenv)
	}
	var found [][]string
	for _, dir := range dirs {
		paths, err := recordingsOf(dir)
		if err != nil {
			return nil, permission(err)
		}
		if len(paths) > 0 {
			found = append(found, paths)
		}
	}
	switch {
	case len(found) > 1:
		return nil, command.UsageError("there are %s: name one of them with --recording DIR", strings.Join(slices.Concat(found...), " and "))
	case len(found) == 0 && len(dirs) == 0:
		return nil, command.UsageError("no controller has run here: name its folder with --state-dir DIR, or a recording with --recording PATH")
	case len(found) == 0:
		return nil, command.UsageError("there is no recording in %s: genv remote enforce --record on records what it judges", strings.Join(dirs, " or "))
	}
	return filesIn(found[0]...)
}

// recordingsOf is the folder of the recording of a controller, if it has one.
func recordingsOf(dir string) (found []string, err error) {
	path := filepath.Join(dir, recording.FolderName)
	switch _, err := os.Stat(path); {
	case err == nil:
		return []string{path}, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, err
	}
	return nil, nil
}

// filesIn are the files at each of the paths.
func filesIn(paths ...string) (folders [][]recording.File, err error) {
	for _, path := range paths {
		files, err := filesAt(path)
		if err != nil {
			return nil, err
		}
		folders = append(folders, files)
	}
	return folders, nil
}

// filesAt are the files of a folder, or one file.
func filesAt(path string) ([]recording.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		return []recording.File{{Path: path, Size: info.Size()}}, nil
	}
	var files []recording.File
	if err == nil {
		files, err = recording.Files(path)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, permission(err)
	}
	if err != nil {
		return nil, command.UsageError("%w", err)
	}
	if len(files) == 0 {
		return nil, command.UsageError("there are no recordings (*%s) in %s", recording.Suffix, path)
	}
	return files, nil
}

func permission(err error) error {
	return command.UsageError("%w: run this as root or as the controller's account: sudo -u genv genv policy try …", err)
}
