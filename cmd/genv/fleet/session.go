package fleet

import (
	"context"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// startOver makes the controller's conversations sessions of an SSH client.
func startOver(client *sshclient.Client) agent.Start {
	return func(ctx context.Context, host remote.Host, command remote.Command) (agent.Session, error) {
		s, err := client.Start(ctx, host, command)
		if err != nil {
			return nil, err
		}
		return session{s}, nil
	}
}

// session is an SSH session as the controller sees it.
type session struct{ *sshclient.Session }

func (s session) Read(p []byte) (int, error)  { return s.Stdout.Read(p) }
func (s session) Write(p []byte) (int, error) { return s.Stdin.Write(p) }

func (s session) Close() error {
	s.Session.Close()
	return nil
}
