// Package socket is the unix socket of a controller: it opens and finds it, and says who is
// at the other end of a connection.
//
//	listener, err := socket.Listen(ctx, path)
//	defer listener.Close()
//	server := http.Server{ConnContext: socket.WithPeer} // then, in a handler:
//	peer, known := socket.PeerOf(request.Context())
//
// A socket belongs to one living controller. One that a dead controller left is replaced;
// nothing else is ever removed.
package socket
