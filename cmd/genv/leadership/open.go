package leadership

import (
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Election returns how a run takes part in an election; nil if it doesn't.
func (config Config) Election() func(election.Candidate) *enforcement.Election {
	if config.Key == "" {
		return nil
	}
	return func(self election.Candidate) *enforcement.Election {
		client := etcd.New(config.Etcd)
		return &enforcement.Election{
			Elector: election.New(election.Options{Cluster: client, Key: config.Key, Self: self, Clock: election.SinceBoot, Now: time.Now}),
			Store:   client, Key: config.Key, Close: client.Close,
			Register: func(self election.Registration, refused func(error)) *election.Registrar {
				return election.NewRegistrar(client, config.Key, self, refused)
			},
		}
	}
}
