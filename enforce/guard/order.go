package guard

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// The limits of an order.
const (
	MinLease  = time.Second
	MaxLease  = 24 * time.Hour
	maxExempt = 1000 // of each kind
	maxBy     = 256  // bytes
	maxIndex  = 1023 // of a device, as in the state files
)

// Order is what the guard of a host has to do.
type Order struct {
	Mode Mode `json:"mode"`
	// FirstUID is the first guarded uid; 0 for the host's (system.FirstUID).
	FirstUID snapshot.UID `json:"first_uid,omitempty"`
	// Exempt users may open every GPU, and every user may open exempt GPUs.
	ExemptUsers   []snapshot.Username    `json:"exempt_users,omitempty"`
	ExemptUIDs    []snapshot.UID         `json:"exempt_uids,omitempty"`
	ExemptDevices []snapshot.DeviceIndex `json:"exempt_devices,omitempty"`
	ExemptUUIDs   []snapshot.GPUUUID     `json:"exempt_uuids,omitempty"`
	By            string                 `json:"by"` // who gave it, for people
	LeaseMS       int64                  `json:"lease_ms,omitempty"`

	// ID stays the same in renewals. Given is when the order was last given. Both are empty before.
	ID    string    `json:"-"`
	Given time.Time `json:"-"`

	bootID string
	ends   time.Duration // since boot
}

// Lease is how long the order holds without a renewal.
func (o *Order) Lease() time.Duration { return time.Duration(o.LeaseMS) * time.Millisecond }

// Check refuses an order that no host could carry out, with snapshot.ErrInvalid.
func (o *Order) Check() error {
	switch {
	case !o.Mode.Valid():
		return invalidOrder("%s", o.Mode)
	case o.LeaseMS < 0 || o.LeaseMS > MaxLease.Milliseconds() || o.Mode != Off && o.Lease() < MinLease:
		return invalidOrder("a lease of %s: expected %s to %s", o.Lease(), MinLease, MaxLease)
	case max(len(o.ExemptUsers), len(o.ExemptUIDs), len(o.ExemptDevices), len(o.ExemptUUIDs)) > maxExempt:
		return invalidOrder("more than %d exempt users or GPUs", maxExempt)
	case len(o.By) > maxBy:
		return invalidOrder("the name of who gave it is longer than %d bytes", maxBy)
	case slices.ContainsFunc(o.ExemptDevices, func(i snapshot.DeviceIndex) bool { return i < 0 || i > maxIndex }):
		return invalidOrder("an exempt GPU with an index that no GPU can have")
	}
	if err := snapshot.CheckText("the name of who gave the order", o.By); err != nil {
		return err
	}
	for _, name := range o.ExemptUsers {
		if err := snapshot.CheckName("the name of an exempt user", string(name)); err != nil {
			return err
		}
		if name == "" || strings.ContainsAny(string(name), ":/") {
			return invalidOrder("%q can't be the name of a user", name)
		}
	}
	for _, uuid := range o.ExemptUUIDs {
		if err := snapshot.CheckName("the UUID of an exempt GPU", string(uuid)); err != nil {
			return err
		}
	}
	return nil
}

func invalidOrder(format string, args ...any) error {
	return fmt.Errorf("%w: an order for the guard: "+format, append([]any{snapshot.ErrInvalid}, args...)...)
}

// First is the first guarded uid.
func (o *Order) First() snapshot.UID { return cmp.Or(o.FirstUID, system.FirstUID()) }

// ExemptsDevice reports whether anyone may open a device. Indices move: they don't count if all exempt devices have
// UUIDs.
func (o *Order) ExemptsDevice(index snapshot.DeviceIndex, uuid snapshot.GPUUUID) bool {
	if uuid != "" && len(o.ExemptUUIDs) == len(o.ExemptDevices) {
		return slices.Contains(o.ExemptUUIDs, uuid)
	}
	return slices.Contains(o.ExemptDevices, index) || uuid != "" && slices.Contains(o.ExemptUUIDs, uuid)
}

// Mode is how far the guard goes.
type Mode int

// The modes, each stricter than the one before.
const (
	Off     Mode = iota // every open is allowed, and none is reported
	Watch               // opens by users without an attachment are allowed and reported
	Enforce             // they are denied and reported
)

var modeNames = [...]string{Off: "off", Watch: "watch", Enforce: "enforce"}

// Modes are the names of all modes, for help and completion.
func Modes() []string { return slices.Clone(modeNames[:]) }

// ParseMode returns the mode of a name.
func ParseMode(name string) (Mode, error) {
	if m := slices.Index(modeNames[:], name); m >= 0 {
		return Mode(m), nil
	}
	return Off, fmt.Errorf("%q: expected off, watch or enforce", name)
}

// Valid reports whether it is one of the modes.
func (m Mode) Valid() bool { return m >= Off && int(m) < len(modeNames) }

// String is the name of the mode.
func (m Mode) String() string {
	if !m.Valid() {
		return fmt.Sprintf("mode %d", int(m))
	}
	return modeNames[m]
}

// MarshalText refuses invalid modes.
func (m Mode) MarshalText() ([]byte, error) {
	if !m.Valid() {
		return nil, fmt.Errorf("%d: expected a mode of the guard", int(m))
	}
	return []byte(modeNames[m]), nil
}

// UnmarshalText reads a name.
func (m *Mode) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMode(string(text))
	return err
}

