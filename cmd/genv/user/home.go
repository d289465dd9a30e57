package user

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) homeCommand() *cli.Command {
	quiet := false
	return &cli.Command{
		Name:   "home",
		Usage:  "print the folder in which configuration is saved",
		Flags:  []cli.Flag{command.Bool(&quiet, "quiet,q", "print nothing if there is none, and exit with 0")},
		Action: func(*cli.Context) error { return p.printHome(quiet) },
	}
}

func (p *program) printHome(quiet bool) error {
	dir, err := p.home()
	if errors.Is(err, errNoHome) && quiet {
		return nil
	}
	if err == nil {
		_, err = fmt.Fprintln(p.Out, text.PrintableLines(dir))
	}
	return err
}

// errNoHome is 1.4.3's text, which ends with an empty line when printed.
//
//nolint:revive,staticcheck // its words, as they are
var errNoHome = errors.New(`Could not find any Genv configuration directory.

Create a directory named '.genv' under one of the following directories:
  1) Current working directory (i.e. $PWD)
  2) Home directory (i.e. $HOME)
`)

// home is the folder .genv of the working directory, or of the user's home. It must not be a link, which could lead
// elsewhere, and it must belong to the user, so that no other user can configure this one's environments.
func (p *program) home() (string, error) {
	working, _ := os.Getwd() // "" if it was removed
	for _, parent := range []string{working, p.Getenv("HOME")} {
		if !filepath.IsAbs(parent) {
			continue
		}
		dir := filepath.Join(parent, ".genv")
		info, err := os.Lstat(dir)
		if err == nil && info.IsDir() && ownedBy(info, os.Getuid()) {
			return dir, nil
		}
	}
	return "", errNoHome
}

func ownedBy(info fs.FileInfo, uid int) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int64(stat.Uid) == int64(uid)
}

// loadSettings reads the files of a .genv folder: one for each setting, named
// after it, with its value on the only line.
func loadSettings(dir string, config *snapshot.EnvConfig, which []environment.Configurable) error {
	for _, s := range which {
		text, err := readSetting(filepath.Join(dir, s.Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = s.Set(config, text)
		}
		if err != nil {
			return fmt.Errorf("the saved configuration in %s: %w", filepath.Join(dir, s.Name), err)
		}
	}
	return nil
}

// maxSetting is more than any value takes, in bytes.
const maxSetting = 4096

func readSetting(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxSetting+1))
	if err == nil && len(data) > maxSetting {
		err = errors.New("the file is too long")
	}
	return strings.TrimSuffix(string(data), "\n"), err
}

// saveSettings writes them; a setting without a value has no file.
func saveSettings(dir string, config *snapshot.EnvConfig, which []environment.Configurable) error {
	for _, s := range which {
		path, text := filepath.Join(dir, s.Name), s.Get(config)
		if text == "" {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		if err := folder.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			return fmt.Errorf("save the configuration: %w", err)
		}
	}
	return nil
}
