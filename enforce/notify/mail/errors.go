package mail

import "errors"

// finalError is an error after which another try would not help, or might send a mail
// twice.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

func finally(err error) error {
	if err == nil {
		return nil
	}
	return finalError{err}
}

func isFinal(err error) bool {
	var final finalError
	return errors.As(err, &final)
}

// serverError is an error that other mails would have, too: the server can't be reached
// or refuses the login.
type serverError struct{ error }

func (e *serverError) Unwrap() error { return e.error }

func isServer(err error) bool {
	var server *serverError
	return errors.As(err, &server)
}