// PolicySetting is a policy's setting for the guard of a host.
type PolicySetting struct {
	Mode Mode
	// These users may open every device. Both are empty in mode Off.
	ExemptUsers []snapshot.Username
	ExemptUIDs  []snapshot.UID
}

// At is a time by the wall clock and by the kernel's clock, which counts suspended time and is never set.
type At struct {
	Time      time.Time
	BootID    string
	SinceBoot time.Duration
}

// Left is how long the order still holds; 0 if it is over.
func (o *Order) Left(now At) time.Duration {
	if o.bootID != now.BootID || now.SinceBoot < o.ends-o.Lease() { // of another boot
		return 0
	}
	return max(0, o.ends-now.SinceBoot)
}

type storedOrder struct {
	Schema string `json:"schema"`
	ID     string `json:"id"`
	Order
	Time   time.Time `json:"time"`
	BootID string    `json:"boot_id"`
	EndsMS int64     `json:"ends_ms"` // since boot
}

const (
	// OrderFile is in the run folder.
	OrderFile       = "guard-order.json"
	orderLock       = "guard-order.lock"
	orderSchema     = "genv.guard-order/1"
	maxOrder        = 4 << 20         // bytes
	maxOrderID      = 256             // bytes
	orderLockWithin = 2 * time.Second // the time for another writer
)

var orderNote = folder.Note[storedOrder]{
	Name: OrderFile, Max: maxOrder, Mode: 0o600, Invalid: snapshot.ErrInvalid, Check: (*storedOrder).check,
}

// Errors by what the caller does about them.
var (
	ErrNoOrder  = errors.New("the guard has no order")          // no order was given since the machine was started
	ErrReplaced = errors.New("the guard has got another order") // another order was given. Don't renew the old one.
)

// GiveOrder replaces any other order; an empty id makes a new one. Only root gives orders.
func GiveOrder(dir string, o Order, id string, now At) (Order, error) {
	holds, _, err := OfferOrder(dir, o, id, now, func(Order, error) bool { return true })
	return holds, err
}

// OfferOrder is GiveOrder if replaces, called with the result of ReadOrder, returns true. No other order is given
// meanwhile. It returns the order that holds, and whether that is the new one.
func OfferOrder(dir string, o Order, id string, now At,
	replaces func(present Order, err error) bool,
) (holds Order, given bool, err error) {
	if err := o.Check(); err != nil {
		return Order{}, false, err
	}
	if len(id) > maxOrderID {
		return Order{}, false, invalidOrder("an id of more than %d bytes", maxOrderID)
	}
	if id == "" {
		id = rand.Text()
	}
	holds, err = locked(dir, func(d *folder.Folder, present Order, err error) (Order, error) {
		if given = replaces(present, err); !given {
			return present, nil
		}
		return writeOrder(d, o, id, now)
	})
	return holds, given && err == nil, err
}

// RenewOrder renews a lease. ErrReplaced: a later order was given, which is returned and stays.
func RenewOrder(dir string, g Order, now At) (Order, error) {
	holds, err := locked(dir, func(d *folder.Folder, present Order, err error) (Order, error) {
		switch {
		case err != nil:
			return g, err
		case present.ID != g.ID:
			return present, ErrReplaced
		}
		return writeOrder(d, g, g.ID, now)
	})
	if err != nil && !errors.Is(err, ErrReplaced) {
		return g, err
	}
	return holds, err
}

// WithdrawOrder lets any controller give an order. ErrReplaced: a later order was given.
func WithdrawOrder(dir string, g Order) error {
	_, err := locked(dir, func(d *folder.Folder, present Order, err error) (Order, error) {
		switch {
		case errors.Is(err, ErrNoOrder):
			return present, nil
		case err == nil && present.ID != g.ID:
			return present, ErrReplaced
		}
		return present, d.Remove(OrderFile)
	})
	return err
}

// locked calls change under the lock, with the result of ReadOrder.
func locked(dir string, change func(d *folder.Folder, present Order, err error) (Order, error)) (Order, error) {
	d, err := folder.MakePublic(dir) // users read guard.json
	if err != nil {
		return Order{}, err
	}
	defer d.Close()
	if err := d.Hold(orderLock, orderLockWithin); err != nil {
		return Order{}, err
	}
	present, err := ReadOrder(dir)
	return change(d, present, err)
}

func writeOrder(d *folder.Folder, o Order, id string, now At) (Order, error) {
	o.ID, o.Given, o.bootID, o.ends = id, now.Time, now.BootID, now.SinceBoot+o.Lease()
	return o, orderNote.Put(d, storedOrder{orderSchema, id, o, now.Time.UTC(), o.bootID, o.ends.Milliseconds()})
}

// ReadOrder returns the last order, even after its lease. Errors wrap ErrNoOrder, folder.ErrUnsafe or
// snapshot.ErrInvalid.
func ReadOrder(dir string) (Order, error) {
	s, err := orderNote.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoOrder
	}
	o := s.Order // nothing after an error
	o.ID, o.Given, o.bootID, o.ends = s.ID, s.Time, s.BootID, time.Duration(s.EndsMS)*time.Millisecond
	return o, err
}

func (s *storedOrder) check() error {
	if s.ID == "" || len(s.ID) > maxOrderID {
		return errors.New("its id is missing or too long")
	}
	return cmp.Or(folder.CheckSchema(s.Schema, orderSchema), s.Check())
}
