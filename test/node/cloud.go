//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cloudtest"
)

const (
	account      = "123456789012"
	region       = "eu-central-1"
	registryHost = account + ".dkr.ecr." + region + ".amazonaws.com"
)

// newCertificate makes a certificate for the simulated AWS. The first result
// also holds its CA.
func newCertificate() (certificate, key []byte, err error) {
	names := []string{"*.amazonaws.com", "*." + region + ".amazonaws.com", "*.ecr." + region + ".amazonaws.com",
		"*.dkr.ecr." + region + ".amazonaws.com"}
	return cert.GenerateSelfSignedCertKey("sts.amazonaws.com", nil, names)
}

// startCloud serves AWS at its production host names, until the manager ends.
func startCloud(ctx context.Context, dir string) (*cloudtest.Cloud, error) {
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cloud.key"))
	if err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(dir, "logs", "cloud.log")) //nolint:gosec // in the folder of the node
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(cloudIP, "443"))
	if err != nil {
		return nil, err
	}
	front := &http.Server{Handler: cloud.Handler(), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:  log.New(out, "", log.LstdFlags),
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}}
	go front.ServeTLS(listener, "", "") //nolint:errcheck // ends with the process
	return cloud, nil
}

// names is the DNS server of the cluster and of the node. It knows Services and
// the hosts of AWS.
type names struct {
	services client.Client
}

// startNames answers on the node's address, until the manager ends.
func startNames(ctx context.Context, services client.Client) error {
	var config net.ListenConfig
	udp, err := config.ListenPacket(ctx, "udp", net.JoinHostPort(nodeIP, "53"))
	if err != nil {
		return err
	}
	go (&names{services}).serve(ctx, udp)
	return nil
}

func (n *names) serve(ctx context.Context, conn net.PacketConn) {
	buffer := make([]byte, 1500)
	for {
		size, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		query := append([]byte(nil), buffer[:size]...)
		go func() {
			if answer, err := n.answer(ctx, query); err == nil {
				_, _ = conn.WriteTo(answer, from) // clients ask again
			}
		}()
	}
}

func (n *names) answer(ctx context.Context, query []byte) ([]byte, error) {
	var message dnsmessage.Message
	if err := message.Unpack(query); err != nil || len(message.Questions) != 1 {
		return nil, errors.Join(err, errors.New("not one question"))
	}
	q := message.Questions[0]
	answer := dnsmessage.Message{Questions: message.Questions,
		Header: dnsmessage.Header{ID: message.ID, Response: true, Authoritative: true,
			RecursionDesired: message.RecursionDesired, RecursionAvailable: true}}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	address, err := n.lookup(ctx, strings.TrimSuffix(strings.ToLower(q.Name.String()), "."))
	switch {
	case client.IgnoreNotFound(err) != nil:
		answer.RCode = dnsmessage.RCodeServerFailure
	case address == nil:
		answer.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		answer.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1},
			Body: &dnsmessage.AResource{A: [4]byte(address)}}}
	}
	return answer.Pack()
}

// lookup returns nil for unknown names.
func (n *names) lookup(ctx context.Context, host string) (net.IP, error) {
	if strings.HasSuffix(host, ".amazonaws.com") {
		return net.ParseIP(cloudIP).To4(), nil
	}
	name, ok := strings.CutSuffix(host, ".svc."+domain)
	service, namespace, found := strings.Cut(name, ".")
	if !ok || !found || strings.Contains(namespace, ".") {
		return nil, nil
	}
	var s corev1.Service
	if err := n.services.Get(ctx, client.ObjectKey{Namespace: namespace, Name: service}, &s); err != nil {
		return nil, err
	}
	if ip := net.ParseIP(s.Spec.ClusterIP).To4(); ip != nil {
		return ip, nil
	}
	return nil, fmt.Errorf("service %q has no address", name)
}
