package guard

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// At is a moment: by the wall clock, for people, and by the kernel's clock, which counts
// suspended time and is never set.
type At struct {
	Time      time.Time
	BootID    string
	SinceBoot time.Duration
}

// Left is how long the order holds from now on; 0 if it doesn't any more.
func (o *Order) Left(now At) time.Duration {
	if o.bootID != now.BootID || now.SinceBoot < o.ends-o.Lease { // of another boot
		return 0
	}
	return max(0, o.ends-now.SinceBoot)
}

// storedOrder is the content of guard-order.json.
type storedOrder struct {
	Schema string `json:"schema"`
	ID     string `json:"id"`
	orderWire
	Time   time.Time `json:"time"`
	BootID string    `json:"boot_id"`
	EndsMS int64     `json:"ends_ms"` // since boot
}

const (
	// OrderFile is the name of the order's file in the run folder.
	OrderFile   = "guard-order.json"
	orderLock   = "guard-order.lock"
	orderSchema = "genv.guard-order/1"
	maxOrder    = 4 << 20 // bytes
	maxOrderID  = 256     // bytes
	// orderLockWithin is how long another writer of the order may take.
	orderLockWithin = 2 * time.Second
)

var orderNote = folder.Note[storedOrder]{
	Name: OrderFile, Max: maxOrder, Mode: 0o600, Invalid: snapshot.ErrInvalid, Check: (*storedOrder).check,
}

// Errors by what the caller does about them.
var (
	// ErrNoOrder: no order was given since the machine was started.
	ErrNoOrder = errors.New("the guard has no order")
	// ErrReplaced: another order was given meanwhile. Don't renew the old one.
	ErrReplaced = errors.New("the guard has got another order")
)

// GiveOrder gives an order to the host with this run folder, which replaces the one before.
// With an empty id it gets a new one. Only root gives orders.
func GiveOrder(dir string, o Order, id string, now At) (Order, error) {
	holds, _, err := OfferOrder(dir, o, id, now, func(Order, error) bool { return true })
	return holds, err
}

// OfferOrder is GiveOrder, unless the order before shall hold: replaces decides, and gets what ReadOrder
// returns. No other order is given meanwhile. It returns the order that holds, and whether
// that is the new one.
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

// RenewOrder gives an order again, so that its lease begins again. With ErrReplaced another one
// was given meanwhile, which is returned and stays.
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

// WithdrawOrder takes an order back, unless another one was given meanwhile, which is
// ErrReplaced: the guard then has no order, and any controller may give one.
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

// locked passes to change what ReadOrder returns. No other order is given meanwhile. It makes the run folder if it is
// missing.
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
	o.ID, o.Given, o.bootID, o.ends = id, now.Time, now.BootID, now.SinceBoot+o.Lease
	return o, orderNote.Put(d, storedOrder{
		Schema: orderSchema, ID: id, orderWire: o.wire(), Time: now.Time.UTC(), BootID: o.bootID,
		EndsMS: o.ends.Milliseconds(),
	})
}

// ReadOrder returns the last order that was given, whether or not its lease has ended. The
// error wraps ErrNoOrder if there is none, folder.ErrUnsafe if others than root could have
// written it, or snapshot.ErrInvalid.
func ReadOrder(dir string) (Order, error) {
	s, err := orderNote.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Order{}, ErrNoOrder
	}
	if err != nil {
		return Order{}, err
	}
	var o Order
	if err := o.set(&s.orderWire); err != nil {
		return Order{}, err
	}
	o.ID, o.Given, o.bootID, o.ends = s.ID, s.Time, s.BootID, time.Duration(s.EndsMS)*time.Millisecond
	return o, nil
}

func (s *storedOrder) check() error {
	if s.ID == "" || len(s.ID) > maxOrderID {
		return errors.New("its id is missing or too long")
	}
	return folder.CheckSchema(s.Schema, orderSchema)
}
