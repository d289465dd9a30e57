package disk

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const reservationsSchema = "genv.reservations/1"

type reservationNote struct {
	Schema       string                 `json:"schema"`
	Reservations []snapshot.Reservation `json:"reservations"`
}

// reservations are beside root's state files. Every user may read them, and only root's service writes them.
var reservations = folder.Note[reservationNote]{
	Name: "reservations.json", Max: maxFileSize, Mode: ownedMode, Durable: true, Invalid: snapshot.ErrInvalid,
	Check: func(n *reservationNote) error {
		if n.Reservations == nil {
			return errors.New("it has no list")
		}
		return folder.CheckSchema(n.Schema, reservationsSchema)
	},
}

// Reservations are those of this host, never nil; with an error they are unknown. It is fs.ErrNotExist where root
// doesn't own the state, or its service hasn't run yet.
func (s *Store) Reservations() ([]snapshot.Reservation, error) {
	dir, owner, err := s.openOwned()
	if err != nil || owner == nil {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	defer dir.Close()
	note, err := reservations.ReadIn(dir)
	if owner.Reserves && errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %s is lost: put it back from a backup; or stop the service, run `genv host handover`, and "+
			"start it, to begin without reservations", snapshot.ErrInvalid, dir.Join(reservations.Name))
	}
	return note.Reservations, err
}

// SaveReservations replaces them. Only root's service calls it.
func (s *Store) SaveReservations(list []snapshot.Reservation) error {
	if err := reservations.Write(s.OwnedPath(), reservationNote{reservationsSchema, list}); err != nil {
		return err
	}
	dir, owner, err := s.openOwned()
	if err != nil || owner == nil {
		return nil // they are saved all the same
	}
	defer dir.Close()
	if !owner.Reserves {
		owner.Reserves = true
		_ = dir.PutJSON(ownerFile, owner, ownedMode, true) // or the next time that they are saved
	}
	return nil
}
