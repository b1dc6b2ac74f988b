//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// addLoopbackAddress does what `ip address replace <address>/32 dev lo` does.
// It needs CAP_NET_ADMIN, and changes nothing if the interface has the address.
func addLoopbackAddress(address string) error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	if err := netlink(newAddress(netip.MustParseAddr(address), lo.Index)); err != nil {
		return fmt.Errorf("add %s/32 to the loopback interface: %w: the init container needs the capability NET_ADMIN",
			address, err)
	}
	return nil
}

// newAddress encodes RTM_NEWADDR: nlmsghdr, ifaddrmsg and two attributes
// (rtnetlink(7)).
func newAddress(address netip.Addr, link int) []byte {
	const (
		flags     = syscall.NLM_F_REQUEST | syscall.NLM_F_ACK | syscall.NLM_F_CREATE | syscall.NLM_F_REPLACE
		attribute = syscall.SizeofRtAttr + 4
		length    = syscall.SizeofNlMsghdr + syscall.SizeofIfAddrmsg + 2*attribute
	)
	native := binary.NativeEndian
	m := native.AppendUint32(nil, length)
	m = native.AppendUint16(m, syscall.RTM_NEWADDR)
	m = native.AppendUint16(m, flags)
	m = native.AppendUint64(m, 0) // sequence and port
	m = append(m, syscall.AF_INET, 32, 0, syscall.RT_SCOPE_HOST)
	m = native.AppendUint32(m, uint32(link)) //nolint:gosec // an index of the kernel
	for _, kind := range []uint16{syscall.IFA_LOCAL, syscall.IFA_ADDRESS} {
		m = native.AppendUint16(m, attribute)
		m = native.AppendUint16(m, kind)
		m = append(m, address.AsSlice()...)
	}
	return m
}

// netlink sends a request to the kernel and returns the error of its
// acknowledgement.
func netlink(request []byte) error {
	socket, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer syscall.Close(socket) //nolint:errcheck // nothing to lose
	if err := syscall.Sendto(socket, request, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	answer := make([]byte, os.Getpagesize())
	n, _, err := syscall.Recvfrom(socket, answer, 0)
	if err != nil || n < syscall.SizeofNlMsghdr+4 {
		return fmt.Errorf("an acknowledgement of %d bytes: %w", n, os.NewSyscallError("recvfrom", err))
	}
	//nolint:gosec // a negative errno
	if code := int32(binary.NativeEndian.Uint32(answer[syscall.SizeofNlMsghdr:])); code != 0 {
		return syscall.Errno(-code) //nolint:gosec // the same
	}
	return nil
}
