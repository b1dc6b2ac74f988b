//go:build linux

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/podidentity"
)

// caReplaced plays the ten years of a CA: its successor is published, and later
// signs alone. The pod with short sessions was created before, so its sidecar
// knows the successor from the server only.
func (s *podIdentityState) caReplaced(ctx context.Context, c *cluster) error {
	next, content, err := newCA()
	if err != nil {
		return err
	}
	if err := c.setCA(ctx, func(cas map[string][]byte) { cas["ca-next.pem"] = content }); err != nil {
		return err
	}
	if err := c.until(ctx, 2*time.Minute, "the sidecar gets the next CA", func(ctx context.Context) error {
		out, err := c.sh(ctx, "kubectl -n team-a logs short -c "+podidentity.ProxyContainer)
		if err == nil && !strings.Contains(out, "the CAs of the server have changed") {
			err = fmt.Errorf("log of the sidecar: %s", last(out, 3))
		}
		return err
	}); err != nil {
		return err
	}
	if err := c.setCA(ctx, func(cas map[string][]byte) {
		maps.DeleteFunc(cas, func(file string, _ []byte) bool { return file != "ca-next.pem" })
	}); err != nil {
		return err
	}
	if err := c.until(ctx, 2*time.Minute, "the next CA signs", func(ctx context.Context) error {
		return c.serversVerify(ctx, next)
	}); err != nil {
		return err
	}
	before, err := c.output(ctx, s.short)
	if err != nil {
		return err
	}
	return errors.Join(c.until(ctx, 2*time.Minute, "the app gets another session", func(ctx context.Context) error {
		o, err := c.output(ctx, s.short)
		if err == nil && len(o.keys) <= len(before.keys) {
			err = fmt.Errorf("sessions: %q", o.keys)
		}
		return errors.Join(err, o.failures())
	}), c.runApp(ctx, app(tenant, "next-ca", "reporting"), "reporting", "prod.team-a.reporting"), s.unaffected(ctx, c))
}

// newCA returns a CA that outlives those before, and its file with the key.
func newCA() (ca *x509.Certificate, content []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	ca, err = cert.NewSelfSignedCACert(cert.Config{CommonName: "next"}, key)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := cert.EncodeCertificates(ca)
	encoded, keyErr := keyutil.MarshalPrivateKeyToPEM(key)
	return ca, slices.Concat(certificate, encoded), errors.Join(err, keyErr)
}

// setCA changes the CAs, and touches the pods, so that the kubelet mounts what
// follows at once. Otherwise it takes up to two minutes.
func (c *cluster) setCA(ctx context.Context, change func(map[string][]byte)) error {
	issued := func() (s corev1.Secret, err error) {
		return s, c.Get(ctx, client.ObjectKey{Namespace: iamSystem, Name: serverName}, &s)
	}
	before, err := issued()
	if err != nil {
		return err
	}
	var cas corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: iamSystem, Name: "iam-credentials-ca"}, &cas); err != nil {
		return err
	}
	change(cas.Data)
	if err := c.Update(ctx, &cas); err != nil {
		return err
	}
	if err := c.until(ctx, 30*time.Second, "the certificates follow", func(context.Context) error {
		now, err := issued()
		if err == nil && now.ResourceVersion == before.ResourceVersion {
			err = errors.New("the Secret of the server is as before")
		}
		return err
	}); err != nil {
		return err
	}
	_, err = c.sh(ctx, "kubectl -n iam-system annotate pods --all --overwrite touched="+rand.Text())
	return err
}

// serversVerify checks that all servers present certificates of a CA.
func (c *cluster) serversVerify(ctx context.Context, ca *x509.Certificate) error {
	servers, err := c.pods(ctx, iamSystem, "app.kubernetes.io/name="+serverName)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots,
		ServerName: serverName + "." + iamSystem + ".svc"}}
	for _, pod := range servers {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, "8443"))
		if err != nil {
			return fmt.Errorf("pod %q: %w", pod.Name, err)
		}
		if err := conn.Close(); err != nil {
			return err
		}
	}
	return nil
}
