package user_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestCrowd: shells of several users, in bash and zsh, want more devices than there are, again and again. No device is
// given away twice, and in the end all are free.
func TestCrowd(t *testing.T) {
	const people, rounds = 8, 4
	s := newStation(t)
	var shells []*terminal
	for i := range people {
		kind := []string{"bash", "zsh"}[i/4%2]
		shells = append(shells, s.person(fmt.Sprint("user", i%4), alice+i%4).open(kind))
	}
	var group sync.WaitGroup
	failures := make(chan string, people*rounds)
	for _, shell := range shells {
		group.Go(func() {
			for range rounds {
				said := shell.say("genv activate && genv attach --count 2 2>/dev/null; mine=$CUDA_VISIBLE_DEVICES; " +
					"[ \"$mine\" = -1 ] || [ \"$mine\" = \"$(genv devices find)\" ] || echo differs; genv attach --index 0 2>/dev/null; genv detach && genv deactivate")
				if said.text != "" || said.status != "" {
					failures <- fmt.Sprintf("%q [%s]", said.text, said.status)
				}
			}
		})
	}
	stop := make(chan struct{})
	twice := make(chan int, 1)
	go func() { twice <- s.watchDevices(stop) }()
	group.Wait()
	close(stop)
	require.Zero(t, <-twice, "a device was attached to two environments at once")
	close(failures)
	for failure := range failures {
		t.Error(failure)
	}
	require.Equal(t, genvtest.Result{Out: "0,\n1,\n2,\n3,\n4,\n5,\n6,\n7,\n"}, s.admin().run("genv", "devices", "query", "--query", "index", "eids"))
	require.Equal(t, genvtest.Result{Out: "ID,USER,NAME,CREATED,PID(S)\n"}, s.admin().run("genv", "envs", "--format", "csv"))
}

// watchDevices counts how often a device is seen attached twice.
func (s *station) watchDevices(stop <-chan struct{}) (seen int) {
	look := time.NewTicker(3 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case <-stop:
			return seen
		case <-look.C:
		}
		data := s.stateFiles()["devices.json"]
		devices, err := snapshot.DecodeDevices([]byte(data))
		if data != "" && err != nil {
			seen++
		}
		for _, d := range devices {
			if len(d.Attachments) > 1 {
				seen++
			}
		}
	}
}
