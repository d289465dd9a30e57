package sharding

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/leadership"
	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/caps"
	"github.com/seed-3119e985/genv/remote/controller/statedir"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/shards"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Parts are what each shard has of its own.
type Parts struct {
	Hosts       []remote.Host
	Enforcement enforcement.Config
	Leadership  leadership.Config
	Listeners   listeners.Config
	Log         zerolog.Logger
}

// Divide leaves of a configuration what is this process's shard: its hosts, an election and a state
// folder of its own, and its own sockets and ports.
func (config Config) Divide(p *command.Program, parts *Parts) {
	if config.Own == nil {
		return
	}
	parts.Enforcement.Division = config.division(parts.Leadership.Key, parts.Hosts)
	parts.Enforcement.TakeOver = parts.Enforcement.TakeOver && !config.Again
	parts.Hosts = config.Hosts(parts.Hosts)
	parts.Leadership.Key = shards.Key(parts.Leadership.Key, *config.Own)
	if dir := parts.Enforcement.ControllerDir(p.Getenv); dir != "" {
		parts.Enforcement.StateDir = filepath.Join(dir, "shards", fmt.Sprintf("%02d", *config.Own))
	}
	parts.Listeners = parts.Listeners.ForShard(*config.Own)
	parts.Log = parts.Log.With().Int("shard", *config.Own).Logger()
}

// Start runs a process for each shard that this controller has, until ctx ends. read reads the
// configuration again.
func Start(ctx context.Context, p *command.Program, config Config, parts *Parts, read func() (Parts, error)) error {
	dir := parts.Enforcement.ControllerDir(p.Getenv)
	if dir == "" {
		return command.UsageError("--shards needs a state folder: add --state-dir DIR")
	}
	if parts.Enforcement.Interval > caps.MaxEvery {
		return command.UsageError("--shards with --interval %s: the longest interval is %s, since older data isn't counted for caps across shards",
			text.FormatDuration(parts.Enforcement.Interval), text.FormatDuration(caps.MaxEvery))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	store, err := statedir.Open(dir)
	if store != nil {
		defer store.Close()
	}
	if err != nil {
		return command.UsageError("--state-dir: %w", err)
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	id := ID(name, dir)
	removeLeftovers(id)
	genv, err := os.Executable()
	if err != nil {
		return err
	}
	client := etcd.New(parts.Leadership.Etcd)
	defer client.Close()
	hosts := func() ([]remote.Host, error) {
		next, err := read()
		return next.Hosts, err
	}
	registered := registration(store, id, name)
	registered.Version, registered.Shards = p.Version, config.Count
	return Run(ctx, Options{
		Config: config, Cluster: client, Key: parts.Leadership.Key, Hosts: hosts,
		ID: id, Name: registered.Name, Registered: registered,
		Program: genv, Args: os.Args[1:], Out: p.Out, Prefix: parts.Enforcement.Format != "json",
		Clock: election.SinceBoot, Log: parts.Log,
	})
}

// registration is what etcd remembers of this controller. Its ID is that of the folder, as without
// --shards: a controller that was killed, and runs with --shards since, isn't lost.
func registration(store *statedir.Store, id, machine string) election.Registration {
	folder, _ := store.ID() // hosts never get this id: if it can't be read, the other one will do
	self := election.Candidate{ID: cmp.Or(folder, id), Name: fmt.Sprintf("%s, process %d", machine, os.Getpid())}
	return election.Registration{Candidate: self, Host: machine, PID: os.Getpid(), Since: time.Now().Truncate(time.Second).UTC()}
}

// ID is that of the controller with a state folder, an absolute path, on a machine.
func ID(machine, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("%s-%x", machine, sum[:4])
}
