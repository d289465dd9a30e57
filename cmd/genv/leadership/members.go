package leadership

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// CheckMembers asks each member of etcd once, before the election: one that doesn't answer is a warning,
// as it may be started later, and members of different clusters are an error, since each cluster
// would have a leader of its own.
func (config Config) CheckMembers(ctx context.Context, log zerolog.Logger) error {
	if config.Key == "" {
		return nil
	}
	client := etcd.New(config.Etcd)
	defer client.Close()
	members := client.Members(ctx, config.Key)
	var silent []error
	clusters := map[uint64][]string{}
	for _, m := range members {
		switch {
		case m.Err == nil:
			clusters[m.Cluster] = append(clusters[m.Cluster], m.Address)
		case !etcd.Refused(m.Err): // what it refuses, the election says
			silent = append(silent, m.Err)
		}
	}
	if len(silent) > 0 && ctx.Err() == nil {
		log.Warn().Errs("members", silent).Msgf("%d of %d members of etcd don't answer. Look at `%s`", len(silent), len(members), config.Health())
	}
	if len(clusters) > 1 {
		return command.UsageError("--leader: these are members of different clusters, each of which would have a leader of its own: %s; name those of one", shown(clusters))
	}
	return nil
}

// shown lists members by cluster, with the ids as `etcdctl endpoint status` has them.
func shown(clusters map[uint64][]string) string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(clusters)) {
		parts = append(parts, fmt.Sprintf("%s of %x", strings.Join(clusters[id], " and "), id))
	}
	return strings.Join(parts, ", ")
}

// Health is the command by which an operator sees how the members are. It asks for the password of
// the user, if there is one.
func (config Config) Health() string {
	args := []string{"etcdctl", "--endpoints", strings.Join(config.Etcd.Endpoints, ",")}
	for _, flag := range [][2]string{{"--cacert", config.files.ca}, {"--cert", config.files.cert}, {"--key", config.files.key}, {"--user", config.Etcd.User}} {
		if flag[1] != "" {
			args = append(args, flag[0], flag[1])
		}
	}
	return remote.Command{Args: append(args, "endpoint", "health")}.ShellLine()
}
