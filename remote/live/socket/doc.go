// Package socket is what genv serves HTTP on. It opens and finds the unix socket of a controller,
// and says who is at the other end of a connection; Serve, for TCP as for unix sockets, has bounds:
// clients that are slow, that stop reading, or that are many hold up neither the others nor the
// end, and can't exhaust the program.
//
//	listener, err := socket.Listen(ctx, path)
//	defer listener.Close()
//	failed, stop := socket.Serve(listener, handler)
//	defer stop()
//	peer, known := socket.PeerOf(request.Context()) // in a handler
//
// A socket belongs to one living controller. One that a dead controller left is replaced;
// nothing else is ever removed.
package socket
