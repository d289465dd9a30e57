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
		campaign := func(key string, self election.Candidate) *election.Elector {
			return election.New(election.Options{Cluster: client, Key: key, Self: self, Clock: election.SinceBoot, Now: time.Now})
		}
		return &enforcement.Election{
			Elector: campaign(config.Key, self), Campaign: campaign,
			Store: client, Key: config.Key, Close: client.Close,
			Register: func(self election.Registration, refused func(error)) *election.Registrar {
				return election.NewRegistrar(client, config.Key, self, refused)
			},
		}
	}
}
