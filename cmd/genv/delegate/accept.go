package delegate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Accept checks in genv-remote that the genv that started it is of the same version. The
// error is for people, and ends genv-remote before it has done anything.
func Accept(version string) error {
	genv, started := os.LookupEnv(versionVariable)
	if err := os.Unsetenv(versionVariable); err != nil { // what this program starts may be another genv
		return err
	}
	if !started {
		return errors.New("genv-remote is started by genv: write `genv remote …`")
	}
	if genv == version {
		return nil
	}
	self, _ := os.Executable() // the path by which genv found it
	return fmt.Errorf("this is genv %s, but %s is of version %s; install both from one package", genv, self, version)
}

// versionTimeout is how long `genv version` may take.
const versionTimeout = 10 * time.Second

// Genv is the path of the genv that belongs to this genv-remote, for hosts. It fails if that
// is missing, or of another version, as during an upgrade.
func Genv(ctx context.Context, version string) (string, error) {
	path, err := find("genv", "../../bin")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "version").Output()
	if err != nil {
		return "", fmt.Errorf("%s version: %w", path, err)
	}
	if found := strings.TrimSpace(string(out)); found != version {
		return "", fmt.Errorf("%s is of version %s, but genv-remote of %s; install both from one package", path, found, version)
	}
	return path, nil
}
