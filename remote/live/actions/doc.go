// Package actions carries what a person asks a controller to do over its unix socket: the
// HTTP handler of POST /api/v1/actions, and the client for it.
//
//	mux.Handle("POST /api/v1/actions", actions.New(queue.Do, names)) // on the unix socket only
//	answer, err := actions.Send(ctx, path, action)                   // err may be a *operator.Refusal
//
// Who asks is what the kernel says about the other end of the socket. Only root and the
// account of the controller may ask, although others may look.
package actions
