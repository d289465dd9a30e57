package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/leadership"
	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Etcd is how etcd is, apart from what it knows of the election.
type Etcd struct {
	Members int `json:"members"` // in --leader
	// Silent are why members don't answer, one line for each that doesn't.
	Silent []string `json:"silent"`
	// OutOfSpace says that etcd's space is used up.
	OutOfSpace bool `json:"out_of_space"`
	// Error is why etcd doesn't say which controller leads; empty if it does.
	Error string `json:"error,omitempty"`

	refused bool   // the Error is what etcd answered
	health  string // the command by which an operator looks at members
}

// etcdTimeout is how long etcd may take, with all of its members.
const etcdTimeout = 10 * time.Second

// askEtcd asks etcd for the election and, meanwhile, how etcd is.
func (d *Document) askEtcd(ctx context.Context, config *leadership.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	client := etcd.New(config.Etcd)
	defer client.Close()
	d.Etcd = &Etcd{Members: len(config.Etcd.Endpoints), Silent: []string{}, health: config.Health()}
	var asked sync.WaitGroup
	asked.Go(func() {
		for _, m := range client.Members(ctx, config.Key) {
			if m.Err != nil && !etcd.Refused(m.Err) { // what it refuses, the answer about the election says
				d.Etcd.Silent = append(d.Etcd.Silent, m.Err.Error())
			}
		}
	})
	asked.Go(func() { d.Etcd.OutOfSpace, _ = client.OutOfSpace(ctx) }) // or it isn't known
	d.Election, err = electionAt(ctx, client, config.Key)
	asked.Wait()
	if err != nil {
		d.Etcd.Error, d.Etcd.refused = err.Error(), etcd.Refused(err)
	}
	return err
}

// electionAt asks for the election with a key.
func electionAt(ctx context.Context, client *etcd.Client, key string) (*Election, error) {
	leader, epoch, cluster, err := election.LeaderOf(ctx, client, key)
	if err != nil {
		return nil, err
	}
	registered, err := election.Registered(ctx, client, key)
	if err != nil {
		return nil, err
	}
	written, err := handover.Written(ctx, client, key)
	if err != nil && !errors.Is(err, handover.ErrNone) {
		return nil, err
	}
	return electionOf(key, leader, epoch, cluster, registered, written), nil
}

// failed reports whether etcd was asked for the election, and didn't say anything of it.
func (e *Etcd) failed() bool { return e != nil && e.Error != "" }

// judgeEtcd says what is not in order with etcd itself.
func (d *Document) judgeEtcd() {
	e := d.Etcd
	if e == nil {
		return
	}
	if e.failed() {
		next := "look at `" + e.health + "`"
		if e.refused {
			next = "correct --leader and the flags with it, or what etcd's user may read"
		}
		d.add("etcd doesn't say which controller leads: "+e.Error, next)
		return
	}
	if e.OutOfSpace {
		d.add("etcd's space is used up: no other controller can take over, and the memory of the leader isn't kept", "free it: `"+e.freeSpace()+"`")
	}
	if len(e.Silent) > 0 {
		d.add(fmt.Sprintf("%d of %d members of etcd don't answer: %s", len(e.Silent), e.Members, strings.Join(e.Silent, "; ")), "look at `"+e.health+"`: without a majority of its members no controller can lead")
	}
}

// freeSpace is what an operator enters to free etcd's space and to end the alarm.
func (e *Etcd) freeSpace() string {
	return `e() { ` + strings.TrimSuffix(e.health, " endpoint health") + ` "$@"; }; ` +
		`e compact --physical $(e endpoint status -w json | grep -o '"revision":[0-9]*' | head -n 1 | cut -d: -f2) && e defrag && e alarm disarm`
}
