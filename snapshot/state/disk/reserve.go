package disk

import (
	"errors"
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

// Reservations are those of this host, never nil; with an error they are unknown. The error is fs.ErrNotExist where
// root doesn't own the state, or where root's service hasn't run yet.
func (s *Store) Reservations() ([]snapshot.Reservation, error) {
	dir, owner, err := s.openOwned()
	if err != nil || owner == nil {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	defer dir.Close()
	note, err := reservations.ReadIn(dir)
	return note.Reservations, err
}

// SaveReservations replaces them. Only root's service calls it.
func (s *Store) SaveReservations(list []snapshot.Reservation) error {
	return reservations.Write(s.OwnedPath(), reservationNote{reservationsSchema, list})
}
