package remote

import "context"

// While returns a context for what may be begun only while may returns nil, such as the reports of
// a controller that leads. Whoever sends a command or a request asks with MayBegin right before,
// after all that it had to wait for: a place among others, a login, its turn on a connection.
func While(ctx context.Context, may func() error) context.Context {
	return context.WithValue(ctx, whileKey{}, may)
}

type whileKey struct{}

// MayBegin returns the error of the function that While was given; nil without one. Nothing may
// be sent after an error.
func MayBegin(ctx context.Context) error {
	may, _ := ctx.Value(whileKey{}).(func() error)
	if may == nil {
		return nil
	}
	return may()
}
