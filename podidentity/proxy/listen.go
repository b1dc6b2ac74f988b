package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/workloadid/workloadid/internal/podidentity"
)

// Listen listens on a loopback address or on 169.254.170.2, and refuses
// addresses that other pods can reach. For 127.0.0.1 it also listens on the
// same port of [::1], if the pod has IPv6.
func Listen(ctx context.Context, address string) ([]net.Listener, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() && at.Addr().String() != podidentity.LinkLocal {
		return nil, fmt.Errorf("proxy: listen address %.100q: use 127.0.0.1:port or %s:80", address, podidentity.LinkLocal)
	}
	var config net.ListenConfig
	first, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	if at.Addr().String() != "127.0.0.1" {
		return []net.Listener{first}, nil
	}
	_, port, _ := net.SplitHostPort(first.Addr().String()) // the system chooses a port for 0
	second, err := config.Listen(ctx, "tcp", net.JoinHostPort("::1", port))
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		return []net.Listener{first}, nil
	case err != nil:
		return nil, errors.Join(fmt.Errorf("proxy: %w", err), first.Close())
	}
	return []net.Listener{first, second}, nil
}

// Serve answers on the listeners until the context ends. It then closes them
// and returns nil.
func Serve(ctx context.Context, handler http.Handler, listeners []net.Listener) error {
	const patience = 10 * time.Second
	server := &http.Server{
		Handler: handler, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, DisableGeneralOptionsHandler: true,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- server.Serve(l) }()
	}
	var first error
	for range listeners {
		if err := <-ended; first == nil {
			first = err
		}
		_ = server.Close() // one listener that fails stops the others
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("proxy: %w", first)
}
