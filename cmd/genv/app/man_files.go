package app

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"
)

// WriteAll writes a man page for a command and for each one below it, as NAME.1 into an
// existing folder. Hidden commands have none.
func WriteAll(dir string, cmd *cli.Command, name, version string) error {
	page := PageOf(cmd, name)
	var text bytes.Buffer
	if err := WriteMan(&text, &page, version); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, page.FileName()+".1"), text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write man page: %w", err)
	}
	for _, sub := range cmd.Subcommands {
		if sub.Hidden {
			continue
		}
		if err := WriteAll(dir, sub, name+" "+sub.Name, version); err != nil {
			return err
		}
	}
	return nil
}
