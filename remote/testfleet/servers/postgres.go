package servers

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const postgresPrograms = "/usr/lib/postgresql/*/bin" // where Debian has those of PostgreSQL

// RequirePostgres skips the test where there is no PostgreSQL or this isn't root: the server refuses to run
// as root, and runs as postgres.
func RequirePostgres(t testing.TB) {
	t.Helper()
	proctest.NeedRoot(t)
	found, _ := filepath.Glob(filepath.Join(postgresPrograms, "postgres"))
	_, err := user.Lookup("postgres")
	proctest.Need(t, len(found) > 0 && err == nil, "PostgreSQL: `make test` as root installs it on Debian")
}

// PostgresServer is a running server.
type PostgresServer struct {
	Address string // that on which it listens, with the port

	t       testing.TB
	bin     string // the folder of the programs
	dir     string // the server's, and that of a file with the password
	account *syscall.Credential
	cmd     *exec.Cmd // nil while it isn't running
}

// StartPostgres starts a server in a folder, or in one of its own for "". It ends with the test.
func StartPostgres(t testing.TB, dir string) *PostgresServer {
	t.Helper()
	RequirePostgres(t)
	found := proctest.Try(filepath.Glob(filepath.Join(postgresPrograms, "postgres"))).OK(t)
	slices.Sort(found)
	if dir == "" {
		dir = proctest.PublicDir(t, 0o700)
	}
	s := &PostgresServer{
		t: t, bin: filepath.Dir(found[len(found)-1]), dir: dir, account: credential(t),
		Address: fmt.Sprintf("127.%d.%d.%d:5432", 128+rand.IntN(126), 1+rand.IntN(250), 1+rand.IntN(250)),
	}
	require.NoError(t, os.Chown(dir, int(s.account.Uid), int(s.account.Gid)))
	require.NoError(t, os.Chmod(dir, 0o711)) //nolint:gosec // the file with the password is private
	require.NoError(t, os.WriteFile(s.file("password"), []byte("secret: word\n"), 0o600))
	require.NoError(t, os.WriteFile(s.file("pgpass"), []byte("*:*:*:genv:secret\\: word\n"), 0o600))
	require.NoError(t, os.Chown(s.file("password"), int(s.account.Uid), int(s.account.Gid)))
	init := s.command("initdb", "-D", s.file("data"), "-U", "genv", "-A", "scram-sha-256", "--pwfile", s.file("password"), "--no-locale", "-E", "UTF8", "--no-sync")
	out, err := init.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

func credential(t testing.TB) *syscall.Credential {
	t.Helper()
	account := proctest.Try(user.Lookup("postgres")).OK(t)
	uid := proctest.Try(strconv.ParseUint(account.Uid, 10, 32)).OK(t)
	gid := proctest.Try(strconv.ParseUint(account.Gid, 10, 32)).OK(t)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *PostgresServer) file(name string) string { return filepath.Join(s.dir, name) }

func (s *PostgresServer) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.account, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// URL is that of the database, in which the user genv may do everything. The password is in a file that it names.
func (s *PostgresServer) URL() string { return s.At(s.Address) }

// At is URL with an address that leads to that of the server.
func (s *PostgresServer) At(address string) string {
	return "postgres://genv@" + address + "/postgres?sslmode=disable&passfile=" + s.file("pgpass")
}

// Kill ends the server with SIGKILL, and waits until its other processes have noticed that and ended.
func (s *PostgresServer) Kill() {
	if s.cmd == nil {
		return
	}
	others, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.cmd.Process.Pid)) // none if it has ended
	_ = s.cmd.Process.Kill()                                                                 // it may have ended
	_ = s.cmd.Wait()
	s.cmd = nil
	deadline := time.Now().Add(startWithin)
	for _, other := range bytes.Fields(others) {
		pid := proctest.Try(strconv.Atoi(string(other))).OK(s.t)
		for !ended(pid) && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// Restart starts a server that was killed, with further settings such as
// default_transaction_read_only=on, and waits until it answers.
func (s *PostgresServer) Restart(settings ...string) {
	s.t.Helper()
	host, port, _ := bytes.Cut([]byte(s.Address), []byte(":"))
	args := []string{"-D", s.file("data"), "-c", "listen_addresses=" + string(host), "-p", string(port), "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB"}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	for deadline := time.Now().Add(startWithin); ; time.Sleep(50 * time.Millisecond) {
		if s.try(args) {
			return
		}
		if text, _ := os.ReadFile(s.file("log")); time.Now().After(deadline) {
			s.t.Fatalf("PostgreSQL doesn't answer: %s", text)
		}
	}
}

// try starts the server, unless it runs, and asks it. While processes of a killed server still
// run, the next one ends at once.
func (s *PostgresServer) try(args []string) bool {
	if s.cmd == nil {
		log := proctest.Try(os.OpenFile(s.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)).OK(s.t)
		defer log.Close()
		s.cmd = s.command("postgres", args...)
		s.cmd.Stdout, s.cmd.Stderr = log, log
		require.NoError(s.t, s.cmd.Start())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if conn, err := pgx.Connect(ctx, s.URL()); err == nil {
		_ = conn.Close(ctx) // it answered
		return true
	}
	if syscall.Kill(s.cmd.Process.Pid, 0) != nil || ended(s.cmd.Process.Pid) {
		s.Kill()
	}
	return false
}

// ended reports whether a process is a zombie.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// Do runs statements.
func (s *PostgresServer) Do(statements string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	conn := proctest.Try(pgx.Connect(ctx, s.URL())).OK(s.t)
	defer func() { _ = conn.Close(ctx) }()
	proctest.Try(conn.Exec(ctx, statements)).OK(s.t)
}
