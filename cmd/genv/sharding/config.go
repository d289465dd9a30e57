package sharding

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/shards"
	"github.com/seed-3119e985/genv/snapshot"
)

// shardVariable says to a process which shard it has, such as 3 for the fourth one.
const shardVariable = "GENV_SHARD"

// againVariable says true to a process of a shard that had one before.
const againVariable = "GENV_SHARD_AGAIN"

// Config is what the flags say. The zero Config divides nothing.
type Config struct {
	Count int // of shards
	// Own is the shard of this process; nil for the process that starts those.
	Own *int
	// Again says that the shard had a process before. --take-over holds for one start: a later
	// process would take hosts back from who took them over since.
	Again bool
}

// Flags are those about shards.
func Flags() []cli.Flag {
	return []cli.Flag{&cli.IntFlag{Name: "shards", Usage: "divide the hosts into `N` shards, and these among all controllers with the same --leader that run now"}}
}

// ReadConfig reads Flags.
func ReadConfig(c *cli.Context, getenv func(string) string) (Config, error) {
	config := Config{Count: c.Int("shards")}
	switch {
	case !command.IsGiven(c, "shards"):
		return Config{}, nil
	case config.Count < 2 || config.Count > shards.MaxCount:
		return config, command.UsageError("--shards %d: write a number from 2 to %d", config.Count, shards.MaxCount)
	case c.Int("cycles") > 0:
		return config, command.UsageError("--shards has no end: leave out --cycles")
	case !command.IsGiven(c, "leader"):
		return config, command.UsageError("--shards needs --leader: the controllers find each other by etcd")
	}
	if text := getenv(shardVariable); text != "" {
		config.Again = getenv(againVariable) == "true"
		config.Own = new(int)
		if _, err := fmt.Sscanf(text, "%d", config.Own); err != nil || *config.Own < 0 || *config.Own >= config.Count {
			return config, command.UsageError("%s=%q: it is set by genv itself", shardVariable, text)
		}
	}
	return config, nil
}

// Divides reports whether this process starts one for each shard.
func (config Config) Divides() bool { return config.Count > 0 && config.Own == nil }

// Hosts are those of this process; all of them if it has no shard.
func (config Config) Hosts(all []remote.Host) (own []remote.Host) {
	if config.Own == nil {
		return all
	}
	for _, h := range all {
		if shards.Of(h.Name, config.Count) == *config.Own {
			own = append(own, h)
		}
	}
	return own
}

// division says how all hosts are divided, for the caps of users.
func (config Config) division(key string, all []remote.Host) *enforcement.Division {
	d := &enforcement.Division{Key: key, Shard: *config.Own, Hosts: make([]int, config.Count), Order: make(map[snapshot.Hostname]int, len(all))}
	for i, h := range all {
		d.Order[snapshot.Hostname(h.Name)] = i
		d.Hosts[shards.Of(h.Name, config.Count)]++
	}
	return d
}

// shardsWith are the shards that have hosts.
func (config Config) shardsWith(hosts []remote.Host) map[int]bool {
	with := make(map[int]bool, config.Count)
	for _, h := range hosts {
		with[shards.Of(h.Name, config.Count)] = true
	}
	return with
}

// Named is an error of this process, which says of which shard it is: those of all shards come
// in one place.
func (config Config) Named(err error) error {
	var exit *command.ExitError
	if err == nil || config.Own == nil || errors.As(err, &exit) && exit.Err == nil {
		return err // nothing is printed
	}
	return fmt.Errorf("shard %d: %w", *config.Own, err)
}
