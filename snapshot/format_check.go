package snapshot

import (
	"errors"
	"fmt"
)

func checkPID(pid PID) error {
	if pid < 1 {
		return fmt.Errorf("%d is not a PID", pid)
	}
	return nil
}

func checkIndex(index *DeviceIndex) error {
	if index == nil {
		return errors.New("its index is missing")
	}
	if i := *index; i < 0 || i >= maxDevices {
		return fmt.Errorf("the GPU index %d is not from 0 to %d", i, maxDevices-1)
	}
	return nil
}

// measured is a value that a device can have; nil for another one.
func measured[T any](r *reader, name string, value *T, check func(T) error) *T {
	if value == nil || r.leavesOut(name, check(*value)) {
		return nil
	}
	return value
}

func checkUtilization(percent int) error {
	if percent < 0 || percent > 100 {
		return fmt.Errorf("%w: a utilization of %d per cent", ErrInvalid, percent)
	}
	return nil
}

// CheckTemperature returns an error, which wraps ErrInvalid, unless a device can have
// this temperature in degrees Celsius.
func CheckTemperature(celsius int) error {
	if celsius < -273 || celsius > 1000 {
		return fmt.Errorf("%w: a temperature of %d degrees Celsius", ErrInvalid, celsius)
	}
	return nil
}

// CheckPower returns an error, which wraps ErrInvalid, unless a device can draw this power in watts.
func CheckPower(watts float64) error {
	if !(watts >= 0 && watts <= 1e6) { // refuses NaN, too
		return fmt.Errorf("%w: a power of %g watts", ErrInvalid, watts)
	}
	return nil
}
